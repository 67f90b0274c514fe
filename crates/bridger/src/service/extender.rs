//! Settings of the extender and of lifting: flags, else the configuration file, else defaults.

use std::collections::BTreeSet;
use std::path::PathBuf;

use model::affinity::{LiftMode, LiftSettings};
use serde::Deserialize;
use server::TlsFiles;

use super::settings::Switch;
use crate::failure::Failure;

/// The flags of the extender.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ExtenderArguments {
    /// Serve kube-scheduler's extender calls (filter, prioritize, bind, preempt) on --port [default: on]
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub extender: Option<Switch>,
    /// PEM file of the server certificate; enables HTTPS on --port. Reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// PEM file of the authorities that must have signed kube-scheduler's client certificate; health and metrics stay
    /// open
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub client_ca_file: Option<PathBuf>,
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
    pub tls_cert_file: Option<PathBuf>,
    pub tls_key_file: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    pub host_load_weight: Option<u8>,
    pub lift: Vec<String>,
    pub lift_mode: Option<LiftModeName>,
}

/// The checked settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtenderChoice {
    pub on: bool,
    pub tls: Option<TlsFiles>,
    pub host_load_percent: u8,
}

impl ExtenderChoice {
    pub fn resolve(flags: &ExtenderArguments, file: &ExtenderEntries) -> Result<ExtenderChoice, Failure> {
        let certificate = flags.tls_cert_file.clone().or(file.tls_cert_file.clone());
        let key = flags.tls_key_file.clone().or(file.tls_key_file.clone());
        let client_ca = flags.client_ca_file.clone().or(file.client_ca_file.clone());
        let tls = match (certificate, key, client_ca) {
            (Some(certificate), Some(key), client_ca) => Some(TlsFiles { certificate, key, client_ca }),
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
        let on = flags.extender.or(file.extender).unwrap_or(Switch::On) == Switch::On;
        Ok(ExtenderChoice { on, tls, host_load_percent })
    }
}

/// `host_key`: the node label with the physical host.
pub fn lifting(flags: &LiftArguments, file: &ExtenderEntries, host_key: &str) -> Result<LiftSettings, Failure> {
    let keys = if flags.lift.is_empty() { &file.lift } else { &flags.lift };
    let defaults = LiftSettings::default();
    let lifted_keys: BTreeSet<String> = match keys.iter().any(|key| key == "none") {
        true if keys.len() > 1 => {
            return Err(Failure::configuration("--lift none cannot be combined with a key", "use one of them"));
        }
        true => BTreeSet::new(),
        false if keys.is_empty() => defaults.lifted_keys,
        false => keys.iter().cloned().collect(),
    };
    let mode = match flags.lift_mode.or(file.lift_mode).unwrap_or(LiftModeName::Strict) {
        LiftModeName::Strict => LiftMode::Strict,
        LiftModeName::Relaxed => LiftMode::Relaxed,
    };
    Ok(LiftSettings { host_key: host_key.to_owned(), lifted_keys, mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_override_the_file_and_incomplete_tls_settings_are_rejected() {
        let file = ExtenderEntries { extender: Some(Switch::Off), host_load_weight: Some(20), ..Default::default() };
        let none = ExtenderArguments::default();
        let choice = ExtenderChoice::resolve(&none, &ExtenderEntries::default()).expect("defaults");
        assert_eq!(choice, ExtenderChoice { on: true, tls: None, host_load_percent: 0 });
        let choice = ExtenderChoice::resolve(&none, &file).expect("the file's");
        assert_eq!(choice, ExtenderChoice { on: false, tls: None, host_load_percent: 20 });
        let flags = ExtenderArguments { extender: Some(Switch::On), ..Default::default() };
        assert!(ExtenderChoice::resolve(&flags, &file).expect("the flag's").on);
        let half = ExtenderEntries { tls_cert_file: Some("c".into()), ..Default::default() };
        assert!(ExtenderChoice::resolve(&none, &half).is_err());
        let much = ExtenderEntries { host_load_weight: Some(101), ..Default::default() };
        assert!(ExtenderChoice::resolve(&none, &much).is_err());
    }

    #[test]
    fn lift_takes_keys_or_none_and_has_a_default() {
        let keys = |lift: &[&str]| {
            let flags = LiftArguments { lift: lift.iter().map(|&key| key.to_owned()).collect(), lift_mode: None };
            lifting(&flags, &ExtenderEntries::default(), "host").map(|settings| settings.lifted_keys)
        };
        assert_eq!(keys(&[]).expect("defaults"), LiftSettings::default().lifted_keys);
        assert!(keys(&["none"]).expect("off").is_empty());
        assert_eq!(keys(&["a", "b"]).expect("two").len(), 2);
        assert!(keys(&["none", "a"]).is_err());
    }
}
