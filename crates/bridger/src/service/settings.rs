//! Settings of `bridger run`: flags, else the configuration file, else the environment, else defaults.
//!
//! No flag takes a vCenter password. It comes from GOVC_PASSWORD, from GOVC_URL, or from a file.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use drs::DrsSettings;
use model::affinity::LiftSettings;
use model::labels::{LabelSettings, check_label_key};
use model::{Part, Parts};
use serde::Deserialize;
use vsphere::config::{VcenterConfig, VcenterConfigError};
use vsphere::inventory::VmScope;

use super::extender::{self, ExtenderArguments, ExtenderChoice, ExtenderEntries, LiftArguments, LiftModeName};
use super::leading::{ElectionArguments, ElectionChoice, ElectionEntry};
use super::policy::{self, PolicyArguments, PolicyEntry};
use super::scheduler::ProfileArguments;
use crate::failure::Failure;
use crate::files;

/// The flags that say how to connect to vCenters and to a Kubernetes cluster.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ReachArguments {
    /// URL of the vCenter, without a password; repeatable. Default: GOVC_URL
    #[arg(long, value_name = "URL")]
    pub url: Vec<String>,
    /// File with the vCenter user name. Default: GOVC_USERNAME
    #[arg(long, value_name = "FILE")]
    pub username_file: Option<PathBuf>,
    /// File with the vCenter password. Default: GOVC_PASSWORD
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// PEM file of the certificate authorities to trust. Default: GOVC_TLS_CA_CERTS, else the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// SHA-256 thumbprint of the only vCenter certificate to trust
    #[arg(long, value_name = "SHA256", conflicts_with = "ca_file")]
    pub thumbprint: Option<String>,
    /// Do not verify the vCenter's certificate
    #[arg(long, conflicts_with_all = ["ca_file", "thumbprint"])]
    pub insecure: bool,
    /// Folder of the VMs that may be nodes, by name or inventory path; repeatable. Default: all VMs
    #[arg(long, value_name = "FOLDER")]
    pub vm_folder: Vec<String>,
    /// Resource pool of the VMs that may be nodes, by name or path; repeatable. Default: all VMs
    #[arg(long, value_name = "POOL")]
    pub vm_resource_pool: Vec<String>,
    /// Tag of the VMs that may be nodes, as TAG or CATEGORY:TAG; repeatable. Default: all VMs
    #[arg(long, value_name = "TAG")]
    pub vm_tag: Vec<String>,
    /// Kubeconfig file. Default: KUBECONFIG, else the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// The same, with Bridger's configuration file and the flags of the rule record.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConnectionArguments {
    #[command(flatten)]
    pub reach: ReachArguments,
    /// vSphere cluster to write rules in; repeatable. Default: all that run nodes
    #[arg(long, value_name = "NAME")]
    pub cluster: Vec<String>,
    /// Configuration file (YAML); see docs/run.md
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Namespace of the ConfigMaps with the rule record [default: the pod's own, else kube-system]
    #[arg(long, value_name = "NAMESPACE")]
    pub record_namespace: Option<String>,
}

impl ConnectionArguments {
    /// The settings of a command that has no other flags of `run`.
    pub fn settings(&self) -> Result<RunSettings, Failure> {
        RunSettings::resolve(&self.run_arguments(), environment)
    }

    /// What a service account for `run` depends on. Needs no vCenter, and no credentials of one.
    pub fn account_settings(&self) -> Result<AccountSettings, Failure> {
        let file = self.file()?;
        let record_namespace = self.record_namespace.clone().or_else(|| file.record_namespace.clone());
        let settings = RunSettings::without_vcenters(&self.run_arguments(), file, environment)?;
        Ok(AccountSettings {
            labels: settings.labels.is_some(),
            rules: settings.rules,
            extender: settings.extender.is_on(),
            scheduling: settings.scheduling.is_some(),
            record_namespace,
        })
    }

    fn run_arguments(&self) -> RunArguments {
        RunArguments { connection: self.clone(), ..RunArguments::default() }
    }

    fn file(&self) -> Result<File, Failure> {
        self.config.as_deref().map_or_else(|| Ok(File::default()), read)
    }
}

/// What a service account for `run` depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountSettings {
    pub labels: bool,
    pub rules: bool,
    pub extender: bool,
    pub scheduling: bool,
    /// `None`: that of the account.
    pub record_namespace: Option<String>,
}

/// An environment variable of this process.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// As YAML 1.1 has it, because YAML tools write `on` as `true`: true/false, on/off, yes/no, quoted or not.
impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Switch, D::Error> {
        let is_on = bool::deserialize(deserializer)?;
        Ok(if is_on { Switch::On } else { Switch::Off })
    }
}

/// The flags of `run` itself.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub connection: ConnectionArguments,
    /// Label nodes with their physical host [default: on]
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub labels: Option<Switch>,
    /// Turn pod affinity and anti-affinity into DRS rules [default: on]
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub rules: Option<Switch>,
    /// Schedule the pods that name Bridger as their scheduler, as `bridger scheduler` does [default: off]
    #[arg(long, value_enum, value_name = "SWITCH")]
    pub scheduling: Option<Switch>,
    /// KubeSchedulerConfiguration for --scheduling on; see docs/scheduler.md. Default: all default plugins
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    #[command(flatten)]
    pub policy: PolicyArguments,
    /// Label key for the vSphere cluster. Default: no such label
    #[arg(long, value_name = "KEY")]
    pub cluster_label: Option<String>,
    /// Label key for the vSphere datacenter. Default: no such label
    #[arg(long, value_name = "KEY")]
    pub datacenter_label: Option<String>,
    #[command(flatten)]
    pub extender: ExtenderArguments,
    #[command(flatten)]
    pub lifting: LiftArguments,
    #[command(flatten)]
    pub election: ElectionArguments,
    /// Port for health and metrics [default: 12346]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Address to listen on; use 0.0.0.0 in a pod, for the kubelet's probes [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<IpAddr>,
    /// Append every change to this file, as a line of JSON. Default: only the log
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
    /// Write nothing, and log what would be written
    #[arg(long)]
    pub dry_run: bool,
}

/// The configuration file. Keys are the names of the flags in camelCase; each vCenter has its own entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    vcenters: Vec<VcenterEntry>,
    clusters: Vec<String>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    labels: Option<Switch>,
    rules: Option<Switch>,
    scheduling: Option<Switch>,
    scheduler_config: Option<PathBuf>,
    policy: PolicyEntry,
    record_namespace: Option<String>,
    host_label: Option<String>,
    cluster_label: Option<String>,
    datacenter_label: Option<String>,
    extender: Option<Switch>,
    extender_port: Option<u16>,
    extender_listen: Option<IpAddr>,
    extender_scheduler_names: Vec<String>,
    tls_cert_file: Option<PathBuf>,
    tls_key_file: Option<PathBuf>,
    client_ca_file: Option<PathBuf>,
    client_allowed_names: Vec<String>,
    host_load_weight: Option<u8>,
    lift: Vec<String>,
    lift_mode: Option<LiftModeName>,
    host_preemption: Option<Switch>,
    leader_election: ElectionEntry,
    port: Option<u16>,
    listen: Option<IpAddr>,
    audit_log: Option<PathBuf>,
    dry_run: bool,
    writes_per_second: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct VcenterEntry {
    url: Option<String>,
    username_file: Option<PathBuf>,
    password_file: Option<PathBuf>,
    thumbprint: Option<String>,
    ca_file: Option<PathBuf>,
    insecure: bool,
    vm_folders: Vec<String>,
    vm_resource_pools: Vec<String>,
    vm_tags: Vec<String>,
}

/// The checked settings of `run`.
#[derive(Debug)]
pub struct RunSettings {
    pub vcenters: Vec<VcenterConfig>,
    pub clusters: Vec<String>,
    pub kubernetes: kubernetes::connect::KubernetesCredentials,
    /// `None`: labels are off.
    pub labels: Option<LabelSettings>,
    pub extender: ExtenderChoice,
    pub lifting: LiftSettings,
    /// The settings of DRS rules.
    pub policy: DrsSettings,
    /// Whether DRS rules are enabled.
    pub rules: bool,
    /// The scheduler's profiles; `None`: the scheduler is off.
    pub scheduling: Option<ProfileArguments>,
    pub record_namespace: String,
    pub election: ElectionChoice,
    pub listen: IpAddr,
    pub port: u16,
    pub audit_log: Option<PathBuf>,
    pub dry_run: bool,
    pub writes_per_second: Option<u32>,
}

pub const PORT_DEFAULT: u16 = 12_346;
/// Every cluster has this namespace, and few users may write to it.
const RECORD_NAMESPACE_DEFAULT: &str = "kube-system";

impl RunSettings {
    /// Whether `run` writes rules: without a vCenter it cannot.
    pub fn writes_rules(&self) -> bool {
        self.rules && !self.vcenters.is_empty()
    }

    /// The parts of `run` that are on.
    pub fn parts(&self) -> Parts {
        Parts::NONE
            .with(Part::NodeLabels, self.labels.is_some())
            .with(Part::DrsRules, self.writes_rules())
            .with(Part::Extender, self.extender.is_on())
            .with(Part::Scheduling, self.scheduling.is_some())
    }

    /// Merges flags, file and environment. `lookup` returns an environment variable.
    pub fn resolve(arguments: &RunArguments, lookup: impl Fn(&str) -> Option<String>) -> Result<RunSettings, Failure> {
        let mut file = arguments.connection.file()?;
        let entries = std::mem::take(&mut file.vcenters);
        let settings = Self::without_vcenters(arguments, file, &lookup)?;
        Ok(RunSettings { vcenters: vcenters(&arguments.connection.reach, &entries, &lookup)?, ..settings })
    }

    /// All of it but the vCenters, whose credentials need not be on this machine.
    fn without_vcenters(
        arguments: &RunArguments,
        file: File,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<RunSettings, Failure> {
        let connection = &arguments.connection;
        let host_label = label_key(("--host-label", &arguments.policy.host_label), ("hostLabel", file.host_label))?;
        let labels = LabelSettings {
            host_key: host_label.unwrap_or_else(|| LabelSettings::default().host_key),
            cluster_key: label_key(
                ("--cluster-label", &arguments.cluster_label),
                ("clusterLabel", file.cluster_label),
            )?,
            datacenter_key: label_key(
                ("--datacenter-label", &arguments.datacenter_label),
                ("datacenterLabel", file.datacenter_label),
            )?,
        };
        labels.check().map_err(|error| {
            Failure::configuration(error.to_string(), "see --host-label, --cluster-label and --datacenter-label")
        })?;
        let entries = ExtenderEntries {
            extender: file.extender,
            extender_port: file.extender_port,
            extender_listen: file.extender_listen,
            extender_scheduler_names: file.extender_scheduler_names,
            client_allowed_names: file.client_allowed_names,
            tls_cert_file: file.tls_cert_file,
            tls_key_file: file.tls_key_file,
            client_ca_file: file.client_ca_file,
            host_load_weight: file.host_load_weight,
            lift: file.lift,
            lift_mode: file.lift_mode,
            host_preemption: file.host_preemption,
        };
        let lifting = extender::lifting(&arguments.lifting, &entries, &labels.host_key)?;
        let labelling = arguments.labels.or(file.labels).unwrap_or(Switch::On) == Switch::On;
        let rules = arguments.rules.or(file.rules).unwrap_or(Switch::On) == Switch::On;
        let scheduling = arguments.scheduling.or(file.scheduling).unwrap_or(Switch::Off) == Switch::On;
        let scheduler_config = arguments.scheduler_config.clone().or(file.scheduler_config);
        if scheduler_config.is_some() && !scheduling {
            return Err(Failure::configuration(
                "a scheduler configuration is set, but scheduling is off",
                "add --scheduling on, or omit --scheduler-config",
            ));
        }
        let clusters = if connection.cluster.is_empty() { file.clusters } else { connection.cluster.clone() };
        let policy = policy::resolve(&arguments.policy, &file.policy, &lifting, &clusters)?;
        let kubeconfig = connection.reach.kubeconfig.clone().or(file.kubeconfig);
        let context = connection.reach.context.clone().or(file.context);
        let variable = lookup("KUBECONFIG").filter(|value| !value.is_empty());
        let kubernetes = kubernetes::connect::KubernetesCredentials::choose(
            kubeconfig.as_deref(),
            variable.as_ref().map(std::ffi::OsStr::new),
            context.as_deref(),
        );
        let record_namespace = connection
            .record_namespace
            .clone()
            .or(file.record_namespace)
            .or_else(|| kubernetes.own_namespace())
            .unwrap_or_else(|| RECORD_NAMESPACE_DEFAULT.to_owned());
        let listen = arguments.listen.or(file.listen).unwrap_or(IpAddr::from([127, 0, 0, 1]));
        Ok(RunSettings {
            vcenters: Vec::new(),
            clusters,
            policy,
            rules,
            scheduling: scheduling.then(|| ProfileArguments {
                config: scheduler_config,
                is_part_of_run: true,
                ..ProfileArguments::default()
            }),
            record_namespace,
            kubernetes,
            labels: labelling.then_some(labels),
            extender: ExtenderChoice::resolve(&arguments.extender, &entries, listen)?,
            lifting,
            election: ElectionChoice { flags: arguments.election.clone(), entry: file.leader_election },
            listen,
            port: arguments.port.or(file.port).unwrap_or(PORT_DEFAULT),
            audit_log: arguments.audit_log.clone().or(file.audit_log),
            dry_run: arguments.dry_run || file.dry_run,
            writes_per_second: file.writes_per_second,
        })
    }
}

/// The label key of a flag, else of the file, each with its name.
fn label_key(flag: (&str, &Option<String>), entry: (&str, Option<String>)) -> Result<Option<String>, Failure> {
    let (name, key) = match (flag, entry) {
        ((flag, Some(key)), _) => (flag.to_owned(), key.clone()),
        (_, (entry, Some(key))) => (in_file(entry), key),
        (_, (_, None)) => return Ok(None),
    };
    checked_label_key(&name, &key)?;
    Ok(Some(key))
}

/// `name`: of the setting that has this key.
pub(super) fn checked_label_key(name: &str, key: &str) -> Result<(), Failure> {
    check_label_key(key).map_err(|error| {
        Failure::configuration(format!("{name}: {error}"), "see `kubectl get nodes --show-labels` for the keys in use")
    })
}

/// How an error names a key of the configuration file.
pub(super) fn in_file(key: &str) -> String {
    format!("{key} in the configuration file")
}

/// The vCenters from the flags, else from the file, else from the environment, else none.
fn vcenters(
    flags: &ReachArguments,
    entries: &[VcenterEntry],
    lookup: &impl Fn(&str) -> Option<String>,
) -> Result<Vec<VcenterConfig>, Failure> {
    let from_flags = |url: Option<String>| vsphere::config::Settings {
        url,
        username_file: flags.username_file.clone(),
        password_file: flags.password_file.clone(),
        thumbprint: flags.thumbprint.clone(),
        ca_files: flags.ca_file.clone().into_iter().collect(),
        insecure: flags.insecure,
        scope: VmScope {
            folders: flags.vm_folder.clone(),
            resource_pools: flags.vm_resource_pool.clone(),
            tags: flags.vm_tag.clone(),
        },
    };
    let settings: Vec<vsphere::config::Settings> = if !flags.url.is_empty() {
        flags.url.iter().map(|url| from_flags(Some(url.clone()))).collect()
    } else if !entries.is_empty() {
        entries.iter().map(VcenterEntry::settings).collect()
    } else if lookup("GOVC_URL").is_some_and(|url| !url.is_empty()) {
        vec![from_flags(None)]
    } else {
        Vec::new()
    };
    settings.iter().map(|one| VcenterConfig::from_settings(one, lookup).map_err(vcenter_failure)).collect()
}

impl VcenterEntry {
    fn settings(&self) -> vsphere::config::Settings {
        vsphere::config::Settings {
            url: self.url.clone(),
            username_file: self.username_file.clone(),
            password_file: self.password_file.clone(),
            thumbprint: self.thumbprint.clone(),
            ca_files: self.ca_file.clone().into_iter().collect(),
            insecure: self.insecure,
            scope: VmScope {
                folders: self.vm_folders.clone(),
                resource_pools: self.vm_resource_pools.clone(),
                tags: self.vm_tags.clone(),
            },
        }
    }
}

// The error message already says what to set.
#[allow(clippy::needless_pass_by_value)]
fn vcenter_failure(error: VcenterConfigError) -> Failure {
    Failure::configuration(error.to_string(), "docs/run.md lists the ways to set credentials; no flag takes a password")
}

fn read(path: &Path) -> Result<File, Failure> {
    let text = files::read_text(path, files::CONFIGURATION)?;
    parse(&text).map_err(|why| {
        let what = format!("cannot use configuration file {}: {why}", path.display());
        Failure::configuration(what, "docs/run.md lists all fields")
    })
}

fn parse(text: &str) -> Result<File, String> {
    serde_saphyr::from_str(text).map_err(|error| files::cannot_parse(&error))
}

/// Whether the content of a configuration file is accepted.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(arguments: &RunArguments, variables: &[(&str, &str)]) -> Result<RunSettings, Failure> {
        RunSettings::resolve(arguments, |name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    const GOVC: &[(&str, &str)] =
        &[("GOVC_URL", "https://vc.example/sdk"), ("GOVC_USERNAME", "u"), ("GOVC_PASSWORD", "p")];

    #[test]
    fn flags_override_the_file_and_the_file_overrides_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bridger.yaml");
        std::fs::write(
            &file,
            "vcenters:\n  - url: https://one.example\n  - url: https://two.example\n    insecure: true\n\
             clusters: [a]\nport: 9000\nhostLabel: example.org/host\nlabels: on\n",
        )
        .unwrap();
        let mut arguments = RunArguments::default();
        assert_eq!(resolve(&arguments, GOVC).unwrap().vcenters[0].endpoint.host(), "vc.example");
        assert_eq!(resolve(&arguments, &[]).unwrap().vcenters.len(), 0);

        arguments.connection.config = Some(file);
        let settings = resolve(&arguments, GOVC).unwrap();
        let hosts: Vec<&str> = settings.vcenters.iter().map(|vcenter| vcenter.endpoint.host()).collect();
        assert_eq!(hosts, ["one.example", "two.example"]);
        assert_eq!((settings.port, settings.clusters.as_slice()), (9000, &["a".to_owned()][..]));
        assert_eq!(settings.labels.unwrap().host_key, "example.org/host");

        arguments.connection.reach.url = vec!["https://three.example".to_owned()];
        arguments.port = Some(1);
        arguments.labels = Some(Switch::Off);
        let settings = resolve(&arguments, GOVC).unwrap();
        assert_eq!(settings.vcenters[0].endpoint.host(), "three.example");
        assert_eq!((settings.port, settings.labels), (1, None));
    }

    #[test]
    fn errors_name_the_wrong_setting_and_never_show_a_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            let path = folder.path().join(format!("bad-{}.yaml", text.len()));
            std::fs::write(&path, text).unwrap();
            RunArguments {
                connection: ConnectionArguments { config: Some(path), ..ConnectionArguments::default() },
                ..RunArguments::default()
            }
        };
        let url = |url: &str| RunArguments {
            connection: ConnectionArguments {
                reach: ReachArguments { url: vec![url.to_owned()], ..ReachArguments::default() },
                ..ConnectionArguments::default()
            },
            ..RunArguments::default()
        };
        let policy = PolicyArguments { host_label: Some("not a key".to_owned()), ..PolicyArguments::default() };
        let label = RunArguments { policy, ..RunArguments::default() };
        for (arguments, expected) in [
            (file("prot: 1\n"), "prot"),
            (file("port: many\n"), "line 1"),
            (url("https://u:hunter2@vc"), "holds a password"),
            (url("ftp://vc"), "https://"),
            (label, "not a key"),
        ] {
            let message = resolve(&arguments, GOVC).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
