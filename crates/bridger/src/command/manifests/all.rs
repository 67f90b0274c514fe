//! `bridger manifests all`: everything that installs Bridger, for those who do not use Helm.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::files;
use crate::install::{self, ValuesError};

/// Print everything that installs Bridger in a cluster, as the Helm chart does
///
/// Values are those of deploy/chart/values.yaml. For example: bridger manifests all -f values.yaml --set dryRun=true |
/// kubectl apply -f -
#[derive(Debug, clap::Args)]
pub struct All {
    /// Namespace that everything is installed into
    #[arg(long, short, value_name = "NAMESPACE", default_value = "bridger-system")]
    namespace: String,
    /// File with values, YAML or JSON
    #[arg(long, short = 'f', value_name = "FILE")]
    values: Option<PathBuf>,
    /// One value, as YAML; overrides the file; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Print no Namespace, because it exists
    #[arg(long)]
    no_namespace: bool,
}

impl All {
    pub fn to_yaml(&self) -> Result<String, Failure> {
        let values = self.given()?;
        let objects = install::objects_with(&values, &self.namespace).map_err(|error| wrong(&error))?;
        // The restricted level of Kubernetes' pod security standards: Bridger needs nothing more.
        let namespace = (!self.no_namespace).then(|| {
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace,
                "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } })
        });
        let documents = namespace.iter().chain(&objects).map(install::document);
        Ok(documents.collect::<Vec<_>>().join("---\n"))
    }

    fn given(&self) -> Result<Value, Failure> {
        let mut values = match &self.values {
            None => json!({}),
            Some(path) => {
                let text = files::read_text(path, files::VALUES)?;
                serde_saphyr::from_str(&text).map_err(|error| {
                    let what = format!("{}: {}", path.display(), files::cannot_parse(&error));
                    Failure::configuration(what, "values are a map, as YAML or JSON")
                })?
            }
        };
        if values.is_null() {
            values = json!({});
        }
        if !values.is_object() {
            return Err(wrong(&ValuesError::NoMap));
        }
        for assignment in &self.set {
            let parsed = assignment.split_once('=').and_then(|(path, text)| {
                let value: Value = serde_saphyr::from_str(text).ok()?;
                Some((path, value))
            });
            let (path, value) = parsed.ok_or_else(|| {
                Failure::configuration(
                    format!("--set {assignment:?} is not PATH=VALUE"),
                    "for example --set replicas=1 --set image.tag=1.2.3",
                )
            })?;
            install::put(&mut values, path, value);
        }
        Ok(values)
    }
}

fn wrong(error: &ValuesError) -> Failure {
    let text = error.to_string();
    let (what, hint) = text.split_once('\n').unwrap_or((&text, "see deploy/chart/values.yaml"));
    Failure::configuration(what, hint)
}
