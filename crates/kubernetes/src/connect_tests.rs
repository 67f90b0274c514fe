//! Valid and invalid credentials, and the error line of each fault.

use std::ffi::OsString;

use tempfile::TempDir;

use super::*;

const GOOD: &str = r#"
apiVersion: v1
kind: Config
current-context: one
clusters: [{ name: c1, cluster: { server: "https://user:pw@api.example.com:6443" } }]
users: [{ name: u1, user: { token: s3cret } }]
contexts:
- { name: one, context: { cluster: c1, user: u1 } }
- { name: stray, context: { cluster: nowhere, user: u1 } }
"#;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    folder
}

async fn outcome(folder: &TempDir, names: &[&str], context: Option<&str>) -> Result<Connection, String> {
    let paths = names.iter().map(|name| folder.path().join(name)).collect();
    let credentials = KubernetesCredentials::Kubeconfig { paths, context: context.map(str::to_owned) };
    let prefix = format!("{}/", folder.path().display());
    connect(&credentials).await.map_err(|error| error.to_string().replace(&prefix, ""))
}

#[test]
fn credentials_are_chosen_in_order() {
    let kubeconfig = |paths: &[&str]| KubernetesCredentials::Kubeconfig {
        paths: paths.iter().map(PathBuf::from).collect(),
        context: Some("c".to_owned()),
    };
    let several = std::env::join_paths(["a", "", "b"]).expect("a list");
    let cases = [
        (Some("given"), Some(OsString::from("a")), kubeconfig(&["given"])),
        (None, Some(OsString::from("a")), kubeconfig(&["a"])),
        (None, Some(several), kubeconfig(&["a", "b"])),
        (None, Some(OsString::new()), KubernetesCredentials::ServiceAccount),
        (None, None, KubernetesCredentials::ServiceAccount),
    ];
    for (path, variable, expected) in cases {
        assert_eq!(KubernetesCredentials::choose(path.map(Path::new), variable.as_deref(), Some("c")), expected);
    }
}

#[tokio::test]
async fn a_kubeconfig_gives_a_client_and_an_address_without_its_password() {
    let folder = folder(&[("good", GOOD), ("empty", "")]);
    for files in [&["good"][..], &["missing", "good"], &["empty", "good"]] {
        let connection = outcome(&folder, files, None).await.unwrap_or_else(|error| panic!("{files:?}: {error}"));
        assert_eq!(connection.server, "https://api.example.com:6443");
    }
}

#[tokio::test]
async fn each_fault_of_a_kubeconfig_is_one_clear_line() {
    let certificate = GOOD.replace("token: s3cret", "client-certificate: /nowhere/c.pem, client-key: /nowhere/k.pem");
    let folder = folder(&[
        ("good", GOOD),
        ("no-current", &GOOD.replace("current-context: one", "")),
        ("empty", ""),
        ("broken", "users: [{ name: u1, user: { token: s3cret"),
        ("not-a-config", "users: s3cret"),
        ("url", &GOOD.replace("https://user:pw@api.example.com:6443", "https://a b")),
        ("certificate", &certificate),
    ]);
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    let cases = [
        (&["missing"][..], None, "kubeconfig missing does not exist"),
        (&["missing", "gone"], None, "kubeconfig missing, gone does not exist"),
        (&["folder"], None, "kubeconfig folder can't be read: Is a directory"),
        (&["good"], Some("two"), "kubeconfig good has no context \"two\"; its contexts: one, stray"),
        (&["good"], Some("stray"), "kubeconfig good has no cluster \"nowhere\", which its context names"),
        (&["no-current"], None, "kubeconfig no-current sets no current-context; its contexts: one, stray"),
        (&["empty"], None, "kubeconfig empty sets no current-context; its contexts: none"),
        (&["broken"], None, "kubeconfig broken can't be used: it is not a valid kubeconfig in YAML at line 1"),
        (&["not-a-config"], None, "kubeconfig not-a-config can't be used: it is not a valid kubeconfig in YAML"),
        (&["url"], None, "kubeconfig url can't be used: failed to parse cluster url"),
        (&["certificate"], None, "kubeconfig certificate can't be used: "),
    ];
    for (files, context, expected) in cases {
        let Err(error) = outcome(&folder, files, context).await else { panic!("{files:?} is accepted") };
        assert!(error.starts_with(expected), "{error}\nexpected: {expected}");
        assert!(!error.contains("s3cret") && !error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn errors_of_the_first_request_are_distinguished() {
    use kube::core::Status;
    let api = |code| kube::Error::Api(Status::failure("why", "").with_code(code).boxed());
    let tls = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
    let cases = [
        (api(401), "does not accept these credentials (401 Unauthorized)"),
        (api(502), "gave an unexpected answer: HTTP 502: why"),
        (
            kube::Error::Service(Box::new(std::io::Error::new(std::io::ErrorKind::InvalidData, tls))),
            "is not trusted: UnknownIssuer",
        ),
        (
            kube::Error::Service(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))),
            "can't be reached: connection refused",
        ),
        (
            kube::Error::Service(Box::new(BoundExceeded::Time(Duration::from_secs(30)))),
            "can't be reached: no answer within 30 s",
        ),
        (
            kube::Error::Service(Box::new(BoundExceeded::Size(9))),
            "gave an unexpected answer: the answer is longer than 9 bytes",
        ),
    ];
    for (error, expected) in cases {
        let text = classify("https://api:6443", &error).to_string();
        assert!(text.contains(expected) && text.contains("https://api:6443"), "{text}\nexpected: {expected}");
    }
}
