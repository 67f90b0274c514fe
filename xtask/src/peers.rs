//! `cargo xtask peers`.

use std::time::Duration;

use anyhow::Result;
use peers::{Cache, Peers, Progress};

/// Builds the real programs that the tests run against: etcd, kube-apiserver, kube-scheduler, kubectl, vcsim, govc.
///
/// They are built from the Go module registry at the versions pinned in tests/peers/, and kept in $BRIDGER_PEERS
/// (default: bridger/peers in your cache folder), so every clone shares them. About 6 minutes the first time on two
/// cores, instant afterwards. Needs Go; nothing else.
#[derive(clap::Args)]
pub struct Arguments {}

pub fn run(_: &Arguments) -> Result<()> {
    build()?;
    Ok(())
}

/// Builds missing recipes and prints progress.
pub fn build() -> Result<Peers> {
    let cache = Cache::from_environment()?;
    let peers = peers::build(&cache, |progress| match progress {
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
