//! The embedded servers, running: both on loopback ports, with a moving clock and the files that clients need.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use simulator::certificate::Loopback;
use simulator::chronicle::Entry;
use simulator::kubernetes::placer::{self, PlacerConfig};
use simulator::seed::Seed;
use simulator::{Clock, SimTime, World, certificate, control, kubernetes, serve, vcenter, world};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::command::PortArguments;
use crate::failure::Failure;
use crate::signals;

/// Characters to escape in the user part of a URL: all but the unreserved ones of RFC 3986, which also keeps shells
/// from interpreting them.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub struct Embedded {
    world: Arc<World>,
    served: ServedPorts,
    // Dropping it stops the servers and the clock.
    _tasks: JoinSet<()>,
}

/// Ports that are bound but not served yet.
pub struct BoundPorts {
    kubernetes: (TcpListener, SocketAddr),
    vcenter: (TcpListener, SocketAddr),
    tls: Loopback,
    folder: Folder,
}

/// The ports and client files of a served world. Dropping it deletes the files.
pub struct ServedPorts {
    vcenter: SocketAddr,
    credentials: String,
    folder: Folder,
}

/// A private folder for the kubeconfig and the certificate, deleted on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::run(format!("cannot start the runtime: {error}")))
}

impl BoundPorts {
    pub async fn bind(ports: &PortArguments) -> Result<BoundPorts, Failure> {
        let kubernetes = bind(ports.kubernetes_port, "--kubernetes-port").await?;
        let vcenter = bind(ports.vcenter_port, "--vcenter-port").await?;
        let tls = certificate::for_loopback().context("preparing TLS")?;
        let folder = Folder::create()?;
        folder.write("kubeconfig", &kubeconfig(kubernetes.1))?;
        folder.write("ca.pem", &tls.authority_pem)?;
        Ok(BoundPorts { kubernetes, vcenter, tls, folder })
    }

    /// Serves the world on these ports, in these tasks.
    pub fn serve(self, world: &Arc<World>, config: &world::Config, tasks: &mut JoinSet<()>) -> ServedPorts {
        let with_control = |router: axum::Router| router.nest("/simulator", control::router(world.clone()));
        let kubernetes = with_control(kubernetes::api::router(world.clone()));
        tasks.spawn(serve::serve(self.kubernetes.0, kubernetes, None));
        let vcenter = with_control(vcenter::wire::router(world.clone()));
        tasks.spawn(serve::serve(self.vcenter.0, vcenter, Some(self.tls.server)));
        let escaped = |text| utf8_percent_encode(text, RESERVED);
        let credentials = format!("{}:{}", escaped(&config.vcenter.username), escaped(&config.vcenter.password));
        ServedPorts { vcenter: self.vcenter.1, credentials, folder: self.folder }
    }
}

impl ServedPorts {
    /// Writes the lines of [`Self::exports`] to a file, for `. FILE`.
    pub fn exports_file(&self) -> Result<PathBuf, Failure> {
        self.folder.write("env", &format!("{}\n", self.exports()))?;
        Ok(self.folder.0.join("env"))
    }

    /// The `export` lines to paste into another terminal.
    pub fn exports(&self) -> String {
        let folder = self.folder.0.display();
        format!(
            "export KUBECONFIG={folder}/kubeconfig\n\
             export GOVC_URL=https://{}@{}/sdk GOVC_TLS_CA_CERTS={folder}/ca.pem",
            self.credentials, self.vcenter
        )
    }
}

impl Embedded {
    pub async fn start(
        config: &world::Config,
        speed: f64,
        ports: &PortArguments,
        placer: Option<PlacerConfig>,
    ) -> Result<Embedded, Failure> {
        // Bound first: a port in use is reported before a large world is built.
        let bound = BoundPorts::bind(ports).await?;
        let world = World::new(config, Clock::starting_at(wall_clock(), speed));
        let mut tasks = JoinSet::new();
        tasks.spawn(world.clone().run());
        let served = bound.serve(&world, config, &mut tasks);
        if let Some(placer) = placer {
            tasks.spawn(placer::run(world.clone(), placer));
        }
        Ok(Embedded { world, served, _tasks: tasks })
    }

    pub fn exports(&self) -> String {
        self.served.exports()
    }

    /// Passes each event from now on to `show`, until Ctrl-C or SIGTERM.
    pub async fn follow_events(&self, mut show: impl FnMut(&Entry)) {
        let mut happenings = self.world.happenings();
        let mut next = self.world.with(|core, _| core.chronicle.next_number());
        let interrupted = signals::interrupted();
        tokio::pin!(interrupted);
        loop {
            let (entries, number) = self.world.with(|core, _| {
                (core.chronicle.since(next).cloned().collect::<Vec<_>>(), core.chronicle.next_number())
            });
            next = number;
            entries.iter().for_each(&mut show);
            tokio::select! {
                biased;
                () = &mut interrupted => return,
                changed = happenings.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// The configuration of the embedded scheduler, with an extender if one is given.
pub fn placer(seed: Seed, extender: Option<&str>) -> Result<PlacerConfig, Failure> {
    let mut config = PlacerConfig { seed, ..PlacerConfig::default() };
    if let Some(url) = extender {
        if !url.starts_with("http://") {
            return Err(Failure::configuration(
                format!("the extender URL {url:?} does not begin with http://"),
                "use for example http://127.0.0.1:12346",
            ));
        }
        config.extenders.push(placer::ExtenderConfig::new(url, placer::Transport::http()));
    }
    Ok(config)
}

pub async fn bind(port: u16, flag: &str) -> Result<(TcpListener, SocketAddr), Failure> {
    serve::bind(port).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::configuration(
            format!("port {port} is in use"),
            format!("choose another port with {flag}, or use {flag} 0 for any free port"),
        ),
        _ => Failure::run(format!("cannot listen on port {port}: {error}")),
    })
}

fn wall_clock() -> SimTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    SimTime { unix_ms: u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX) }
}

impl Folder {
    fn create() -> Result<Folder, Failure> {
        let path = std::env::temp_dir().join(format!("bridger-sandbox-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        restrict(&path)?;
        Ok(Folder(path))
    }

    fn write(&self, name: &str, content: &str) -> Result<(), Failure> {
        let path = self.0.join(name);
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        Ok(())
    }
}

/// Makes the folder accessible to this user only.
fn restrict(path: &Path) -> anyhow::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("protecting {}", path.display()))?;
    }
    Ok(())
}

fn kubeconfig(address: SocketAddr) -> String {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{ "name": "sandbox", "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": "sandbox", "user": {} }],
        "contexts": [{ "name": "sandbox", "context": { "cluster": "sandbox", "user": "sandbox" } }],
    });
    format!("{config:#}\n")
}
