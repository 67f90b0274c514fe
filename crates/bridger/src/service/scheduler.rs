//! Settings of `bridger scheduler` and `bridger explain`: connections, profiles, lifting.
//!
//! In: flags, and a KubeSchedulerConfiguration file as for kube-scheduler. Out: checked settings. An unsupported field
//! is an error that names it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use scheduler::{Configuration, DEFAULT_SCHEDULER_NAME, plugins};
use serde_json::Value;

use super::extender::LiftArguments;
use super::leading::ElectionArguments;
use super::policy::PolicyArguments;
use super::settings::{ConnectionArguments, ReachArguments, RunArguments, RunSettings, Switch};
use crate::failure::Failure;
use crate::files;

/// Differs from the port of `bridger run`, so that both can run on one machine.
pub const PORT_DEFAULT: u16 = 12_347;

/// The flags of profiles and physical hosts.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProfileArguments {
    /// KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1); see docs/scheduler.md. Default: all default plugins
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The schedulerName of the pods to schedule; with --config, the only profile to run [default: bridger]
    #[arg(long, value_name = "NAME")]
    pub scheduler_name: Option<String>,
    /// Label key for the physical host [default: alpha.cna.vmware.com/host]
    #[arg(long, value_name = "KEY")]
    pub host_label: Option<String>,
    #[command(flatten)]
    pub lifting: LiftArguments,
}

impl ProfileArguments {
    /// Reads and checks the profiles.
    pub fn configuration(&self) -> Result<Configuration, Failure> {
        let registry = plugins::standard();
        let wrong = |error: scheduler::ConfigError| match &self.config {
            Some(path) => Failure::configuration(
                format!("configuration file {}: {error}", path.display()),
                "docs/scheduler.md lists what is supported",
            ),
            None => Failure::configuration(error.to_string(), "check --scheduler-name"),
        };
        let Some(path) = &self.config else {
            let name = self.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER_NAME);
            return Configuration::with_name(name, &registry).map_err(wrong);
        };
        let mut document = read(path)?;
        if let Some(name) = &self.scheduler_name {
            keep_profile(&mut document, name)
                .map_err(|known| Failure::configuration(format!("there is no profile {name}"), known))?;
        }
        Configuration::from_value(&document, &registry).map_err(wrong)
    }

    /// The connections and lifting. `lookup` returns an environment variable.
    pub fn settings(
        &self,
        reach: &ReachArguments,
        election: &ElectionArguments,
        listen: Option<IpAddr>,
        port: Option<u16>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<RunSettings, Failure> {
        let arguments = RunArguments {
            connection: ConnectionArguments { reach: reach.clone(), ..ConnectionArguments::default() },
            policy: PolicyArguments { host_label: self.host_label.clone(), ..PolicyArguments::default() },
            lifting: self.lifting.clone(),
            labels: Some(Switch::Off),
            rules: Some(Switch::Off),
            scheduling: Some(Switch::On),
            election: election.clone(),
            listen,
            port: Some(port.unwrap_or(PORT_DEFAULT)),
            ..RunArguments::default()
        };
        let settings = RunSettings::resolve(&arguments, lookup)?;
        Ok(RunSettings { scheduling: Some(self.clone()), ..settings })
    }
}

/// Removes all profiles but the named one; the error lists the available names. If the only profile has no name, it
/// gets this one.
fn keep_profile(document: &mut Value, name: &str) -> Result<(), String> {
    let Some(profiles) = document.get_mut("profiles").and_then(Value::as_array_mut) else {
        document["profiles"] = serde_json::json!([{ "schedulerName": name }]);
        return Ok(());
    };
    if let [profile] = profiles.as_mut_slice()
        && profile.get("schedulerName").is_none()
        && profile.is_object()
    {
        profile["schedulerName"] = name.into();
        return Ok(());
    }
    let names: Vec<String> =
        profiles.iter().filter_map(|profile| profile["schedulerName"].as_str().map(str::to_owned)).collect();
    if !names.iter().any(|known| known == name) {
        return Err(format!("choose one of: {}", names.join(", ")));
    }
    profiles.retain(|profile| profile["schedulerName"] == name);
    Ok(())
}

fn read(path: &Path) -> Result<Value, Failure> {
    let text = files::read_text(path, files::CONFIGURATION)?;
    parse(&text).map_err(|why| {
        let what = format!("cannot use configuration file {}: {why}", path.display());
        Failure::configuration(what, "docs/scheduler.md shows an example")
    })
}

fn parse(text: &str) -> Result<Value, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| files::cannot_parse(&error))?;
    if value.is_object() { Ok(value) } else { Err("it is not a KubeSchedulerConfiguration".to_owned()) }
}

/// Whether a configuration is accepted, with the standard plugins.
pub(crate) fn check(text: &str) -> Result<(), String> {
    let accepted = Configuration::from_value(&parse(text)?, &plugins::standard());
    accepted.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(text: &str, name: Option<&str>) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, text).expect("it is written");
        let arguments = ProfileArguments {
            config: Some(path),
            scheduler_name: name.map(str::to_owned),
            ..ProfileArguments::default()
        };
        let configuration = arguments.configuration().map_err(|failure| failure.to_string())?;
        Ok(configuration.profiles().iter().map(|profile| profile.name().to_owned()).collect())
    }

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    #[test]
    fn profiles_come_from_the_file_or_the_default() {
        let default = ProfileArguments::default().configuration().map_err(|failure| failure.to_string());
        assert_eq!(default.expect("defaults").profiles()[0].name(), "bridger");
        let two = format!("{HEAD}profiles:\n- schedulerName: a\n- schedulerName: b\n");
        assert_eq!(configured(&two, None).expect("two"), ["a", "b"]);
        assert_eq!(configured(&two, Some("b")).expect("one"), ["b"]);
        assert_eq!(configured(HEAD, Some("c")).expect("renamed"), ["c"]);
        assert!(configured(&two, Some("c")).expect_err("none of it").contains("choose one of: a, b"));
    }

    #[test]
    fn errors_name_the_problem() {
        for (text, expected) in [
            ("a: [", "cannot parse"),
            ("- a", "not a KubeSchedulerConfiguration"),
            (&format!("{HEAD}extenders:\n- urlPrefix: http://x\n"), "extenders"),
            (&format!("{HEAD}profiles:\n- schedulerName: a\n- schedulerName: a\n"), "used twice"),
        ] {
            let message = configured(text, None).expect_err(expected);
            assert!(message.contains(expected), "{message}");
        }
    }
}
