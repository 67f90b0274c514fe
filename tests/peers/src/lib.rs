//! The real programs that Bridger is tested against, built from the Go module registry and kept outside the clone.
//!
//! Input: the recipes beside this crate (`kubernetes/`, `etcd/`, `vsphere/`: a go.mod each, pinned by its go.sum, and
//! the small mains that the registry lacks). Output: one folder of programs per recipe in the cache.
//!
//! Invariants:
//! - A recipe's folder is named by the hash of all that goes into it: a changed recipe is another folder.
//! - A folder is moved into place whole, so what is there is complete, however a build ended.
//! - Builds are serialised by a lock on the cache; whoever waits says so.

mod build;
mod cache;
mod recipe;
mod toolchain;

pub use build::{Progress, build};
pub use cache::{Cache, Peers};
pub use recipe::{Program, RECIPES, Recipe};

#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    #[error(
        "Go is not installed: there is no `go` on the PATH.\nInstall Go {needed} or newer, then run this again; the test peers \
         (etcd, kube-apiserver, kube-scheduler, kubectl, vcsim, govc) are built with it"
    )]
    GoMissing { needed: String },
    #[error(
        "Go {found} is too old to build the test peers.\nInstall Go {needed} or newer, or put it first on the PATH, then run this again"
    )]
    GoTooOld { found: String, needed: String },
    #[error("`go version` answered {0:?}, which is not understood")]
    GoUnknown(String),
    #[error(
        "there is neither $BRIDGER_PEERS nor $XDG_CACHE_HOME nor $HOME to keep the test peers in.\nSet BRIDGER_PEERS to a folder"
    )]
    NoCacheFolder,
    #[error("the test peers of recipe {0:?} are not built.\nRun `cargo xtask peers`")]
    NotBuilt(&'static str),
    #[error("`{command}` failed ({status}); its last words:\n{tail}")]
    BuildFailed { command: String, status: String, tail: String },
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

impl PeersError {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> PeersError {
        let what = what.into();
        move |source| PeersError::Io { what, source }
    }
}
