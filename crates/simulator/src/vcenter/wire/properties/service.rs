//! The managers of the service, and the objects that clients create: views, collectors, filters.

use uuid::Uuid;

use super::event::EVENT_TYPES;
use super::{Scope, event_value, root_folder, task_info};
use crate::vcenter::inventory::TaskId;
use crate::vcenter::wire::history::{History, HistoryKind};
use crate::vcenter::wire::session::Session;
use crate::vcenter::wire::target::{ClientObject, Singleton, Target};
use crate::vcenter::wire::value::Value;
use crate::vcenter::wire::view::View;

const VERSION: &str = "8.0.3";
const API_VERSION: &str = "8.0.3.0";
const BUILD: &str = "24022515";

impl Scope<'_> {
    pub(super) fn service_property(&self, service: Singleton, property: &str) -> Value {
        match (service, property) {
            (Singleton::ServiceInstance, "serverClock") => Value::time(self.now),
            (Singleton::ServiceInstance, "capability") => Value::object(
                "Capability",
                vec![
                    ("provisioningSupported", Value::bool(true)),
                    ("multiHostSupported", Value::bool(true)),
                    ("userShellAccessSupported", Value::bool(false)),
                ],
            ),
            (Singleton::ServiceInstance, "content") => service_content(self),
            (Singleton::PropertyCollector, "filter") => self.filters(0),
            (Singleton::ViewManager, "viewList") => {
                let views = self.session.into_iter().flat_map(|session| &session.views);
                Value::refs(views.map(|(number, view)| self.reference(view_target(*number, view))))
            }
            (Singleton::SessionManager, "sessionList") => {
                Value::list("UserSession", self.sessions.values().map(user_session).collect())
            }
            (Singleton::SessionManager, "currentSession") => Value::or_unset(self.session, user_session),
            (Singleton::SessionManager, "message") => Value::string(""),
            (Singleton::SessionManager, "messageLocaleList" | "supportedLocaleList") => Value::strings(["en"]),
            (Singleton::SessionManager, "defaultLocale") => Value::string("en"),
            (Singleton::TaskManager, "recentTask") => Value::refs(self.recent_tasks()),
            (Singleton::TaskManager, "description") => Value::object("TaskDescription", Vec::new()),
            (Singleton::TaskManager | Singleton::EventManager, "maxCollector") => Value::int(1000),
            (Singleton::EventManager, "latestEvent") => {
                Value::or_unset(self.inventory.events().back(), |event| event_value(self, event))
            }
            (Singleton::EventManager, "description") => event_description(),
            (Singleton::OptionManager, "setting") => {
                Value::list("OptionValue", options(self).into_iter().map(option_value).collect())
            }
            (Singleton::AuthorizationManager, "roleList") => Value::list("AuthorizationRole", vec![administrator()]),
            _ => Value::Unset,
        }
    }

    fn filters(&self, collector: u32) -> Value {
        let collector = self.session.and_then(|session| session.collectors.get(&collector));
        let numbers = collector.into_iter().flat_map(|collector| collector.filters.keys());
        Value::refs(numbers.map(|number| self.reference(Target::Client(ClientObject::PropertyFilter, *number))))
    }

    pub(super) fn client_property(&self, kind: ClientObject, number: u32, property: &str) -> Value {
        let Some(session) = self.session else { return Value::Unset };
        match (kind, property) {
            (ClientObject::PropertyCollector, "filter") => self.filters(number),
            (ClientObject::PropertyFilter, "partialUpdates") => {
                let filter = session.collectors.values().find_map(|collector| collector.filters.get(&number));
                Value::or_unset(filter, |filter| Value::bool(filter.partial_updates))
            }
            (ClientObject::ContainerView | ClientObject::ListView, _) => {
                Value::or_unset(session.views.get(&number), |view| self.view_property(view, property))
            }
            (ClientObject::EventHistoryCollector | ClientObject::TaskHistoryCollector, "latestPage") => {
                Value::or_unset(session.histories.get(&number), |history| {
                    let page = history.latest_page(self.inventory, self.relations);
                    Value::list(element_of(history), self.history_items(history.kind, &page))
                })
            }
            _ => Value::Unset,
        }
    }

    fn view_property(&self, view: &View, property: &str) -> Value {
        match (view, property) {
            (_, "view") => Value::refs(view.members().into_iter().map(|member| self.reference(member))),
            (View::Container(view), "container") => Value::Ref(view.container.into()),
            (View::Container(view), "type") => Value::strings(view.types.iter()),
            (View::Container(view), "recursive") => Value::bool(view.recursive),
            _ => Value::Unset,
        }
    }

    /// Events or tasks by their numbers, as data objects.
    pub fn history_items(&self, kind: HistoryKind, numbers: &[u64]) -> Vec<Value> {
        match kind {
            HistoryKind::Events => {
                let events = self.inventory.events();
                let find = |number: &u64| {
                    let key = i32::try_from(*number).ok()?;
                    events.binary_search_by_key(&key, |event| event.key).ok().and_then(|at| events.get(at))
                };
                numbers.iter().filter_map(find).map(|event| event_value(self, event)).collect()
            }
            HistoryKind::Tasks => numbers
                .iter()
                .filter_map(|number| u32::try_from(*number).ok().map(TaskId))
                .filter_map(|id| self.inventory.task(id).map(|task| task_info(id, task)))
                .collect(),
        }
    }
}

fn element_of(history: &History) -> &'static str {
    match history.kind {
        HistoryKind::Events => "Event",
        HistoryKind::Tasks => "TaskInfo",
    }
}

pub(crate) fn view_target(number: u32, view: &View) -> Target {
    match view {
        View::Container(_) => Target::Client(ClientObject::ContainerView, number),
        View::List { .. } => Target::Client(ClientObject::ListView, number),
    }
}

pub(crate) fn about(instance_uuid: Uuid) -> Value {
    Value::object(
        "AboutInfo",
        vec![
            ("name", Value::string("VMware vCenter Server")),
            ("fullName", Value::string(format!("VMware vCenter Server {VERSION} build-{BUILD} (simulated)"))),
            ("vendor", Value::string("VMware, Inc.")),
            ("version", Value::string(VERSION)),
            ("build", Value::string(BUILD)),
            ("localeVersion", Value::string("INTL")),
            ("localeBuild", Value::string("000")),
            ("osType", Value::string("linux-x64")),
            ("productLineId", Value::string("vpx")),
            ("apiType", Value::string("VirtualCenter")),
            ("apiVersion", Value::string(API_VERSION)),
            ("instanceUuid", Value::string(instance_uuid.to_string())),
            ("licenseProductName", Value::string("VMware VirtualCenter Server")),
            ("licenseProductVersion", Value::string("8.0")),
        ],
    )
}

pub(crate) fn service_content(scope: &Scope<'_>) -> Value {
    let manager = |service: Singleton| Value::Ref(scope.reference(Target::Singleton(service)));
    Value::object(
        "ServiceContent",
        vec![
            ("rootFolder", Value::or_unset(root_folder(scope.inventory), |id| Value::Ref(id.into()))),
            ("propertyCollector", manager(Singleton::PropertyCollector)),
            ("viewManager", manager(Singleton::ViewManager)),
            ("about", about(scope.instance_uuid)),
            ("setting", manager(Singleton::OptionManager)),
            ("sessionManager", manager(Singleton::SessionManager)),
            ("authorizationManager", manager(Singleton::AuthorizationManager)),
            ("eventManager", manager(Singleton::EventManager)),
            ("taskManager", manager(Singleton::TaskManager)),
            ("searchIndex", manager(Singleton::SearchIndex)),
        ],
    )
}

pub(crate) fn user_session(session: &Session) -> Value {
    Value::object(
        "UserSession",
        vec![
            ("key", Value::string(&session.key)),
            ("userName", Value::string(&session.user)),
            ("fullName", Value::string(&session.user)),
            ("loginTime", Value::time(session.login_at)),
            ("lastActiveTime", Value::time(session.last_active)),
            ("locale", Value::string("en")),
            ("messageLocale", Value::string("en")),
            ("extensionSession", Value::bool(false)),
            ("ipAddress", Value::string(&session.ip_address)),
            ("userAgent", Value::string(&session.user_agent)),
            ("callCount", Value::long(session.call_count)),
        ],
    )
}

fn event_description() -> Value {
    let detail = |(key, category): &(&str, &str)| {
        Value::object(
            "EventDescriptionEventDetail",
            vec![
                ("key", Value::string(*key)),
                ("description", Value::string(*key)),
                ("category", Value::string(*category)),
                ("formatOnDatacenter", Value::string("")),
                ("formatOnComputeResource", Value::string("")),
                ("formatOnHost", Value::string("")),
                ("formatOnVm", Value::string("")),
                ("fullFormat", Value::string("")),
            ],
        )
    };
    let details = EVENT_TYPES.iter().map(detail).collect();
    Value::object("EventDescription", vec![("eventInfo", Value::list("EventDescriptionEventDetail", details))])
}

/// The vCenter's advanced settings, limited to those that clients may use.
pub(crate) fn options(scope: &Scope<'_>) -> Vec<(&'static str, Value)> {
    let timeout_min = scope.config.session_idle_max.as_secs() / 60;
    vec![
        ("VirtualCenter.InstanceName", Value::string("vcenter.lab")),
        ("VirtualCenter.VimApiUrl", Value::string("https://vcenter.lab:443/sdk")),
        ("instance.id", Value::int(1)),
        ("vpxd.httpClientIdleTimeout", Value::int(900)),
        ("config.vpxd.sessionTimeoutMinutes", Value::int(timeout_min)),
    ]
}

pub(crate) fn option_value((key, value): (&'static str, Value)) -> Value {
    Value::object("OptionValue", vec![("key", Value::string(key)), ("value", value)])
}

fn administrator() -> Value {
    let info = vec![("label", Value::string("Administrator")), ("summary", Value::string("Full access rights"))];
    Value::object(
        "AuthorizationRole",
        vec![
            ("roleId", Value::int(-1)),
            ("system", Value::bool(true)),
            ("name", Value::string("Admin")),
            ("info", Value::object("Description", info)),
            ("privilege", Value::strings(["System.Anonymous", "System.View", "System.Read"])),
        ],
    )
}
