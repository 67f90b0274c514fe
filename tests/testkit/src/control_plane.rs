//! Runs etcd and kube-apiserver, with RBAC on as in a real cluster.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use peers::Peers;
use tokio::sync::OnceCell;

use crate::command::Kubectl;
use crate::pki::{self, Authority, Identity};
use crate::ports;
use crate::process::Process;
use crate::wait::eventually;
use crate::workdir::Workdir;

/// A running control plane. Its processes stop when this value is dropped.
pub struct ControlPlane {
    // Fields drop in this order: the API server before etcd, the folder last.
    apiserver: Process,
    _etcd: Process,
    authority: Authority,
    url: String,
    kubeconfig: PathBuf,
    peers: Peers,
    apiserver_arguments: Vec<String>,
    workdir: Workdir,
}

/// Attempts to start, because another process may take a port in the meantime.
const ATTEMPTS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(60);
const SERVICE_ACCOUNT: &str = "ServiceAccount";
const AUTHORITY: &str = "ca.crt";
const SIGNING_KEY: &str = "service-account.key";

impl ControlPlane {
    pub async fn start() -> Result<ControlPlane> {
        ControlPlane::start_with(&[]).await
    }

    /// Starts with additional flags for the API server.
    pub async fn start_with(extra: &[&str]) -> Result<ControlPlane> {
        let mut attempt = 1;
        loop {
            match ControlPlane::try_start(extra).await {
                Ok(control_plane) => return Ok(control_plane),
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.context("starting a control plane")),
            }
        }
    }

    /// The control plane that all tests of this binary share. Each test uses its own namespace
    /// ([`ControlPlane::namespace`]).
    pub async fn shared() -> &'static ControlPlane {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        let start = || async { ControlPlane::start().await.unwrap_or_else(|error| panic!("{error:?}")) };
        SHARED.get_or_init(start).await
    }

    async fn try_start(extra: &[&str]) -> Result<ControlPlane> {
        let peers = Peers::locate()?;
        let workdir = Workdir::create("control-plane").context("creating a folder")?;
        let [client_port, peer_port, api_port] = ports::free()?;
        let etcd_url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd = Process::start(
            workdir.path(),
            "etcd",
            &peers.program("etcd"),
            &[
                format!("--data-dir={}", workdir.join("etcd").display()),
                format!("--listen-client-urls={etcd_url}"),
                format!("--advertise-client-urls={etcd_url}"),
                format!("--listen-peer-urls={peer_url}"),
                format!("--initial-advertise-peer-urls={peer_url}"),
                format!("--initial-cluster=default={peer_url}"),
                "--unsafe-no-fsync".to_owned(),
                "--log-level=warn".to_owned(),
            ],
        )?;

        let authority = Authority::create("testkit")?;
        let ca = workdir.write(AUTHORITY, authority.certificate())?;
        let server = authority.server()?;
        let certificate = workdir.write("server.crt", &server.certificate)?;
        let key = workdir.write("server.key", &server.key)?;
        let (signing_key, checking_key) = pki::token_keys()?;
        let signing_key = workdir.write(SIGNING_KEY, signing_key)?;
        let checking_key = workdir.write("service-account.pub", checking_key)?;
        let mut arguments = vec![
            format!("--etcd-servers={etcd_url}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={api_port}"),
            format!("--tls-cert-file={}", certificate.display()),
            format!("--tls-private-key-file={}", key.display()),
            format!("--client-ca-file={}", ca.display()),
            format!("--service-account-key-file={}", checking_key.display()),
            format!("--service-account-signing-key-file={}", signing_key.display()),
            format!("--service-account-issuer=https://127.0.0.1:{api_port}"),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--external-hostname=127.0.0.1".to_owned(),
            // A loopback address must not become the endpoint of the Service `kubernetes`.
            "--endpoint-reconciler-type=none".to_owned(),
        ];
        if !extra.iter().any(|flag| flag.contains(SERVICE_ACCOUNT)) {
            // Without kube-controller-manager no service accounts are created, and pods need none.
            arguments.push(format!("--disable-admission-plugins={SERVICE_ACCOUNT}"));
        }
        arguments.extend(extra.iter().map(|&flag| flag.to_owned()));
        let apiserver = Process::start(workdir.path(), "kube-apiserver", &peers.program("kube-apiserver"), &arguments)?;
        let url = format!("https://127.0.0.1:{api_port}");
        let admin = authority.client("admin", &["system:masters"])?;
        let kubeconfig = workdir.write("admin.kubeconfig", kubeconfig(&url, &authority, &admin))?;
        let mut control_plane = ControlPlane {
            apiserver,
            _etcd: etcd,
            authority,
            url,
            kubeconfig,
            peers,
            apiserver_arguments: arguments,
            workdir,
        };
        control_plane.ready().await?;
        Ok(control_plane)
    }

    async fn ready(&mut self) -> Result<()> {
        let client = self.client().await?;
        let deadline = tokio::time::Instant::now() + READY_WITHIN;
        loop {
            // When ready, the default RBAC roles exist, too; the namespace `default` may follow a moment later.
            let answer = tokio::time::timeout(Duration::from_secs(5), async {
                client.request_text(http_get("/readyz")?).await?;
                client.request_text(http_get("/api/v1/namespaces/default")?).await?;
                anyhow::Ok(())
            });
            match answer.await {
                Ok(Ok(())) => return Ok(()),
                answer if tokio::time::Instant::now() > deadline => {
                    bail!("kube-apiserver is not ready ({answer:?}); end of its log:\n{}", self.apiserver.log_tail());
                }
                _ => (),
            }
            if let Some(status) = self.apiserver.exited() {
                bail!("kube-apiserver exited ({status}); the end of its log:\n{}", self.apiserver.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// An administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// The key that signs the tokens of service accounts.
    pub(crate) fn signing_key(&self) -> PathBuf {
        self.workdir.join(SIGNING_KEY)
    }

    /// The certificate of the authority that clients trust.
    pub(crate) fn authority_file(&self) -> PathBuf {
        self.workdir.join(AUTHORITY)
    }

    /// A kubeconfig for another user, with the permissions that RBAC grants that user or group.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let identity = self.authority.client(user, groups)?;
        let name = format!("{}.kubeconfig", user.replace([':', '/'], "-"));
        Ok(self.workdir.write(&name, kubeconfig(&self.url, &self.authority, &identity))?)
    }

    /// A client with the administrator's identity. It is tied to the runtime that created it: create one per test.
    pub async fn client(&self) -> Result<kube::Client> {
        client_from(&self.kubeconfig).await
    }

    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.peers, &self.kubeconfig)
    }

    /// Creates a namespace for a single test.
    pub async fn namespace(&self, name: &str) -> Result<String> {
        use k8s_openapi::api::core::v1::Namespace;
        let namespaces: kube::Api<Namespace> = kube::Api::all(self.client().await?);
        let object: Namespace = serde_json::from_value(serde_json::json!({ "metadata": { "name": name } }))?;
        namespaces.create(&kube::api::PostParams::default(), &object).await?;
        Ok(name.to_owned())
    }

    /// Kills the API server, like a crash.
    pub fn kill_apiserver(&mut self) {
        self.apiserver.kill_hard();
    }

    /// Starts the API server again on the same port and data.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.apiserver.stop();
        self.apiserver = Process::start(
            self.workdir.path(),
            "kube-apiserver",
            &self.peers.program("kube-apiserver"),
            &self.apiserver_arguments,
        )?;
        self.ready().await
    }

    /// The process id of the API server.
    #[must_use]
    pub fn apiserver_pid(&self) -> Option<u32> {
        self.apiserver.pid()
    }

    /// Waits until a node exists and removes the taint that admission adds to a new node. No controller runs here that
    /// would remove it.
    pub async fn make_schedulable(&self, node: &str) -> Result<()> {
        use k8s_openapi::api::core::v1::Node;
        let nodes: kube::Api<Node> = kube::Api::all(self.client().await?);
        let patch = kube::api::Patch::Merge(serde_json::json!({ "spec": { "taints": null } }));
        eventually(Duration::from_secs(10), || async {
            nodes.patch(node, &kube::api::PatchParams::default(), &patch).await.map_err(|error| anyhow!(error))
        })
        .await?;
        Ok(())
    }
}

/// A kube client for a kubeconfig file.
pub async fn client_from(kubeconfig: &std::path::Path) -> Result<kube::Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    client_of(kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)
}

pub(crate) fn client_of(mut config: kube::Config) -> Result<kube::Client> {
    // Several TLS providers may be linked into a test; this one always is.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Tests need the server's own answer, also if it is 429 or 503.
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}

pub(crate) fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

fn kubeconfig(url: &str, authority: &Authority, identity: &Identity) -> String {
    let encode = |pem: &str| data_encoding(pem.as_bytes());
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{ "name": "test", "cluster": { "server": url, "certificate-authority-data": encode(&authority.certificate()) } }],
        "users": [{ "name": "test", "user": {
            "client-certificate-data": encode(&identity.certificate), "client-key-data": encode(&identity.key) } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    })
    .to_string()
}

fn data_encoding(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
