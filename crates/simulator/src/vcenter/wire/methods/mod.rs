//! The methods that clients call, by name.
//!
//! In: a [`Call`] and its caller. Out: a [`Reply`] or a fault. A method acts immediately or starts a task;
//! [`physics`](crate::vcenter::physics) defines what a task does over time.
//!
//! Invariant: without a session, only login, the service content and the properties of the service instance are
//! available; everything else is NotAuthenticated.

mod cluster;
mod collectors;
mod entity;
mod histories;
mod host;
mod search;
mod sessions;
mod views;
mod vm;

use super::collector::{Collector, FilterSpec, not_found, retrieve, unauthenticated};
use super::properties::{Scope, service_content};
use super::session::Session;
use super::soap::{Call, Reply};
use super::target::{ClientObject, Singleton, Target};
use super::value::Value;
use super::xml::Element;
use crate::clock::SimTime;
use crate::vcenter::Vcenter;
use crate::vcenter::inventory::{ClusterId, FolderId, HostId, MoRef, PoolId, TaskId, VmId};
use crate::vcenter::physics::Actor;
use crate::vcenter::vim_fault::VimFault;

/// More filter specs than any client sends in one call.
const SPECS_MAX: usize = 100;

/// The caller, as known from HTTP.
#[derive(Debug)]
pub(crate) struct Caller {
    pub cookie: Option<String>,
    pub ip_address: String,
    pub user_agent: String,
}

#[derive(Debug)]
pub(crate) struct Outcome {
    pub reply: Reply,
    /// The cookie of a new session.
    pub cookie: Option<String>,
}

/// A call with a valid session.
pub(crate) struct Request<'a> {
    pub vcenter: &'a mut Vcenter,
    pub now: SimTime,
    pub call: &'a Call,
    pub this: Target,
    pub cookie: String,
    pub session_key: String,
    pub actor: Actor,
}

pub(crate) fn call(vcenter: &mut Vcenter, now: SimTime, caller: &Caller, call: &Call) -> Result<Outcome, VimFault> {
    let without_session = |reply| Ok(Outcome { reply, cookie: None });
    bring_up_to_date(vcenter, caller.cookie.as_deref().unwrap_or_default(), now);
    match call.method.as_str() {
        "RetrieveServiceContent" => {
            return without_session(Reply::One(service_content(&scope(vcenter, caller.cookie.as_deref(), now))));
        }
        "Login" => return sessions::login(vcenter, now, caller, call),
        "LoginByToken" | "LoginBySSPI" | "LoginExtensionByCertificate" | "CloneSession" => {
            return Err(VimFault::NotSupported);
        }
        "RetrieveProperties" | "RetrievePropertiesEx" => {
            let scope = scope(vcenter, caller.cookie.as_deref(), now);
            let contents = if asks_service_instance_only(call) {
                Some(retrieve(&scope, &filter_specs(call, "")?)?)
            } else if scope.session.is_none() {
                Some(unauthenticated(&scope, &filter_specs(call, "").map_err(|_| VimFault::NotAuthenticated)?)?)
            } else {
                None
            };
            if let Some(contents) = contents {
                return without_session(match call.method.as_str() {
                    "RetrieveProperties" => Reply::Many(contents),
                    _ => Reply::One(Collector::default().first_page(contents, None)),
                });
            }
        }
        _ => (),
    }
    let mut request = authenticate(vcenter, now, caller, call)?;
    dispatch(&mut request).map(|reply| Outcome { reply, cookie: None })
}

fn dispatch(request: &mut Request<'_>) -> Result<Reply, VimFault> {
    match request.call.method.as_str() {
        "CurrentTime" => Ok(Reply::One(Value::time(request.now))),

        "Logout" => sessions::logout(request),
        "SessionIsActive" => sessions::is_active(request),
        "TerminateSession" => sessions::terminate(request),
        "AcquireCloneTicket" | "ImpersonateUser" => Err(VimFault::NotSupported),
        "QueryOptions" => sessions::query_options(request),

        "RetrieveProperties" => collectors::retrieve_properties(request),
        "RetrievePropertiesEx" => collectors::retrieve_properties_ex(request),
        "ContinueRetrievePropertiesEx" => collectors::continue_retrieve(request),
        "CancelRetrievePropertiesEx" => collectors::cancel_retrieve(request),
        "CreateFilter" => collectors::create_filter(request),
        "DestroyPropertyFilter" => collectors::destroy_filter(request),
        "CreatePropertyCollector" => collectors::create_collector(request),
        "DestroyPropertyCollector" => collectors::destroy_collector(request),
        "CancelWaitForUpdates" => collectors::cancel_wait(request),

        "CreateContainerView" => views::create_container_view(request),
        "CreateListView" => views::create_list_view(request),
        "ModifyListView" => views::modify_list_view(request),
        "ResetListView" => views::reset_list_view(request),
        "DestroyView" => views::destroy_view(request),

        "FindByInventoryPath" => search::by_inventory_path(request),
        "FindChild" => search::child(request),
        "FindByUuid" | "FindAllByUuid" => search::by_uuid(request),
        "FindByDnsName" | "FindAllByDnsName" => search::by_dns_name(request),
        "FindByIp" | "FindAllByIp" => search::by_ip(request),

        "QueryEvents" => histories::query_events(request),
        "CreateCollectorForEvents" => histories::create(request, ClientObject::EventHistoryCollector),
        "CreateCollectorForTasks" => histories::create(request, ClientObject::TaskHistoryCollector),
        "ReadNextEvents" | "ReadNextTasks" => histories::read_next(request),
        "ReadPreviousEvents" | "ReadPreviousTasks" => histories::read_previous(request),
        "SetCollectorPageSize" => histories::set_page_size(request),
        "ResetCollector" => histories::reset(request),
        "RewindCollector" => histories::rewind(request),
        "DestroyCollector" => histories::destroy(request),
        "CancelTask" => entity::cancel_task(request),

        "CreateFolder" => entity::create_folder(request),
        "Rename_Task" => entity::rename(request),
        "Destroy_Task" => entity::destroy(request),

        "ReconfigureComputeResource_Task" | "ReconfigureCluster_Task" => cluster::reconfigure(request),
        "ApplyRecommendation" => cluster::apply_recommendation(request),

        "CreateVM_Task" => vm::create(request),
        "CloneVM_Task" => vm::clone(request),
        "ReconfigVM_Task" => vm::reconfigure(request),
        "RelocateVM_Task" => vm::relocate(request),
        "MigrateVM_Task" => vm::migrate(request),
        "PowerOnVM_Task" => request.vm_task(Vcenter::power_on_vm),
        "PowerOffVM_Task" => request.vm_task(Vcenter::power_off_vm),
        "ResetVM_Task" => request.vm_task(Vcenter::reset_vm),
        "SuspendVM_Task" => request.vm_task(Vcenter::suspend_vm),
        "ShutdownGuest" => vm::guest_operation(request, Vcenter::power_off_vm),
        "RebootGuest" => vm::guest_operation(request, Vcenter::reset_vm),
        "StandbyGuest" => vm::guest_operation(request, Vcenter::suspend_vm),
        "PowerOnMultiVM_Task" => vm::power_on_many(request),

        "EnterMaintenanceMode_Task" => host::enter_maintenance(request),
        "ExitMaintenanceMode_Task" => request.host_task(Vcenter::exit_maintenance),
        "DisconnectHost_Task" => request.host_task(Vcenter::disconnect_host),
        "ReconnectHost_Task" => request.host_task(Vcenter::reconnect_host),

        method => Err(VimFault::MethodNotFound(method.to_owned())),
    }
}

/// Finds the caller's session and the target object.
pub(crate) fn authenticate<'a>(
    vcenter: &'a mut Vcenter,
    now: SimTime,
    caller: &Caller,
    call: &'a Call,
) -> Result<Request<'a>, VimFault> {
    let cookie = caller.cookie.clone().unwrap_or_default();
    bring_up_to_date(vcenter, &cookie, now);
    let session = vcenter.wire.sessions.get_mut(&cookie).ok_or(VimFault::NotAuthenticated)?;
    session.last_active = now;
    session.call_count += 1;
    let session_key = session.key.clone();
    let actor = Actor { user: session.user.clone() };
    let missing = || VimFault::InvalidRequest("the call names no object".to_owned());
    let this = Target::read(call.arguments.child("_this").ok_or_else(missing)?, &session_key)?;
    let scope = scope(vcenter, Some(&cookie), now);
    if !scope.exists(this) {
        return Err(not_found(&scope, this));
    }
    Ok(Request { vcenter, now, call, this, cookie, session_key, actor })
}

/// Ends sessions that have been idle for too long, and updates the views of the calling session.
pub(crate) fn bring_up_to_date(vcenter: &mut Vcenter, cookie: &str, now: SimTime) {
    let Vcenter { inventory, wire, .. } = vcenter;
    wire.expire(now);
    wire.relations.refresh(inventory);
    if let Some(session) = wire.sessions.get_mut(cookie) {
        for view in session.views.values_mut() {
            view.refresh(inventory, &wire.relations);
        }
    }
}

pub(crate) fn scope<'a>(vcenter: &'a Vcenter, cookie: Option<&str>, now: SimTime) -> Scope<'a> {
    Scope {
        inventory: &vcenter.inventory,
        relations: &vcenter.wire.relations,
        config: &vcenter.config,
        instance_uuid: vcenter.wire.instance_uuid,
        sessions: &vcenter.wire.sessions,
        session: cookie.and_then(|cookie| vcenter.wire.sessions.get(cookie)),
        now,
    }
}

/// Takes a collector out of its session for the call, because the scope contains that session.
pub(crate) fn with_collector<R>(
    vcenter: &mut Vcenter,
    cookie: &str,
    number: u32,
    now: SimTime,
    act: impl FnOnce(&mut Collector, &Scope<'_>) -> R,
) -> Result<R, VimFault> {
    let session = vcenter.wire.sessions.get_mut(cookie).ok_or(VimFault::NotAuthenticated)?;
    let mut collector = session.collectors.remove(&number).ok_or(VimFault::NotFound)?;
    let result = act(&mut collector, &scope(vcenter, Some(cookie), now));
    if let Some(session) = vcenter.wire.sessions.get_mut(cookie) {
        session.collectors.insert(number, collector);
    }
    Ok(result)
}

/// The task that a method has started, from its answer.
pub(crate) fn started_task(reply: &Reply) -> Option<TaskId> {
    match reply {
        Reply::One(Value::Ref(reference)) => match MoRef::parse(reference.type_name, &reference.value)? {
            MoRef::Task(id) => Some(id),
            _ => None,
        },
        _ => None,
    }
}

fn asks_service_instance_only(call: &Call) -> bool {
    let mut objects = call
        .arguments
        .children_named("specSet")
        .flat_map(|spec| spec.children_named("objectSet"))
        .map(|object| object.child("obj").and_then(|object| object.reference_type.as_deref()))
        .peekable();
    objects.peek().is_some() && objects.all(|type_name| type_name == Some("ServiceInstance"))
}

fn filter_specs(call: &Call, session_key: &str) -> Result<Vec<FilterSpec>, VimFault> {
    let specs = call.arguments.children_named("specSet").map(|spec| FilterSpec::read(spec, session_key));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    if (1..=SPECS_MAX).contains(&specs.len()) { Ok(specs) } else { Err(wrong("specSet")) }
}

fn wrong(property: &str) -> VimFault {
    VimFault::InvalidArgument { property: property.to_owned() }
}

fn task_reply(task: Result<TaskId, VimFault>) -> Result<Reply, VimFault> {
    task.map(|task| Reply::One(Value::Ref(task.into())))
}

type OnVm = fn(&mut Vcenter, VmId, &Actor, SimTime) -> Result<TaskId, VimFault>;
type OnHost = fn(&mut Vcenter, HostId, &Actor, SimTime) -> Result<TaskId, VimFault>;

impl Request<'_> {
    pub fn scope(&self) -> Scope<'_> {
        scope(self.vcenter, Some(&self.cookie), self.now)
    }

    pub fn session_mut(&mut self) -> Result<&mut Session, VimFault> {
        self.vcenter.wire.sessions.get_mut(&self.cookie).ok_or(VimFault::NotAuthenticated)
    }

    fn argument(&self, name: &str) -> Result<&Element, VimFault> {
        self.call.arguments.child(name).ok_or_else(|| wrong(name))
    }

    fn text(&self, name: &str) -> Result<&str, VimFault> {
        self.argument(name).map(|element| element.text.trim())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<T, VimFault> {
        self.text(name)?.parse().map_err(|_| wrong(name))
    }

    /// Resolves a reference in the arguments to an existing object.
    fn target(&self, element: &Element) -> Result<Target, VimFault> {
        let target = Target::read(element, &self.session_key)?;
        let scope = self.scope();
        if scope.exists(target) { Ok(target) } else { Err(not_found(&scope, target)) }
    }

    fn object(&self, element: &Element) -> Result<MoRef, VimFault> {
        match self.target(element)? {
            Target::Inventory(object) => Ok(object),
            _ => Err(wrong(&element.name)),
        }
    }

    fn host_at(&self, element: &Element) -> Result<HostId, VimFault> {
        match self.object(element)? {
            MoRef::Host(id) => Ok(id),
            _ => Err(wrong(&element.name)),
        }
    }

    fn vm_at(&self, element: &Element) -> Result<VmId, VimFault> {
        match self.object(element)? {
            MoRef::Vm(id) => Ok(id),
            _ => Err(wrong(&element.name)),
        }
    }

    fn pool_at(&self, element: &Element) -> Result<PoolId, VimFault> {
        match self.object(element)? {
            MoRef::Pool(id) => Ok(id),
            _ => Err(wrong(&element.name)),
        }
    }

    /// The fault for a method that the object's type does not have.
    fn no_such_method<T>(&self) -> Result<T, VimFault> {
        Err(VimFault::MethodNotFound(self.call.method.clone()))
    }

    fn this_vm(&self) -> Result<VmId, VimFault> {
        match self.this {
            Target::Inventory(MoRef::Vm(id)) => Ok(id),
            _ => self.no_such_method(),
        }
    }

    fn this_host(&self) -> Result<HostId, VimFault> {
        match self.this {
            Target::Inventory(MoRef::Host(id)) => Ok(id),
            _ => self.no_such_method(),
        }
    }

    fn this_cluster(&self) -> Result<ClusterId, VimFault> {
        match self.this {
            Target::Inventory(MoRef::Cluster(id)) => Ok(id),
            _ => self.no_such_method(),
        }
    }

    fn this_folder(&self) -> Result<FolderId, VimFault> {
        match self.this {
            Target::Inventory(MoRef::Folder(id)) => Ok(id),
            _ => self.no_such_method(),
        }
    }

    fn this_service(&self, service: Singleton) -> Result<(), VimFault> {
        if self.this == Target::Singleton(service) { Ok(()) } else { self.no_such_method() }
    }

    fn this_client(&self, kinds: &[ClientObject]) -> Result<u32, VimFault> {
        match self.this {
            Target::Client(kind, number) if kinds.contains(&kind) => Ok(number),
            _ => self.no_such_method(),
        }
    }

    /// The number of the target property collector; the session's default one is 0.
    pub fn collector_number(&self) -> Result<u32, VimFault> {
        match self.this {
            Target::Singleton(Singleton::PropertyCollector) => Ok(0),
            Target::Client(ClientObject::PropertyCollector, number) => Ok(number),
            _ => self.no_such_method(),
        }
    }

    fn vm_task(&mut self, start: OnVm) -> Result<Reply, VimFault> {
        let vm = self.this_vm()?;
        task_reply(start(self.vcenter, vm, &self.actor, self.now))
    }

    fn host_task(&mut self, start: OnHost) -> Result<Reply, VimFault> {
        let host = self.this_host()?;
        task_reply(start(self.vcenter, host, &self.actor, self.now))
    }

    /// A reference to a new object of the session.
    fn made(&self, kind: ClientObject, number: u32) -> Reply {
        Reply::One(Value::Ref(Target::Client(kind, number).reference(&self.session_key)))
    }
}
