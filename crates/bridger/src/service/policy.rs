//! Settings of DRS rules and physical hosts: flags, else the configuration file, else defaults. `run`, `plan` and the
//! other commands share them, so that a plan shows what the service will do.

use std::time::Duration;

use drs::DrsSettings;
use model::affinity::LiftSettings;
use serde::Deserialize;

use crate::failure::Failure;

/// The flags of DRS rules.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Policy")]
pub struct PolicyArguments {
    /// Label key for the physical host [default: alpha.cna.vmware.com/host]
    #[arg(long, value_name = "KEY")]
    pub host_label: Option<String>,
    /// Number of hosts in a cluster that a new rule leaves free for maintenance and failures [default: 1]
    #[arg(long, value_name = "HOSTS")]
    pub reserve: Option<usize>,
    /// How long a rule stays after no pod requires it, for example 90s or 5m [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub removal_grace: Option<Duration>,
    /// Maximum number of Bridger's rules in one vSphere cluster [default: 1000]
    #[arg(long, value_name = "RULES")]
    pub rules_max: Option<usize>,
    /// Maximum number of these rules that pods of one namespace may cause [default: 100]
    #[arg(long, value_name = "RULES")]
    pub rules_per_namespace_max: Option<usize>,
    /// Which cross-namespace affinity terms become rules across namespaces: all, or only those of pods in namespaces
    /// with the label bridger.dev/rules: cluster (labelled) [default: all]
    #[arg(long, value_enum, value_name = "WHICH")]
    pub rules_across_namespaces: Option<AcrossChoice>,
    /// VM-Host rules for node affinity to physical hosts: off, should or must (only in namespaces with the label
    /// bridger.dev/rules: cluster) [default: should]
    #[arg(long, value_enum, value_name = "HOW")]
    pub pinning: Option<PinningChoice>,
    /// Allow deletion of more than half of the rules at once
    #[arg(long)]
    pub allow_mass_deletion: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PinningChoice {
    /// YAML tools write `off` as `false`.
    #[serde(alias = "false", alias = "no")]
    Off,
    Should,
    Must,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AcrossChoice {
    All,
    Labelled,
}

/// The same in the configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PolicyEntry {
    pub reserve: Option<usize>,
    pub removal_grace: Option<String>,
    pub rules_max: Option<usize>,
    pub rules_per_namespace_max: Option<usize>,
    pub rules_across_namespaces: Option<AcrossChoice>,
    pub pinning: Option<PinningChoice>,
    pub allow_mass_deletion: bool,
}

/// `clusters`: names of the vSphere clusters to write rules in; empty means all.
pub fn resolve(
    flags: &PolicyArguments,
    file: &PolicyEntry,
    lifting: &LiftSettings,
    clusters: &[String],
) -> Result<DrsSettings, Failure> {
    let defaults = DrsSettings::default();
    let grace_in_file = file.removal_grace.as_deref().map(duration).transpose().map_err(|error| {
        Failure::configuration(format!("removalGrace in the configuration file: {error}"), "use for example 90s or 5m")
    })?;
    let pinning = match flags.pinning.or(file.pinning) {
        None => defaults.pinning,
        Some(PinningChoice::Off) => drs::Pinning::Off,
        Some(PinningChoice::Should) => drs::Pinning::Should,
        Some(PinningChoice::Must) => drs::Pinning::Must,
    };
    let across_namespaces = match flags.rules_across_namespaces.or(file.rules_across_namespaces) {
        None => defaults.across_namespaces,
        Some(AcrossChoice::All) => drs::AcrossNamespaces::All,
        Some(AcrossChoice::Labelled) => drs::AcrossNamespaces::Labelled,
    };
    let per_namespace_max = flags.rules_per_namespace_max.or(file.rules_per_namespace_max);
    Ok(DrsSettings {
        host_key: lifting.host_key.clone(),
        lifted_keys: lifting.lifted_keys.iter().cloned().collect(),
        reserve_hosts: flags.reserve.or(file.reserve).unwrap_or(defaults.reserve_hosts),
        removal_grace: flags.removal_grace.or(grace_in_file).unwrap_or(defaults.removal_grace),
        rules_max: flags.rules_max.or(file.rules_max).unwrap_or(defaults.rules_max),
        rules_per_namespace_max: per_namespace_max.unwrap_or(defaults.rules_per_namespace_max),
        across_namespaces,
        allow_mass_deletion: flags.allow_mass_deletion || file.allow_mass_deletion,
        clusters: (!clusters.is_empty()).then(|| clusters.iter().cloned().collect()),
        pinning,
        ..defaults
    })
}

/// Parses a duration, for example 90s, 5m or 1h30m.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| format!("{text:?} is not a duration like 90s or 5m"))?;
    Duration::try_from(parsed).map_err(|_| format!("{text:?} is negative"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("5m"), Ok(Duration::from_secs(300)));
        assert!(duration("5").unwrap_err().contains("like 90s"));
        assert!(duration("-5m").unwrap_err().contains("negative"));
    }

    #[test]
    fn flags_override_the_file() {
        let flags = PolicyArguments { reserve: Some(2), ..PolicyArguments::default() };
        let file = PolicyEntry { reserve: Some(3), removal_grace: Some("1m".to_owned()), ..PolicyEntry::default() };
        let lifting = LiftSettings::default();
        let settings = resolve(&flags, &file, &lifting, &["a".to_owned()]).unwrap();
        assert_eq!((settings.reserve_hosts, settings.removal_grace), (2, Duration::from_secs(60)));
        assert_eq!(settings.clusters, Some(std::collections::BTreeSet::from(["a".to_owned()])));
        assert!(settings.lifted_keys.contains("kubernetes.io/hostname"));

        let file = PolicyEntry {
            rules_per_namespace_max: Some(5),
            rules_across_namespaces: Some(AcrossChoice::Labelled),
            ..PolicyEntry::default()
        };
        let flags = PolicyArguments { rules_per_namespace_max: Some(7), ..flags };
        let settings = resolve(&flags, &file, &lifting, &[]).unwrap();
        assert_eq!(settings.rules_per_namespace_max, 7);
        assert_eq!(settings.across_namespaces, drs::AcrossNamespaces::Labelled);

        let file = PolicyEntry { removal_grace: Some("soon".to_owned()), ..PolicyEntry::default() };
        assert!(resolve(&flags, &file, &lifting, &[]).unwrap_err().to_string().contains("soon"));
    }
}
