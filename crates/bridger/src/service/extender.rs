//! Settings of the extender and of lifting: flags, else the configuration file, else defaults.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use model::World;
use model::affinity::{LiftMode, LiftSettings};
use serde::Deserialize;
use server::TlsFiles;

use super::settings::{Switch, checked_label_key, in_file};
use crate::failure::Failure;

/// The flags of the extender.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ExtenderArguments {
    /// Serve kube-scheduler's extender calls (filter, prioritize, bind, preempt) on this port. Default: no extender
    #[arg(long, value_name = "PORT")]
    pub extender_port: Option<u16>,
    /// Address of the extender; outside loopback it needs --client-ca-file [default: that of --listen]
    #[arg(long, value_name = "ADDRESS")]
    pub extender_listen: Option<IpAddr>,
    /// schedulerName of the pods that the extender binds; repeatable [default: default-scheduler]
    #[arg(long, value_name = "NAME")]
    pub extender_scheduler_name: Vec<String>,
    /// Obsolete, use --extender-port: `on` serves the extender on --port, `off` turns it off
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub extender: Option<Switch>,
    /// PEM file of the server certificate; enables HTTPS on --port and --extender-port. Reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// PEM file of the authorities that must have signed kube-scheduler's client certificate; health and metrics stay
    /// open
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub client_ca_file: Option<PathBuf>,
    /// Common name that kube-scheduler's client certificate may have; repeatable [default: system:kube-scheduler]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub client_allowed_names: Vec<String>,
    /// Share of the physical host's load in a node's score, in percent [default: 0]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub host_load_weight: Option<u8>,
}

/// The flags of lifting: anti-affinity between nodes that also holds between physical hosts.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LiftArguments {
    /// Topology key whose anti-affinity terms also hold between physical hosts (lifting); repeatable; `none` turns it
    /// off [default: kubernetes.io/hostname]
    #[arg(long, value_name = "KEY")]
    pub lift: Vec<String>,
    /// If there are too few hosts: leave the pod pending, or apply the term between nodes only, with a warning
    /// [default: strict]
    #[arg(long, value_enum, value_name = "MODE")]
    pub lift_mode: Option<LiftModeName>,
    /// Whether the scheduler's preemption may evict pods of lower priority on other nodes of a physical host, if lifted
    /// anti-affinity keeps a pod off that host because of them [default: off]
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub host_preemption: Option<Switch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LiftModeName {
    Strict,
    Relaxed,
}

/// The same in the configuration file.
#[derive(Clone, Debug, Default)]
pub struct ExtenderEntries {
    pub extender: Option<Switch>,
    pub extender_port: Option<u16>,
    pub extender_listen: Option<IpAddr>,
    pub extender_scheduler_names: Vec<String>,
    pub client_allowed_names: Vec<String>,
    pub tls_cert_file: Option<PathBuf>,
    pub tls_key_file: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    pub host_load_weight: Option<u8>,
    pub lift: Vec<String>,
    pub lift_mode: Option<LiftModeName>,
    pub host_preemption: Option<Switch>,
}

/// The name in kube-scheduler's own certificate, as kubeadm and most other installers make it.
const CLIENT_NAME_DEFAULT: &str = "system:kube-scheduler";

/// Where the extender listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtenderAddress {
    Off,
    /// With health and metrics: the obsolete `--extender on`.
    Shared,
    Own(SocketAddr),
}

/// The checked settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderChoice {
    pub address: ExtenderAddress,
    pub scheduler_names: Vec<String>,
    pub tls: Option<TlsFiles>,
    pub host_load_percent: u8,
}

impl ExtenderChoice {
    /// `listen`: the address of health and metrics.
    pub fn resolve(
        flags: &ExtenderArguments,
        file: &ExtenderEntries,
        listen: IpAddr,
    ) -> Result<ExtenderChoice, Failure> {
        let certificate = flags.tls_cert_file.clone().or(file.tls_cert_file.clone());
        let key = flags.tls_key_file.clone().or(file.tls_key_file.clone());
        let client_ca = flags.client_ca_file.clone().or(file.client_ca_file.clone());
        let client_names = or_default(&flags.client_allowed_names, &file.client_allowed_names, CLIENT_NAME_DEFAULT);
        let tls = match (certificate, key, client_ca) {
            (Some(certificate), Some(key), client_ca) => Some(TlsFiles { certificate, key, client_ca, client_names }),
            (None, None, None) => None,
            _ => {
                return Err(Failure::configuration(
                    "incomplete TLS settings",
                    "HTTPS needs --tls-cert-file and --tls-key-file; --client-ca-file needs both",
                ));
            }
        };
        let host_load_percent = flags.host_load_weight.or(file.host_load_weight).unwrap_or(0);
        if host_load_percent > 100 {
            return Err(Failure::configuration(
                format!("hostLoadWeight is {host_load_percent}"),
                "use a percentage from 0 to 100",
            ));
        }
        let own = flags.extender_listen.or(file.extender_listen).unwrap_or(listen);
        let address = match (flags.extender.or(file.extender), flags.extender_port.or(file.extender_port)) {
            (Some(Switch::Off), _) | (None, None) => ExtenderAddress::Off,
            (Some(Switch::On), None) => ExtenderAddress::Shared,
            (_, Some(port)) => ExtenderAddress::Own(SocketAddr::new(own, port)),
        };
        let exposed = match address {
            ExtenderAddress::Off => None,
            ExtenderAddress::Shared => Some(listen),
            ExtenderAddress::Own(address) => Some(address.ip()),
        };
        let exposed = exposed.filter(|address| !address.to_canonical().is_loopback());
        let verifies_clients = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if let Some(address) = exposed.filter(|_| !verifies_clients) {
            return Err(Failure::configuration(
                format!("the extender would listen on {address}, and everyone who reaches it could bind pods"),
                "use --tls-cert-file, --tls-key-file and --client-ca-file, or --extender-listen 127.0.0.1",
            ));
        }
        let scheduler_names = or_default(
            &flags.extender_scheduler_name,
            &file.extender_scheduler_names,
            engine::extender::DEFAULT_SCHEDULER,
        );
        Ok(ExtenderChoice { address, scheduler_names, tls, host_load_percent })
    }

    pub fn is_on(&self) -> bool {
        self.address != ExtenderAddress::Off
    }

    /// A pod belongs to one scheduler: the extender must not bind those that this process schedules itself.
    pub fn leaves_pods_to<'a>(&self, mut profiles: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        let is_shared = |name: &&str| self.is_on() && self.scheduler_names.iter().any(|own| own == name);
        match profiles.find(is_shared) {
            None => Ok(()),
            Some(name) => Err(Failure::configuration(
                format!("the extender would bind the pods with schedulerName {name}, which --scheduling on places too"),
                "use different names in --extender-scheduler-name and for the profiles of --scheduler-config",
            )),
        }
    }
}

/// The flags, else the file, else one default.
fn or_default(flags: &[String], file: &[String], default: &str) -> Vec<String> {
    match (flags, file) {
        ([], []) => vec![default.to_owned()],
        ([], file) => file.to_vec(),
        (flags, _) => flags.to_vec(),
    }
}

/// The finding of [`unknown_lifted_keys`].
pub const UNKNOWN_LIFTED_KEY: &str = "unknownLiftedKey";

/// A line for each lifted key that no node has.
pub fn unknown_lifted_keys(world: &World) -> Vec<String> {
    let line = |key| format!("no node has the label {key:?}: anti-affinity on other keys is not lifted; check --lift");
    model::labels::unknown_lifted_keys(world).into_iter().map(line).collect()
}

/// `host_key`: the node label with the physical host.
pub fn lifting(flags: &LiftArguments, file: &ExtenderEntries, host_key: &str) -> Result<LiftSettings, Failure> {
    let (name, keys) = match flags.lift.as_slice() {
        [] => (in_file("lift"), &file.lift),
        _ => ("--lift".to_owned(), &flags.lift),
    };
    let defaults = LiftSettings::default();
    let lifted_keys: BTreeSet<String> = match keys.iter().any(|key| key == "none") {
        true if keys.len() > 1 => {
            let both = format!("{name}: none cannot be combined with a key");
            return Err(Failure::configuration(both, "use one of them"));
        }
        true => BTreeSet::new(),
        false if keys.is_empty() => defaults.lifted_keys,
        false => {
            keys.iter().try_for_each(|key| checked_label_key(&name, key))?;
            keys.iter().cloned().collect()
        }
    };
    let mode = match flags.lift_mode.or(file.lift_mode).unwrap_or(LiftModeName::Strict) {
        LiftModeName::Strict => LiftMode::Strict,
        LiftModeName::Relaxed => LiftMode::Relaxed,
    };
    let host_preemption = flags.host_preemption.or(file.host_preemption) == Some(Switch::On);
    Ok(LiftSettings { host_key: host_key.to_owned(), lifted_keys, mode, host_preemption })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

    fn on(port: u16) -> ExtenderEntries {
        ExtenderEntries { extender_port: Some(port), ..Default::default() }
    }

    #[test]
    fn flags_override_the_file_and_incomplete_tls_settings_are_rejected() {
        let none = ExtenderArguments::default();
        let resolve =
            |flags: &ExtenderArguments, file: &ExtenderEntries| ExtenderChoice::resolve(flags, file, LOOPBACK);
        let off = ExtenderChoice {
            address: ExtenderAddress::Off,
            scheduler_names: vec!["default-scheduler".to_owned()],
            tls: None,
            host_load_percent: 0,
        };
        assert_eq!(resolve(&none, &ExtenderEntries::default()).expect("defaults"), off);
        let file = ExtenderEntries { host_load_weight: Some(20), ..on(7) };
        let choice = resolve(&none, &file).expect("the file's");
        assert_eq!(
            (choice.address, choice.host_load_percent),
            (ExtenderAddress::Own(SocketAddr::new(LOOPBACK, 7)), 20)
        );
        let flags = ExtenderArguments { extender_port: Some(8), ..Default::default() };
        assert_eq!(
            resolve(&flags, &file).expect("the flag's").address,
            ExtenderAddress::Own(SocketAddr::new(LOOPBACK, 8))
        );
        let half = ExtenderEntries { tls_cert_file: Some("c".into()), ..Default::default() };
        assert!(resolve(&none, &half).is_err());
        let much = ExtenderEntries { host_load_weight: Some(101), ..Default::default() };
        assert!(resolve(&none, &much).is_err());
    }

    #[test]
    fn the_extender_binds_no_pods_that_the_same_process_schedules() {
        let resolve = |extender_port, names: &[&str]| {
            let extender_scheduler_name = names.iter().map(|&name| name.to_owned()).collect();
            let flags = ExtenderArguments { extender_port, extender_scheduler_name, ..Default::default() };
            ExtenderChoice::resolve(&flags, &ExtenderEntries::default(), LOOPBACK).expect("on loopback")
        };
        for (port, names, profiles, expected) in [
            (Some(1), &[][..], &["bridger"][..], true),
            (Some(1), &[], &[], true),
            (Some(1), &[], &["bridger", "default-scheduler"], false),
            (Some(1), &["one", "bridger"], &["bridger"], false),
            (None, &["bridger"], &["bridger"], true),
        ] {
            let leaves = resolve(port, names).leaves_pods_to(profiles.iter().copied());
            assert_eq!(leaves.is_ok(), expected, "{port:?} {names:?} {profiles:?}");
        }
    }

    #[test]
    fn number_7_the_extender_is_off_without_a_port_and_the_obsolete_switch_still_works() {
        let resolve = |extender, extender_port, listen| {
            let flags = ExtenderArguments { extender, extender_port, ..Default::default() };
            ExtenderChoice::resolve(&flags, &ExtenderEntries::default(), listen).map(|choice| choice.address)
        };
        let own = ExtenderAddress::Own(SocketAddr::new(LOOPBACK, 1));
        for (switch, port, expected) in [
            (None, None, ExtenderAddress::Off),
            (None, Some(1), own),
            (Some(Switch::On), None, ExtenderAddress::Shared),
            (Some(Switch::On), Some(1), own),
            (Some(Switch::Off), Some(1), ExtenderAddress::Off),
        ] {
            assert_eq!(resolve(switch, port, LOOPBACK).expect("on loopback"), expected, "{switch:?} {port:?}");
        }
        assert!(resolve(Some(Switch::On), None, ANY).is_err());
    }

    #[test]
    fn number_7_outside_loopback_the_extender_needs_client_certificates() {
        let tls = |client_ca: bool| ExtenderEntries {
            tls_cert_file: Some("c".into()),
            tls_key_file: Some("k".into()),
            client_ca_file: client_ca.then(|| "ca".into()),
            ..on(1)
        };
        let resolve = |file: &ExtenderEntries, listen: IpAddr, own: Option<IpAddr>| {
            let flags = ExtenderArguments { extender_listen: own, ..Default::default() };
            ExtenderChoice::resolve(&flags, file, listen).is_ok()
        };
        let mapped = "::ffff:127.0.0.1".parse().expect("an address");
        for (file, listen, own, expected) in [
            (on(1), LOOPBACK, None, true),
            (on(1), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), None, true),
            (on(1), mapped, None, true),
            (on(1), ANY, None, false),
            (tls(false), ANY, None, false),
            (tls(true), ANY, None, true),
            (on(1), ANY, Some(LOOPBACK), true),
            (on(1), LOOPBACK, Some(ANY), false),
            (ExtenderEntries::default(), ANY, None, true),
        ] {
            assert_eq!(resolve(&file, listen, own), expected, "{file:?} on {listen}, {own:?}");
        }
        let named = ExtenderEntries { client_allowed_names: vec!["mine".to_owned()], ..tls(true) };
        let names = |file: &ExtenderEntries| {
            let choice = ExtenderChoice::resolve(&ExtenderArguments::default(), file, ANY).expect("mTLS");
            choice.tls.expect("mTLS").client_names
        };
        assert_eq!(names(&tls(true)), ["system:kube-scheduler"]);
        assert_eq!(names(&named), ["mine"]);
    }

    #[test]
    fn lift_takes_keys_or_none_and_has_a_default() {
        let keys = |lift: &[&str]| {
            let lift = lift.iter().map(|&key| key.to_owned()).collect();
            let flags = LiftArguments { lift, ..LiftArguments::default() };
            lifting(&flags, &ExtenderEntries::default(), "host").map(|settings| settings.lifted_keys)
        };
        assert_eq!(keys(&[]).expect("defaults"), LiftSettings::default().lifted_keys);
        assert!(keys(&["none"]).expect("off").is_empty());
        assert_eq!(keys(&["a", "b"]).expect("two").len(), 2);
        assert!(keys(&["none", "a"]).is_err());
    }

    #[test]
    fn preemption_across_the_nodes_of_a_host_is_off_unless_a_flag_or_the_file_turns_it_on() {
        use Switch::{Off, On};
        for (flag, file, expected) in
            [(None, None, false), (Some(On), None, true), (None, Some(On), true), (Some(Off), Some(On), false)]
        {
            let flags = LiftArguments { host_preemption: flag, ..LiftArguments::default() };
            let entries = ExtenderEntries { host_preemption: file, ..ExtenderEntries::default() };
            let settings = lifting(&flags, &entries, "host").expect("valid");
            assert_eq!(settings.host_preemption, expected, "{flag:?} {file:?}");
        }
    }

    #[test]
    fn number_6_a_lifted_key_is_a_label_key_and_the_error_names_the_setting() {
        let long = "k".repeat(64);
        for wrong in ["", " ", "two words", "a/b/c", "/name", "domain/", "Upper.org/name", "-name", long.as_str()] {
            let lift = vec!["kubernetes.io/hostname".to_owned(), wrong.to_owned()];
            let flags = LiftArguments { lift, ..LiftArguments::default() };
            let message = lifting(&flags, &ExtenderEntries::default(), "host").unwrap_err().to_string();
            assert!(message.contains("--lift: ") && message.contains(&format!("{wrong:?}")), "{message}");
            let file = ExtenderEntries { lift: vec![wrong.to_owned()], ..ExtenderEntries::default() };
            let message = lifting(&LiftArguments::default(), &file, "host").unwrap_err().to_string();
            assert!(message.contains("lift in the configuration file: "), "{message}");
        }
        let file = ExtenderEntries { lift: vec!["none".to_owned(), "a".to_owned()], ..ExtenderEntries::default() };
        assert!(lifting(&LiftArguments::default(), &file, "host").is_err());
        let file = ExtenderEntries { lift: vec!["nonsense".to_owned()], ..ExtenderEntries::default() };
        assert_eq!(lifting(&LiftArguments::default(), &file, "host").expect("a key").lifted_keys.len(), 1);
    }
}
