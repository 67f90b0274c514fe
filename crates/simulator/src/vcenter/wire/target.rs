//! The objects that a managed object reference on the wire can refer to.
//!
//! There are three types: objects of the inventory (`vm-42`), the service's singletons (`SessionManager`), and objects
//! that a client created in its session (views, filters, collectors), written `session[<session key>]<number>`.
//!
//! Invariant: a client's objects are visible only to its own session.

use super::value::Reference;
use super::xml::Element;
use crate::vcenter::inventory::MoRef;
use crate::vcenter::vim_fault::VimFault;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Inventory(MoRef),
    Singleton(Singleton),
    Client(ClientObject, u32),
}

macro_rules! wire_types {
    ($name:ident { $($variant:ident,)* }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($variant,)* }

        impl $name {
            #[must_use]
            pub fn type_name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)* }
            }

            pub const ALL: &[$name] = &[$($name::$variant,)*];
        }
    };
}

wire_types! { Singleton {
    ServiceInstance,
    PropertyCollector,
    ViewManager,
    SessionManager,
    TaskManager,
    EventManager,
    SearchIndex,
    OptionManager,
    AuthorizationManager,
} }

wire_types! { ClientObject {
    PropertyCollector,
    PropertyFilter,
    ContainerView,
    ListView,
    EventHistoryCollector,
    TaskHistoryCollector,
} }

impl Singleton {
    #[must_use]
    pub fn value(self) -> &'static str {
        match self {
            Singleton::PropertyCollector => "propertyCollector",
            Singleton::OptionManager => "VpxSettings",
            other => other.type_name(),
        }
    }
}

impl Target {
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Target::Inventory(object) => object.type_name(),
            Target::Singleton(singleton) => singleton.type_name(),
            Target::Client(kind, _) => kind.type_name(),
        }
    }

    /// A reference that the session with this key can use.
    #[must_use]
    pub fn reference(&self, session_key: &str) -> Reference {
        let value = match self {
            Target::Inventory(object) => object.to_string(),
            Target::Singleton(singleton) => singleton.value().to_owned(),
            Target::Client(_, number) => format!("session[{session_key}]{number}"),
        };
        Reference { type_name: self.type_name(), value }
    }

    /// Parses the type and value from the wire; the object need not exist.
    #[must_use]
    pub fn parse(type_name: &str, value: &str, session_key: &str) -> Option<Target> {
        if let Some(object) = MoRef::parse(type_name, value) {
            return Some(Target::Inventory(object));
        }
        let is_this = |it: &&Singleton| it.type_name() == type_name && it.value() == value;
        if let Some(singleton) = Singleton::ALL.iter().find(is_this) {
            return Some(Target::Singleton(*singleton));
        }
        let number = value.strip_prefix("session[")?.strip_prefix(session_key)?.strip_prefix(']')?.parse().ok()?;
        let kind = ClientObject::ALL.iter().find(|kind| kind.type_name() == type_name)?;
        Some(Target::Client(*kind, number))
    }

    /// Parses an element that is a reference.
    pub fn read(element: &Element, session_key: &str) -> Result<Target, VimFault> {
        let value = element.text.trim();
        let type_name = element.reference_type.as_deref().unwrap_or_default();
        Target::parse(type_name, value, session_key)
            .ok_or_else(|| VimFault::UnknownObject { type_name: type_name.to_owned(), value: value.to_owned() })
    }
}

impl From<MoRef> for Reference {
    fn from(object: MoRef) -> Reference {
        Reference { type_name: object.type_name(), value: object.to_string() }
    }
}

impl From<MoRef> for Target {
    fn from(object: MoRef) -> Target {
        Target::Inventory(object)
    }
}

macro_rules! references_from_ids {
    ($($id:ident),*) => {
        $(impl From<crate::vcenter::inventory::$id> for Reference {
            fn from(id: crate::vcenter::inventory::$id) -> Reference { MoRef::from(id).into() }
        })*
    };
}
references_from_ids!(FolderId, DatacenterId, ClusterId, HostId, PoolId, VmId, TaskId, DatastoreId, NetworkId);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vcenter::inventory::VmId;

    #[test]
    fn references_are_valid_in_their_own_session_only() {
        for target in [
            Target::Inventory(MoRef::Vm(VmId(42))),
            Target::Singleton(Singleton::OptionManager),
            Target::Client(ClientObject::ListView, 7),
        ] {
            let reference = target.reference("key");
            assert_eq!(Target::parse(reference.type_name, &reference.value, "key"), Some(target));
        }
        let view = Target::Client(ClientObject::ListView, 7).reference("key");
        assert_eq!(Target::parse("ListView", &view.value, "other"), None);
        assert_eq!(Target::parse("ContainerView", "session[key]x", "key"), None);
    }
}
