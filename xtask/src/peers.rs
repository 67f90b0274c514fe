//! `cargo xtask peers`.

use std::time::Duration;

use anyhow::Result;
use peers::{Cache, Peers, Progress, Scope};

/// Builds the real programs that the tests run against: etcd, kube-apiserver, kube-controller-manager, kube-scheduler,
/// kubectl, vcsim, govc.
///
/// They are built from the Go module registry at the versions pinned in tests/peers/, and kept in $BRIDGER_PEERS
/// (default: bridger/peers in your cache folder), so every clone shares them. About 6 minutes the first time on two
/// cores, instant afterwards. Needs Go; nothing else.
#[derive(clap::Args)]
pub struct Arguments {
    /// Also the programs of the e2e tier: Kubernetes' own e2e suite, and kwok (about 8 minutes more the first time).
    #[arg(long)]
    e2e: bool,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    build_for(if arguments.e2e { Scope::E2e } else { Scope::Default })?;
    Ok(())
}

/// Builds what is missing of the programs of the default run, and prints progress.
pub fn build() -> Result<Peers> {
    build_for(Scope::Default)
}

/// The same for a scope.
pub fn build_for(scope: Scope) -> Result<Peers> {
    let cache = Cache::from_environment()?;
    let peers = peers::build(&cache, scope, |progress| match progress {
        Progress::Waiting => println!("peers: another process is building into this cache; waiting for it"),
        Progress::Started { recipe, programs } => println!("peers: building {recipe} ({})", programs.join(", ")),
        Progress::Compiling { recipe, packages, latest, elapsed } => {
            println!("peers: {recipe}: {packages} packages compiled in {} (now {latest})", minutes(elapsed));
        }
        Progress::Finished { recipe, elapsed } => println!("peers: {recipe} built in {}", minutes(elapsed)),
    })?;
    println!("peers: ready in {}", cache.root().display());
    Ok(peers)
}

pub fn minutes(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        format!("{} min {:02} s", seconds / 60, seconds % 60)
    }
}
