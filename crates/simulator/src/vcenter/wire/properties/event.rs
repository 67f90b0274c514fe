//! Events as data objects.

use super::Scope;
use crate::vcenter::inventory::{Event, HostId};
use crate::vcenter::wire::value::Value;

/// The event types that this vCenter posts, and the category that `govc events` shows.
pub(super) const EVENT_TYPES: &[(&str, &str)] = &[
    ("ClusterReconfiguredEvent", "info"),
    ("DrsVmMigratedEvent", "info"),
    ("DrsVmPoweredOnEvent", "info"),
    ("EnteredMaintenanceModeEvent", "info"),
    ("EnteringMaintenanceModeEvent", "info"),
    ("ExitMaintenanceModeEvent", "info"),
    ("GeneralEvent", "info"),
    ("HostConnectedEvent", "info"),
    ("HostConnectionLostEvent", "error"),
    ("HostDisconnectedEvent", "info"),
    ("NotEnoughResourcesToStartVmEvent", "warning"),
    ("UserLoginSessionEvent", "info"),
    ("UserLogoutSessionEvent", "info"),
    ("VmBeingHotMigratedEvent", "info"),
    ("VmCreatedEvent", "info"),
    ("VmFailedMigrateEvent", "error"),
    ("VmMigratedEvent", "info"),
    ("VmPoweredOffEvent", "info"),
    ("VmPoweredOnEvent", "info"),
    ("VmReconfiguredEvent", "info"),
    ("VmRemovedEvent", "info"),
    ("VmRenamedEvent", "info"),
    ("VmResettingEvent", "info"),
    ("VmRestartedOnAlternateHostEvent", "info"),
    ("VmSuspendedEvent", "info"),
];

pub(crate) fn event_value(scope: &Scope<'_>, event: &Event) -> Value {
    let inventory = scope.inventory;
    let host_argument = |id: HostId| {
        let name = inventory.host(id).map_or_else(String::new, |host| host.name.clone());
        Value::object("HostEventArgument", vec![("name", Value::string(name)), ("host", Value::Ref(id.into()))])
    };
    let datacenter = |id| {
        let name = inventory.datacenter(id).map_or_else(String::new, |datacenter| datacenter.name.clone());
        let fields = vec![("name", Value::string(name)), ("datacenter", Value::Ref(id.into()))];
        Value::object("DatacenterEventArgument", fields)
    };
    let cluster = |id| {
        let name = inventory.cluster(id).map_or_else(String::new, |cluster| cluster.name.clone());
        let fields = vec![("name", Value::string(name)), ("computeResource", Value::Ref(id.into()))];
        Value::object("ComputeResourceEventArgument", fields)
    };
    let vm = |id| {
        let name = inventory.vm(id).map_or_else(String::new, |vm| vm.name.clone());
        Value::object("VmEventArgument", vec![("name", Value::string(name)), ("vm", Value::Ref(id.into()))])
    };
    let mut fields = vec![
        ("key", Value::int(event.key)),
        ("chainId", Value::int(event.key)),
        ("createdTime", Value::time(event.created_at)),
        ("userName", Value::string(&event.user)),
        ("datacenter", Value::or_unset(event.datacenter, datacenter)),
        ("computeResource", Value::or_unset(event.cluster, cluster)),
        ("host", Value::or_unset(event.host, host_argument)),
        ("vm", Value::or_unset(event.vm, vm)),
        ("fullFormattedMessage", Value::string(&event.message)),
    ];
    if event.vm.is_some() {
        fields.push(("template", Value::bool(false)));
    }
    if let Some(source) = event.source_host {
        fields.push(("sourceHost", host_argument(source)));
    }
    if event.type_name == "GeneralEvent" {
        fields.push(("message", Value::string(&event.message)));
    }
    Value::object(event.type_name, fields)
}
