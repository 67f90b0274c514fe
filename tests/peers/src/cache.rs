//! The cache of built programs.

use std::env;
use std::path::{Path, PathBuf};

use crate::{PeersError, Recipe, Scope};

/// A folder with one subfolder per recipe and key.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `$BRIDGER_PEERS`, else `bridger/peers` in the user's cache folder.
    pub fn from_environment() -> Result<Cache, PeersError> {
        let folder = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let root = folder("BRIDGER_PEERS")
            .or_else(|| folder("XDG_CACHE_HOME").map(|cache| cache.join("bridger/peers")))
            .or_else(|| folder("HOME").map(|home| home.join(".cache/bridger/peers")))
            .ok_or(PeersError::NoCacheFolder)?;
        Ok(Cache::at(root))
    }

    #[must_use]
    pub fn at(root: PathBuf) -> Cache {
        Cache { root }
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn folder(&self, recipe: &Recipe) -> Result<PathBuf, PeersError> {
        Ok(self.root.join(recipe.key()?))
    }

    /// Whether the recipe's folder exists. It is moved there only when complete.
    pub fn has(&self, recipe: &Recipe) -> Result<bool, PeersError> {
        Ok(self.folder(recipe)?.is_dir())
    }

    /// The programs of a scope's recipes, or an error that names a recipe that is not built.
    pub fn peers(&self, scope: Scope) -> Result<Peers, PeersError> {
        let mut folders = Vec::new();
        for recipe in scope.recipes() {
            if !self.has(recipe)? {
                let command = match recipe.scope {
                    Scope::Default => "cargo xtask peers",
                    Scope::E2e => "cargo xtask peers --e2e",
                };
                return Err(PeersError::NotBuilt { recipe: recipe.name, command });
            }
            folders.push((recipe, self.folder(recipe)?));
        }
        Ok(Peers { folders })
    }
}

/// The programs of a scope, built.
#[derive(Clone, Debug)]
pub struct Peers {
    folders: Vec<(&'static Recipe, PathBuf)>,
}

impl Peers {
    /// The programs in this user's cache that tests of the default run need.
    pub fn locate() -> Result<Peers, PeersError> {
        Peers::locate_for(Scope::Default)
    }

    /// The programs of a scope in this user's cache.
    pub fn locate_for(scope: Scope) -> Result<Peers, PeersError> {
        Cache::from_environment()?.peers(scope)
    }

    /// The path of `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubectl`, `scheduler-judge`,
    /// `scheduler-recorder`, `vcsim` or `govc`; of the larger scope also of `e2e.test` or `kwok`.
    ///
    /// # Panics
    /// If no recipe of the scope builds a program of that name, which is a bug in the caller.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        let found = self.folders.iter().find(|(recipe, _)| recipe.programs.iter().any(|program| program.name == name));
        match found {
            Some((_, folder)) => folder.join(name),
            None => panic!("no recipe builds a program named {name}"),
        }
    }
}
