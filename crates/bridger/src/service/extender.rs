//! What `bridger run` is told of the extender and of lifting: flags, else the configuration file, else defaults.

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
    /// Answer kube-scheduler: filter, prioritize, bind and preempt on --port [default: on]
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub extender: Option<Switch>,
    /// PEM file of the server's certificate; with it the port speaks HTTPS. Read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file of the certificate's key
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// PEM file of the authorities that kube-scheduler's certificate must come from; health and metrics stay open
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub client_ca_file: Option<PathBuf>,
    /// How much of a score the load of the physical host makes, in percent [default: 0]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub host_load_weight: Option<u8>,
}

/// The flags of lifting: anti-affinity between nodes taken to hold between physical hosts.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LiftArguments {
    /// Topology key whose anti-affinity terms hold between physical hosts; may be given several times; `none` turns
    /// lifting off [default: kubernetes.io/hostname]
    #[arg(long, value_name = "KEY")]
    pub lift: Vec<String>,
    /// Where there are too few hosts: let the pod wait, or fall back to nodes with a warning [default: strict]
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

/// Checked.
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
                    "a certificate, its key or a client authority is given without the rest",
                    "HTTPS needs --tls-cert-file and --tls-key-file; --client-ca-file needs both",
                ));
            }
        };
        let host_load_percent = flags.host_load_weight.or(file.host_load_weight).unwrap_or(0);
        if host_load_percent > 100 {
            return Err(Failure::configuration(
                format!("hostLoadWeight is {host_load_percent}"),
                "it is a share in percent: 0 to 100",
            ));
        }
        let on = flags.extender.or(file.extender).unwrap_or(Switch::On) == Switch::On;
        Ok(ExtenderChoice { on, tls, host_load_percent })
    }
}

/// `host_key`: the label that holds the physical host.
pub fn lifting(flags: &LiftArguments, file: &ExtenderEntries, host_key: &str) -> Result<LiftSettings, Failure> {
    let keys = if flags.lift.is_empty() { &file.lift } else { &flags.lift };
    let defaults = LiftSettings::default();
    let lifted_keys: BTreeSet<String> = match keys.iter().any(|key| key == "none") {
        true if keys.len() > 1 => {
            return Err(Failure::configuration("--lift none is given beside a key", "give either"));
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
    fn flags_win_and_halves_are_refused() {
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
    fn lifting_is_by_default_turned_off_by_none_and_by_key() {
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
