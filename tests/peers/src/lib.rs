//! Builds the real programs that Bridger is tested against from the Go module registry, in a cache outside the clone.
//!
//! In: the recipes in this crate (`kubernetes/`, `etcd/`, `vsphere/`, `kwok/`: a go.mod each, pinned by its go.sum, and small
//! mains that the registry lacks). Out: one folder of programs per recipe in the cache.
//!
//! Invariants:
//! - A recipe's folder is named by the hash of all its inputs, so a changed recipe gets another folder.
//! - A folder is moved into place when complete, so an interrupted build leaves no incomplete folder.
//! - A lock on the cache serialises builds; a build that waits for it reports so.

mod build;
mod cache;
mod recipe;
mod toolchain;

pub use build::{Progress, build};
pub use cache::{Cache, Peers};
pub use recipe::{Program, RECIPES, Recipe, Scope};

#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    #[error(
        "Go is not installed: there is no `go` on the PATH.\nInstall Go {needed} or newer, then run this again; the test peers \
         (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, vcsim, govc) are built with it"
    )]
    GoMissing { needed: String },
    #[error(
        "Go {found} is too old to build the test peers.\nInstall Go {needed} or newer, or put it first on the PATH, then run this again"
    )]
    GoTooOld { found: String, needed: String },
    #[error("`go version` printed {0:?}, which cannot be parsed")]
    GoUnknown(String),
    #[error("no cache folder: $BRIDGER_PEERS, $XDG_CACHE_HOME and $HOME are not set.\nSet BRIDGER_PEERS to a folder")]
    NoCacheFolder,
    #[error("the test peers of recipe {recipe:?} are not built.\nRun `{command}`")]
    NotBuilt { recipe: &'static str, command: &'static str },
    #[error("`{command}` failed ({status}); its last output:\n{tail}")]
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
