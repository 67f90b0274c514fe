//! `extenders`: the HTTP services that take part in scheduling.
//!
//! In: the list. Out: each extender, checked with kube-scheduler's rules, which do not include its URL.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::error::{ConfigError, FieldProblem, quoted};
use super::fields::{Fields, Node};
use super::names::extended_resource_problem;

/// An extender that the scheduler calls. Without a verb it does not take part in that step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingExtender {
    pub url_prefix: String,
    pub filter_verb: Option<String>,
    pub preempt_verb: Option<String>,
    pub prioritize_verb: Option<String>,
    pub bind_verb: Option<String>,
    /// Of its scores. Above 0 if it has a `prioritizeVerb`.
    pub weight: i64,
    pub enable_https: bool,
    pub tls: Option<ExtenderTls>,
    /// For a whole call.
    pub http_timeout: Duration,
    /// It gets the names of nodes only.
    pub node_cache_capable: bool,
    /// It gets the pods that request one of them; all pods if there are none.
    pub managed_resources: Vec<ManagedResource>,
    /// Its errors do not keep a pod from being scheduled.
    pub ignorable: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedResource {
    pub name: String,
    /// NodeResourcesFit does not check it.
    pub ignored_by_scheduler: bool,
}

/// Data counts before files. Certificates and keys are PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ExtenderTls {
    pub insecure: bool,
    pub server_name: Option<String>,
    pub cert_file: Option<PathBuf>,
    pub key_file: Option<PathBuf>,
    pub ca_file: Option<PathBuf>,
    pub cert_data: Option<Vec<u8>>,
    pub key_data: Option<Vec<u8>>,
    pub ca_data: Option<Vec<u8>>,
}

const HTTP_TIMEOUT: Duration = Duration::from_secs(5);

/// A key must not get into a log.
impl fmt::Debug for ExtenderTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtenderTls")
            .field("insecure", &self.insecure)
            .field("server_name", &self.server_name)
            .field("cert_file", &self.cert_file)
            .field("key_file", &self.key_file)
            .field("ca_file", &self.ca_file)
            .finish_non_exhaustive()
    }
}

pub(super) fn read(list: &Node<'_>) -> Result<Vec<OutgoingExtender>, ConfigError> {
    let mut managed = BTreeSet::new();
    let mut extenders = Vec::new();
    for node in list.list()? {
        extenders.push(extender(&node, &mut managed)?);
    }
    let binders = extenders.iter().filter(|extender| extender.bind_verb.is_some()).count();
    if binders > 1 {
        let value = quoted(&format!("found {binders} extenders implementing bind"));
        let rule = "only one extender can implement bind".to_owned();
        return Err(FieldProblem::Invalid { value, rule }.at(&list.path));
    }
    Ok(extenders)
}

/// `managed`: the names of the resources that earlier extenders manage.
fn extender<'a>(node: &Node<'a>, managed: &mut BTreeSet<&'a str>) -> Result<OutgoingExtender, ConfigError> {
    let mut fields = node.fields()?;
    let extender = OutgoingExtender {
        url_prefix: fields.filled_text("urlPrefix")?.unwrap_or_default(),
        filter_verb: fields.filled_text("filterVerb")?,
        preempt_verb: fields.filled_text("preemptVerb")?,
        prioritize_verb: fields.filled_text("prioritizeVerb")?,
        bind_verb: fields.filled_text("bindVerb")?,
        weight: fields.read("weight", Node::int64)?.unwrap_or_default(),
        enable_https: fields.flag("enableHTTPS")?,
        tls: fields.read("tlsConfig", tls)?,
        http_timeout: fields.read("httpTimeout", timeout)?.unwrap_or(HTTP_TIMEOUT),
        node_cache_capable: fields.flag("nodeCacheCapable")?,
        managed_resources: managed_resources(fields.list("managedResources")?, managed)?,
        ignorable: fields.flag("ignorable")?,
    };
    fields.done()?;
    if extender.prioritize_verb.is_some() && extender.weight <= 0 {
        let rule = "must have a positive weight applied to it".to_owned();
        return Err(FieldProblem::Invalid { value: extender.weight.to_string(), rule }.at(&node.path.field("weight")));
    }
    Ok(extender)
}

/// 0 is the default, as in kube-scheduler, where every call with a negative one fails.
fn timeout(node: &Node<'_>) -> Result<Duration, ConfigError> {
    match u64::try_from(node.duration()?) {
        Ok(0) => Ok(HTTP_TIMEOUT),
        Ok(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
        Err(_) => Err(node.invalid("must be zero or positive")),
    }
}

fn managed_resources<'a>(
    list: Vec<Node<'a>>,
    managed: &mut BTreeSet<&'a str>,
) -> Result<Vec<ManagedResource>, ConfigError> {
    let mut resources = Vec::new();
    for node in list {
        let mut fields = node.fields()?;
        let name_node = fields.take("name");
        let ignored_by_scheduler = fields.flag("ignoredByScheduler")?;
        fields.done()?;
        let name = name_node.as_ref().map(Node::text).transpose()?.unwrap_or_default();
        let invalid = |rule: String| FieldProblem::Invalid { value: quoted(name), rule }.at(&node.path.field("name"));
        if let Some(problem) = extended_resource_problem(name) {
            return Err(invalid(problem));
        }
        if !managed.insert(name) {
            return Err(invalid("duplicate extender managed resource name".to_owned()));
        }
        resources.push(ManagedResource { name: name.to_owned(), ignored_by_scheduler });
    }
    Ok(resources)
}

fn tls(node: &Node<'_>) -> Result<ExtenderTls, ConfigError> {
    let mut fields = node.fields()?;
    let tls = ExtenderTls {
        insecure: fields.flag("insecure")?,
        server_name: fields.filled_text("serverName")?,
        cert_file: fields.filled_text("certFile")?.map(PathBuf::from),
        key_file: fields.filled_text("keyFile")?.map(PathBuf::from),
        ca_file: fields.filled_text("caFile")?.map(PathBuf::from),
        cert_data: data(&mut fields, "certData")?,
        key_data: data(&mut fields, "keyData")?,
        ca_data: data(&mut fields, "caData")?,
    };
    fields.done()?;
    if tls.insecure && (tls.ca_file.is_some() || tls.ca_data.is_some()) {
        let why = "specifying a root certificates file with the insecure flag is not allowed";
        return Err(FieldProblem::Unusable(why.to_owned()).at(&node.path));
    }
    Ok(tls)
}

/// Base64. The message does not show it: it may be a key.
fn data(fields: &mut Fields<'_>, name: &str) -> Result<Option<Vec<u8>>, ConfigError> {
    let Some(node) = fields.take(name) else { return Ok(None) };
    let decoded = node.value.as_str().and_then(|text| {
        // As in Go, line breaks do not count.
        let text: String = text.chars().filter(|it| !matches!(it, '\r' | '\n')).collect();
        STANDARD.decode(text).ok()
    });
    match decoded {
        Some(bytes) => Ok(Some(bytes).filter(|bytes| !bytes.is_empty())),
        None => Err(FieldProblem::Unusable("must be a string in base64".to_owned()).at(&node.path)),
    }
}
