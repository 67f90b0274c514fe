//! The objects that install Bridger in a cluster: the Helm chart in `deploy/chart`, and `bridger manifests all`.
//!
//! In: values. Out: Kubernetes objects. Both are made from one description (`objects/`, of the building blocks in
//! `template.rs`) and one list of values (`values.rs`), so they cannot differ: `chart.rs` prints it as a chart,
//! `render.rs` inserts values. A golden test compares the chart, and writes it (`BRIDGER_GOLDEN=write`).

mod chart;
mod objects;
mod render;
mod template;
mod values;

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use chart::document;
pub use values::{ValuesError, put};

/// The objects of an installation, in the order in which they are created. `given`: values other than the defaults.
pub fn objects_with(given: &Value, namespace: &str) -> Result<Vec<Value>, ValuesError> {
    let values = values::complete(given)?;
    let installation = render::Installation { namespace, values: &values };
    Ok(objects::all().iter().filter_map(|template| render::object(template, installation)).collect())
}

/// The files of the chart.
#[must_use]
pub fn chart_files() -> BTreeMap<String, String> {
    let about = json!({
        "apiVersion": "v2",
        "name": "bridger",
        "description": "Makes the Kubernetes scheduler and vSphere DRS agree",
        "type": "application",
        "version": env!("CARGO_PKG_VERSION"),
        "appVersion": env!("CARGO_PKG_VERSION"),
        "kubeVersion": ">=1.30.0-0",
    });
    let schema = serde_json::to_string_pretty(&values::schema()).unwrap_or_default();
    let mut files = BTreeMap::from([
        ("Chart.yaml".to_owned(), document(&about)),
        ("values.yaml".to_owned(), values::file()),
        ("values.schema.json".to_owned(), format!("{schema}\n")),
        ("templates/NOTES.txt".to_owned(), NOTES.to_owned()),
    ]);
    for template in objects::all() {
        files.insert(format!("templates/{}.yaml", template.file), chart::file(&template));
    }
    files
}

const NOTES: &str = "\
Bridger {{ .Chart.AppVersion }} is installed in namespace {{ .Release.Namespace }}.

  kubectl -n {{ .Release.Namespace }} logs deployment/{{ .Values.name }}
  kubectl get nodes -L alpha.cna.vmware.com/host
{{- if .Values.dryRun }}

It writes nothing (dryRun). Its log says what it would write.
{{- end }}
{{- if not .Values.vcenters }}

No vCenter is given: set vcenters.
{{- end }}
{{- if .Values.parts.extender }}

kube-scheduler reaches the extender at https://{{ .Values.name }}-extender.{{ .Release.Namespace }}.svc/v1; print its configuration with
  bridger manifests scheduler-config --url https://{{ .Values.name }}-extender.{{ .Release.Namespace }}.svc/v1
{{- end }}
";
