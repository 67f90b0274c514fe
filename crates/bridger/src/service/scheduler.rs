//! Settings of `bridger scheduler` and `bridger explain`: connections, profiles, lifting.
//!
//! In: flags, and a KubeSchedulerConfiguration file as for kube-scheduler. Out: checked settings. An error names the field
//! and its line; a setting that changes nothing is logged.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use scheduler::{Configuration, DEFAULT_SCHEDULER_NAME, PathStep, Profile, plugins};
use serde_json::{Value, json};

use super::extender::LiftArguments;
use super::leading::ElectionArguments;
use super::lines::line_of;
use super::policy::PolicyArguments;
use super::settings::{ConnectionArguments, ReachArguments, RunArguments, RunSettings, Switch};
use crate::failure::Failure;
use crate::files;
use crate::scheduler::PluginRegistry;

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
    /// Of `bridger run`, which has its own connection to the API server.
    #[arg(skip)]
    pub(super) is_part_of_run: bool,
    #[arg(skip)]
    pub(super) text: FileText,
}

/// The text of the configuration file, read once: the file may be a pipe. Never shown: it may contain keys.
#[derive(Clone, Default)]
pub(super) struct FileText(OnceLock<String>);

impl fmt::Debug for FileText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileText")
    }
}

impl ProfileArguments {
    /// Reads and checks the profiles.
    pub fn configuration(&self, registry: &PluginRegistry) -> Result<Configuration, Failure> {
        let Some(path) = &self.config else {
            let name = self.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER_NAME);
            let configuration = Configuration::with_name(name, registry.plugins())
                .map_err(|error| Failure::configuration(error.to_string(), "check --scheduler-name"))?;
            registry.check(&configuration)?;
            return Ok(configuration);
        };
        let text = self.text(path)?;
        let mut configuration =
            read(text, self.scheduler_name.as_deref(), registry.plugins()).map_err(|wrong| wrong.in_file(path))?;
        if let Some(name) = &self.scheduler_name
            && !configuration.keep_profile(name)
        {
            let names: Vec<&str> = configuration.profiles().iter().map(Profile::name).collect();
            let known = format!("choose one of: {}", names.join(", "));
            return Err(Failure::configuration(format!("there is no profile {name}"), known));
        }
        refuse_extenders(&configuration, text).map_err(|wrong| wrong.in_file(path))?;
        registry.check(&configuration)?;
        Ok(configuration)
    }

    fn text(&self, path: &Path) -> Result<&str, Failure> {
        let FileText(known) = &self.text;
        if let Some(text) = known.get() {
            return Ok(text);
        }
        let text = files::read_text(path, files::CONFIGURATION)?;
        Ok(known.get_or_init(|| text))
    }

    /// `clientConnection.kubeconfig`. [`ProfileArguments::configuration`] checks the rest of the file.
    fn kubeconfig(&self) -> Result<Option<PathBuf>, Failure> {
        let Some(path) = &self.config else { return Ok(None) };
        let document = parse(self.text(path)?).map_err(|wrong| wrong.in_file(path))?;
        let given = document.pointer("/clientConnection/kubeconfig").and_then(Value::as_str);
        Ok(given.filter(|given| !given.is_empty()).map(PathBuf::from))
    }

    /// One line for each setting of the file that changes nothing. For a service: the output of a command has no log.
    pub fn log_without_effect(&self, configuration: &Configuration) {
        for setting in configuration.without_effect() {
            tracing::info!("scheduler configuration: {setting}");
        }
        if self.is_part_of_run && configuration.client_connection().kubeconfig.is_some() {
            let why = "`bridger run` has one connection for all its parts";
            tracing::info!("scheduler configuration: clientConnection.kubeconfig has no effect: {why}");
        }
    }

    /// The connections and lifting. `lookup` returns an environment variable. A kubeconfig comes from the flag, else from
    /// the environment, else from the configuration file.
    pub fn settings(
        &self,
        reach: &ReachArguments,
        election: &ElectionArguments,
        listen: Option<IpAddr>,
        port: Option<u16>,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<RunSettings, Failure> {
        let mut reach = reach.clone();
        if reach.kubeconfig.is_none() && lookup("KUBECONFIG").is_none_or(|value| value.is_empty()) {
            reach.kubeconfig = self.kubeconfig()?;
        }
        let arguments = RunArguments {
            connection: ConnectionArguments { reach, ..ConnectionArguments::default() },
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

/// What is wrong with a file, and where.
struct Wrong {
    line: Option<u64>,
    what: String,
}

impl Wrong {
    fn in_file(&self, path: &Path) -> Failure {
        let line = self.line.map(|line| format!(", line {line}")).unwrap_or_default();
        let what = format!("configuration file {}{line}: {}", path.display(), self.what);
        Failure::configuration(what, "docs/scheduler.md lists what is supported")
    }
}

/// `only`: a single profile without a name gets this one.
fn read(text: &str, only: Option<&str>, registry: &scheduler::Registry) -> Result<Configuration, Wrong> {
    let mut document = parse(text)?;
    if let Some(name) = only {
        name_single_profile(&mut document, name);
    }
    Configuration::from_value(&document, registry)
        .map_err(|error| Wrong { line: line_of(text, error.path.steps()), what: error.to_string() })
}

fn parse(text: &str) -> Result<Value, Wrong> {
    let mut options = serde_saphyr::Options::default();
    // As in kube-scheduler. Of two values of one field only one would count.
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::Error;
    let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // It begins with the line. The library's advice at its end is for programs.
        let what = files::cannot_parse(&error);
        let what = what.split(", set DuplicateKeyPolicy").next().unwrap_or_default();
        Wrong { line: None, what: what.to_owned() }
    })?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Wrong { line: None, what: "it is not a KubeSchedulerConfiguration".to_owned() })
    }
}

fn name_single_profile(document: &mut Value, name: &str) {
    match document.get_mut("profiles") {
        None | Some(Value::Null) => document["profiles"] = json!([{ "schedulerName": name }]),
        Some(Value::Array(profiles)) => match profiles.as_mut_slice() {
            [] => profiles.push(json!({ "schedulerName": name })),
            [profile] if profile.is_object() && profile["schedulerName"].is_null() => {
                profile["schedulerName"] = name.into();
            }
            _ => {}
        },
        Some(_) => {}
    }
}

/// They are read and checked; nothing calls them yet.
fn refuse_extenders(configuration: &Configuration, text: &str) -> Result<(), Wrong> {
    if configuration.extenders().is_empty() {
        return Ok(());
    }
    let line = line_of(text, &[PathStep::Field("extenders".to_owned())]);
    Err(Wrong { line, what: "extenders are validated but not called by this version".to_owned() })
}

/// Whether a configuration is accepted, with the standard plugins.
pub(crate) fn check(text: &str) -> Result<(), String> {
    read_text(text, &plugins::standard()).map(drop)
}

/// Reads the text of a configuration file.
pub(crate) fn read_text(text: &str, registry: &scheduler::Registry) -> Result<Configuration, String> {
    read(text, None, registry).map_err(|wrong| wrong.what)
}

#[cfg(test)]
mod tests {
    use kubernetes::connect::KubernetesCredentials;

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
        let configuration =
            arguments.configuration(&PluginRegistry::standard()).map_err(|failure| failure.to_string())?;
        Ok(configuration.profiles().iter().map(|profile| profile.name().to_owned()).collect())
    }

    const HEAD: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";

    #[test]
    fn profiles_come_from_the_file_or_the_default() {
        let default = ProfileArguments::default().configuration(&PluginRegistry::standard());
        assert_eq!(default.expect("defaults").profiles()[0].name(), "bridger");
        let two = format!("{HEAD}profiles:\n- schedulerName: a\n- schedulerName: b\n");
        assert_eq!(configured(&two, None).expect("two"), ["a", "b"]);
        assert_eq!(configured(&two, Some("b")).expect("one"), ["b"]);
        for nameless in
            ["", "profiles: []\n", "profiles: null\n", "profiles:\n- {}\n", "profiles: [{schedulerName: }]\n"]
        {
            assert_eq!(configured(&format!("{HEAD}{nameless}"), Some("c")).expect(nameless), ["c"]);
        }
        assert!(configured(&two, Some("c")).expect_err("none of it").contains("choose one of: a, b"));
        // The line is that of the file, whichever profile is to run.
        let second = format!("{HEAD}profiles:\n- schedulerName: a\n- schedulerName: b\n  pluginz: {{}}\n");
        let message = configured(&second, Some("b")).expect_err("a typo");
        assert!(message.contains("line 6: profiles[1].pluginz: unknown field"), "{message}");
    }

    #[test]
    fn errors_name_the_field_and_its_line() {
        let with = |text: &str| format!("{HEAD}{text}");
        // The text, and the message behind the name of the file.
        for (text, expected) in [
            ("a: [".to_owned(), "cannot parse"),
            ("- a".to_owned(), "not a KubeSchedulerConfiguration"),
            ("kind: KubeSchedulerConfiguration\n".to_owned(), ": apiVersion: Required value"),
            ("apiVersion: v1\n".to_owned(), ", line 1: apiVersion: Invalid value: \"v1\""),
            (with("\nparallelism: 0\n"), ", line 4: parallelism: Invalid value: 0: should be an integer"),
            (with("extenders:\n- urlPrefix: http://x\n"), ", line 3: extenders are validated but not called"),
            (with("extenders:\n- prioritizeVerb: p\n"), ", line 4: extenders[0].weight: Invalid value: 0: must have"),
            (
                with("profiles:\n- schedulerName: a\n- schedulerName: a\n"),
                ", line 5: profiles[1].schedulerName: Duplicate value: \"a\"",
            ),
            (with("profiles:\n- schedulerName: a\n- plugins: {}\n"), ", line 5: profiles[1].schedulerName: Required"),
            (
                with(
                    "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args:\n      scoringStrategy:\n        \
                     type: LeastAllocated\n        resources:\n        - name: cpu\n          weight: 101\n",
                ),
                ", line 11: profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight: Invalid value: 101: \
                 resource weight of cpu not in valid range (0, 100]",
            ),
            (
                with("profiles:\n- pluginConfig:\n  - name: ImageLocality\n    args: {x: 1}\n"),
                ", line 6: profiles[0].pluginConfig[0].args: unknown field `x`",
            ),
        ] {
            let message = configured(&text, None).expect_err(expected);
            assert!(message.contains(expected), "{message}\n{expected}");
        }
        // Wherever it is, a field must not be given twice.
        for (text, line, field) in [
            (with("parallelism: 1\nparallelism: 1\n"), "line 4", "parallelism"),
            (with("leaderElection: {leaderElect: true, leaderElect: true}\n"), "line 3", "leaderElect"),
            (
                with("profiles:\n- pluginConfig:\n  - name: NodeAffinity\n    args:\n      a: 1\n      \"a\": 2\n"),
                "line 8",
                "duplicate",
            ),
        ] {
            let message = configured(&text, None).expect_err(field);
            assert!(message.contains(line) && message.contains(field) && message.contains("uplicate"), "{message}");
        }
    }

    /// What `kube-scheduler --write-config-to` of version 1.36 writes without a configuration.
    const OF_KUBE_SCHEDULER: &str = include_str!("testdata/kube-scheduler-1.36.yaml");

    #[test]
    fn the_default_configuration_of_kube_scheduler_is_accepted_as_it_is() {
        let registry = plugins::standard();
        let Ok(configuration) = read(OF_KUBE_SCHEDULER, None, &registry) else {
            panic!("{:?}", check(OF_KUBE_SCHEDULER));
        };
        let default = Configuration::with_name("default-scheduler", &registry).expect("the default profile");
        let [profile] = configuration.profiles() else { panic!("one profile") };
        let [expected] = default.profiles() else { panic!("one profile") };
        assert_eq!(profile.name(), "default-scheduler");
        for point in ["preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "bind"] {
            let names = profile.plugins_at(point);
            assert_eq!(names, expected.plugins_at(point), "{point}");
            for name in names {
                assert_eq!(profile.weight(name), expected.weight(name), "{name}");
            }
        }
        assert_eq!(configuration.backoff(), default.backoff());
        let election = configuration.leader_election();
        assert_eq!(election.resource_name.as_deref(), Some("kube-scheduler"));
        let connection = configuration.client_connection();
        assert_eq!((&connection.kubeconfig, connection.qps, connection.burst), (&None, Some(50.0), Some(100)));
        let paths: Vec<String> = configuration.without_effect().iter().map(|it| it.path.to_string()).collect();
        assert!(paths.contains(&"clientConnection.contentType".to_owned()), "{paths:?}");
        // With a line for every one of them.
        for setting in configuration.without_effect() {
            assert!(line_of(OF_KUBE_SCHEDULER, setting.path.steps()).is_some(), "{setting}");
        }
    }

    #[test]
    fn the_kubeconfig_comes_from_the_flag_or_the_environment_or_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        std::fs::write(&path, format!("{HEAD}clientConnection: {{kubeconfig: of-file}}\n")).expect("it is written");
        let profiles = ProfileArguments { config: Some(path), ..ProfileArguments::default() };
        for (flag, variable, expected) in [
            (None, None, "of-file"),
            (None, Some(""), "of-file"),
            (None, Some("of-environment"), "of-environment"),
            (Some("of-flag"), Some("of-environment"), "of-flag"),
            (Some("of-flag"), None, "of-flag"),
        ] {
            let reach = ReachArguments { kubeconfig: flag.map(PathBuf::from), ..ReachArguments::default() };
            let lookup = |name: &str| variable.filter(|_| name == "KUBECONFIG").map(str::to_owned);
            let settings = profiles.settings(&reach, &ElectionArguments::default(), None, None, lookup);
            let expected = KubernetesCredentials::Kubeconfig { paths: vec![expected.into()], context: None };
            assert_eq!(settings.expect("valid settings").kubernetes, expected);
        }
        // Neither of them reads the file again.
        std::fs::remove_file(profiles.config.as_ref().expect("a path")).expect("it is removed");
        let configuration = profiles.configuration(&PluginRegistry::standard()).expect("the text is known");
        assert_eq!(configuration.client_connection().kubeconfig.as_deref(), Some(Path::new("of-file")));
    }
}
