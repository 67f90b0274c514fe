//! The embedded world, running: both servers on loopback, time passing, and the files that clients need.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use simulator::chronicle::Entry;
use simulator::kubernetes::placer::{self, PlacerConfig};
use simulator::seed::Seed;
use simulator::{Clock, SimTime, World, certificate, control, kubernetes, serve, vcenter, world};
use tokio::task::JoinSet;

use crate::command::PortArguments;
use crate::failure::Failure;
use crate::service::settings::{ConnectionArguments, ReachArguments, RunArguments, RunSettings};
use crate::signals;

pub struct Embedded {
    world: Arc<World>,
    vcenter: SocketAddr,
    credentials: String,
    folder: Folder,
    // Dropping it ends the servers and the passing of time.
    _tasks: JoinSet<()>,
}

/// A folder of our own for the kubeconfig and the certificate, gone when we are.
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

impl Embedded {
    pub async fn start(
        config: &world::Config,
        speed: f64,
        ports: &PortArguments,
        placer: Option<PlacerConfig>,
    ) -> Result<Embedded, Failure> {
        // Bound first: a port in use is told before a large world is built.
        let (kubernetes_listener, kubernetes) = bind(ports.kubernetes_port, "--kubernetes-port").await?;
        let (vcenter_listener, vcenter) = bind(ports.vcenter_port, "--vcenter-port").await?;
        let tls = certificate::for_loopback().context("preparing TLS")?;
        let world = World::new(config, Clock::starting_at(wall_clock(), speed));

        let folder = Folder::create()?;
        folder.write("kubeconfig", &kubeconfig(kubernetes))?;
        folder.write("ca.pem", &tls.authority_pem)?;

        let mut tasks = JoinSet::new();
        let with_control = |router: axum::Router| router.nest("/simulator", control::router(world.clone()));
        tasks.spawn(world.clone().run());
        tasks.spawn(serve::serve(kubernetes_listener, with_control(kubernetes::api::router(world.clone())), None));
        tasks.spawn(serve::serve(
            vcenter_listener,
            with_control(vcenter::wire::router(world.clone())),
            Some(tls.server),
        ));
        if let Some(placer) = placer {
            tasks.spawn(placer::run(world.clone(), placer));
        }
        let credentials = format!("{}:{}", config.vcenter.username.replace('@', "%40"), config.vcenter.password);
        Ok(Embedded { world, vcenter, credentials, folder, _tasks: tasks })
    }

    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The lines to paste into another terminal.
    pub fn exports(&self) -> String {
        let folder = self.folder.0.display();
        format!(
            "export KUBECONFIG={folder}/kubeconfig\n\
             export GOVC_URL=https://{}@{}/sdk GOVC_TLS_CA_CERTS={folder}/ca.pem",
            self.credentials, self.vcenter
        )
    }

    /// How Bridger itself is told to run on this world: by the same settings as on a real one.
    pub fn run_settings(&self) -> Result<RunSettings, Failure> {
        let arguments = RunArguments {
            connection: ConnectionArguments {
                reach: ReachArguments {
                    ca_file: Some(self.folder.0.join("ca.pem")),
                    kubeconfig: Some(self.folder.0.join("kubeconfig")),
                    ..ReachArguments::default()
                },
                ..ConnectionArguments::default()
            },
            port: Some(0),
            ..RunArguments::default()
        };
        let url = format!("https://{}@{}/sdk", self.credentials, self.vcenter);
        RunSettings::resolve(&arguments, |name| (name == "GOVC_URL").then(|| url.clone()))
    }

    /// Hands over each thing that happens from now on, until Ctrl-C or SIGTERM.
    pub async fn narrate(&self, mut tell: impl FnMut(&Entry)) {
        let mut happenings = self.world.happenings();
        let mut next = self.world.with(|core, _| core.chronicle.next_number());
        let interrupted = signals::interrupted();
        tokio::pin!(interrupted);
        loop {
            let (entries, number) = self.world.with(|core, _| {
                (core.chronicle.since(next).cloned().collect::<Vec<_>>(), core.chronicle.next_number())
            });
            next = number;
            entries.iter().for_each(&mut tell);
            tokio::select! {
                biased;
                () = &mut interrupted => return,
                changed = happenings.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// The built-in placer, asking an extender if one is given.
pub fn placer(seed: Seed, extender: Option<&str>) -> Result<PlacerConfig, Failure> {
    let mut config = PlacerConfig { seed, ..PlacerConfig::default() };
    if let Some(url) = extender {
        if !url.starts_with("http://") {
            return Err(Failure::configuration(
                format!("the extender's address {url:?} does not begin with http://"),
                "give it as http://127.0.0.1:12346",
            ));
        }
        config.extenders.push(placer::ExtenderConfig::new(url, placer::Transport::http()));
    }
    Ok(config)
}

async fn bind(port: u16, flag: &str) -> Result<(tokio::net::TcpListener, SocketAddr), Failure> {
    serve::bind(port).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::configuration(
            format!("port {port} is in use"),
            format!("choose another with {flag}, or {flag} 0 for any free one"),
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

/// Only this user may read it.
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
