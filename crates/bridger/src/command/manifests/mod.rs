//! `bridger manifests`: YAML for kube-scheduler and kubectl.

mod all;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use kubernetes::record_store::slot_names;
use model::{Part, Parts};

use crate::embedded;
use crate::failure::Failure;
use crate::rbac::{self, Account, quoted};
use crate::service::settings::{AccountSettings, ConnectionArguments, Switch};
use crate::service::startup::{self, Purpose};

/// Print the YAML that installs Bridger, or connects it to Kubernetes
///
/// Everything, as the Helm chart has it: bridger manifests all | kubectl apply -f -
/// For kube-scheduler: bridger manifests scheduler-config > scheduler.yaml; then start it with --config scheduler.yaml.
/// For Bridger in the cluster: bridger manifests rbac --for run | kubectl apply -f -
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    manifest: Manifest,
}

#[derive(Debug, clap::Subcommand)]
enum Manifest {
    All(all::All),
    SchedulerConfig(SchedulerConfig),
    Rbac(Rbac),
}

/// Print a service account for Bridger, with roles that allow what it does and no more
///
/// The roles contain the permissions that Bridger checks at startup: both come from one list. For `run` they contain
/// those of the parts that are on, as in --config: by default labels and rules.
#[derive(Debug, clap::Args)]
struct Rbac {
    /// The commands that use the service account
    #[arg(long = "for", value_enum, value_name = "WORK", default_value = "run")]
    work: Work,
    /// Include the permissions of `bridger run --scheduling on`
    #[arg(long)]
    scheduling: bool,
    /// Include the permissions of `bridger run` with the extender
    #[arg(long)]
    extender: bool,
    /// As for `bridger run`: off leaves out the permission to change nodes [default: on]
    #[arg(long, value_name = "SWITCH", value_enum)]
    labels: Option<Switch>,
    /// As for `bridger run`: off leaves out the rule record [default: on]
    #[arg(long, value_name = "SWITCH", value_enum)]
    rules: Option<Switch>,
    /// Name of the service account and its roles [default: bridger, or bridger- and the work]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Namespace of the service account
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    namespace: String,
    /// Namespace of the rule record, if `run` uses --record-namespace; else recordNamespace of --config counts
    /// [default: that of the service account]
    #[arg(long, value_name = "NAMESPACE")]
    record_namespace: Option<String>,
    /// Allow changes of the ConfigMaps too in which earlier versions recorded rules. Reads the clusters, which their names
    /// depend on, from the vCenters of --config or GOVC_URL
    #[arg(long)]
    name_records: bool,
    /// Configuration file of `bridger run`: which parts are on, the namespace of the rule record, and the vCenters for
    /// --name-records; their credentials are read only for that
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Work {
    /// `bridger run`
    Run,
    /// `bridger scheduler`
    Scheduler,
    /// `bridger explain` and `bridger snapshot`: read only
    Explain,
    /// `bridger cleanup --labels`
    Cleanup,
}

impl Rbac {
    fn to_yaml(&self) -> Result<String, Failure> {
        let former = if self.name_records { self.former_objects()? } else { Vec::new() };
        let record_objects: Vec<String> = slot_names().chain(former).collect();
        let (purpose, name) = match self.work {
            Work::Run => (Purpose::Run, "bridger"),
            Work::Scheduler => (Purpose::Schedule, "bridger-scheduler"),
            Work::Explain => (Purpose::Snapshot, "bridger-explain"),
            Work::Cleanup => (Purpose::Cleanup { labels: true }, "bridger-cleanup"),
        };
        let file = self.config.is_some().then(|| self.connection().account_settings()).transpose()?;
        // `bridger scheduler` does not read this file.
        let of_file = file.as_ref().filter(|_| self.work != Work::Scheduler);
        let of_file = of_file.and_then(|file| file.record_namespace.as_deref());
        let account = Account {
            name: self.name.as_deref().unwrap_or(name),
            namespace: &self.namespace,
            record_namespace: self.record_namespace.as_deref().or(of_file).unwrap_or(&self.namespace),
            record_objects: &record_objects,
        };
        Ok(rbac::to_yaml(&startup::needs(purpose, self.parts(file.as_ref()), false), &account))
    }

    /// The parts of `run` that are on.
    fn parts(&self, file: Option<&AccountSettings>) -> Parts {
        let is_on = |flag: Option<Switch>, of_file: Option<bool>| match flag {
            Some(flag) => flag == Switch::On,
            None => of_file.unwrap_or(true),
        };
        Parts::NONE
            .with(Part::NodeLabels, is_on(self.labels, file.map(|file| file.labels)))
            .with(Part::DrsRules, is_on(self.rules, file.map(|file| file.rules)))
            .with(Part::Extender, self.extender || file.is_some_and(|file| file.extender))
            .with(Part::Scheduling, self.scheduling || file.is_some_and(|file| file.scheduling))
    }

    fn connection(&self) -> ConnectionArguments {
        ConnectionArguments { config: self.config.clone(), ..ConnectionArguments::default() }
    }

    fn former_objects(&self) -> Result<Vec<String>, Failure> {
        let settings = self.connection().settings()?;
        let objects = embedded::runtime()?.block_on(startup::former_objects_of_record(&settings))?;
        if objects.is_empty() {
            return Err(Failure::run("the vCenters have no cluster, so there is no rule record to name"));
        }
        Ok(objects)
    }
}

/// Print a KubeSchedulerConfiguration with Bridger as the extender of kube-scheduler
///
/// The configuration disables InterPodAffinity, because Bridger replaces it, and sends filter, prioritize, preempt and
/// bind to Bridger. docs/extender.md describes it, and what happens while Bridger is down.
#[derive(Debug, clap::Args)]
struct SchedulerConfig {
    /// URL at which kube-scheduler reaches Bridger
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:12346/v1")]
    url: String,
    /// Kubeconfig of kube-scheduler itself
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/scheduler.conf")]
    kubeconfig: String,
    /// Name of the scheduler, as in the schedulerName of pods
    #[arg(long, value_name = "NAME", default_value = "default-scheduler")]
    scheduler_name: String,
    /// Let kube-scheduler ignore errors: while Bridger is down, pods are placed without pod affinity, and rejected
    /// bindings are overridden; see docs/extender.md
    #[arg(long)]
    ignorable: bool,
    /// Certificate authority of Bridger's certificate, for an https URL
    #[arg(long, value_name = "FILE")]
    ca_file: Option<String>,
    /// Client certificate of kube-scheduler, if Bridger uses --client-ca-file
    #[arg(long, value_name = "FILE", requires = "client_key_file")]
    client_cert_file: Option<String>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "client_cert_file")]
    client_key_file: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let text = match &arguments.manifest {
        Manifest::All(all) => all.to_yaml()?,
        Manifest::SchedulerConfig(config) => config.to_yaml()?,
        Manifest::Rbac(rbac) => rbac.to_yaml()?,
    };
    // A closed pipe (`| head`) is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

impl SchedulerConfig {
    fn to_yaml(&self) -> Result<String, Failure> {
        let https = self.url.starts_with("https://");
        if !https && !self.url.starts_with("http://") {
            return Err(Failure::configuration(
                format!("{:?} is not the URL of an extender", self.url),
                "use for example http://127.0.0.1:12346/v1",
            ));
        }
        if !https && (self.ca_file.is_some() || self.client_cert_file.is_some()) {
            return Err(Failure::configuration(
                "certificate files need an https URL",
                "use --url https://..., and start `bridger run` with --tls-cert-file and --tls-key-file",
            ));
        }
        let mut tls = String::new();
        if https {
            tls.push_str("    enableHTTPS: true\n");
            let files =
                [("caFile", &self.ca_file), ("certFile", &self.client_cert_file), ("keyFile", &self.client_key_file)];
            let given: Vec<_> = files.iter().filter_map(|(name, file)| Some((name, file.as_ref()?))).collect();
            if !given.is_empty() {
                tls.push_str("    tlsConfig:\n");
                for (name, file) in given {
                    tls.push_str(&format!("      {name}: {}\n", quoted(file)));
                }
            }
        }
        Ok(format!(
            "apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: {kubeconfig}
profiles:
  - schedulerName: {name}
    plugins:
      multiPoint:
        disabled:
          # Bridger answers for it, on nodes and on physical hosts.
          - name: InterPodAffinity
extenders:
  - urlPrefix: {url}
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    # Safe only together with filter: it checks once more what another pod may have changed since.
    bindVerb: bind
    # 2 as InterPodAffinity has; a score of 10 counts as 100.
    weight: 2
    # Names only: whole nodes would cost more than the decision.
    nodeCacheCapable: true
    # Longer than Bridger waits for the API server to bind a pod (8 s).
    httpTimeout: 10s
    # false: no pod is scheduled while Bridger is down. true: pods are, with no regard to affinity, and kube-scheduler
    # overrules Bridger where it refuses a binding.
    ignorable: {ignorable}
{tls}",
            kubeconfig = quoted(&self.kubeconfig),
            name = quoted(&self.scheduler_name),
            url = quoted(&self.url),
            ignorable = self.ignorable,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::Value;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        config: SchedulerConfig,
    }

    fn yaml(arguments: &[&str]) -> Result<Value, String> {
        let line = Line::try_parse_from([&["test"], arguments].concat()).map_err(|error| error.to_string())?;
        let text = line.config.to_yaml().map_err(|error| error.to_string())?;
        serde_saphyr::from_str(&text).map_err(|error| error.to_string())
    }

    #[derive(Parser)]
    struct RbacLine {
        #[command(flatten)]
        rbac: Rbac,
    }

    fn roles(arguments: &[&str]) -> Result<Vec<Value>, String> {
        let line = RbacLine::try_parse_from([&["test"], arguments].concat()).map_err(|error| error.to_string())?;
        let text = line.rbac.to_yaml().map_err(|error| error.to_string())?;
        text.split("---\n").map(|it| serde_saphyr::from_str(it).map_err(|error| error.to_string())).collect()
    }

    const RUN_PAGE: &str = include_str!("../../../../../docs/run.md");

    /// The file of the documentation, on a machine without the credentials that it names.
    #[test]
    fn number_10_the_role_fits_the_configuration_file_and_needs_no_credentials() {
        let (_, rest) = RUN_PAGE.split_once("```yaml\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("its end");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bridger.yaml");
        let text = format!("{example}recordNamespace: bridger-system\nlabels: off\n");
        std::fs::write(&path, text).expect("it is written");
        let path = path.display().to_string();
        let with_file = |more: &[&str]| roles(&[&["--config", path.as_str()], more].concat());
        let find = |kind: &str, more: &[&str]| {
            let documents = with_file(more).expect("roles");
            documents.into_iter().find(|document| document["kind"] == kind).expect(kind)
        };
        for (more, namespace) in [
            (&["--for", "run"][..], "bridger-system"),
            (&["--for", "cleanup"], "bridger-system"),
            (&["--record-namespace", "other"], "other"),
            // It does not read this file.
            (&["--for", "scheduler"], "kube-system"),
        ] {
            assert_eq!(find("Role", more)["metadata"]["namespace"], namespace, "{more:?}");
        }
        let may_patch_nodes = |more: &[&str]| find("ClusterRole", more).to_string().contains("patch");
        assert_eq!((may_patch_nodes(&[]), may_patch_nodes(&["--labels", "on"])), (false, true));
        assert!(with_file(&["--name-records"]).is_err(), "the vCenters are needed");
    }

    #[test]
    fn the_yaml_contains_every_flag() {
        let config = yaml(&[]).expect("defaults");
        let extender = &config["extenders"][0];
        assert_eq!(extender["urlPrefix"], "http://127.0.0.1:12346/v1");
        for verb in ["filter", "prioritize", "preempt", "bind"] {
            assert_eq!(extender[format!("{verb}Verb")], verb);
        }
        assert_eq!(
            (extender["nodeCacheCapable"].as_bool(), extender["ignorable"].as_bool()),
            (Some(true), Some(false))
        );
        assert_eq!(config["profiles"][0]["plugins"]["multiPoint"]["disabled"][0]["name"], "InterPodAffinity");
        let config = yaml(&[
            "--url",
            "https://b/v1",
            "--ca-file",
            "/ca \"x\"",
            "--client-cert-file",
            "/c",
            "--client-key-file",
            "/k",
            "--ignorable",
            "--scheduler-name",
            "by: bridger",
        ])
        .expect("all of it");
        let extender = &config["extenders"][0];
        assert_eq!((&extender["enableHTTPS"], &extender["ignorable"]), (&Value::Bool(true), &Value::Bool(true)));
        assert_eq!(extender["tlsConfig"]["caFile"], "/ca \"x\"");
        assert_eq!(config["profiles"][0]["schedulerName"], "by: bridger");
        for wrong in [&["--url", "bridger:12346"][..], &["--ca-file", "/ca"], &["--client-cert-file", "/c"]] {
            assert!(yaml(wrong).is_err(), "{wrong:?}");
        }
    }
}
