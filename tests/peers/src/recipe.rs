//! The recipes: which programs come from which Go module.
//!
//! Programs of one module share its go.mod. kube-controller-manager is in the recipe of kube-apiserver, with which it shares
//! nearly all packages: only linking it takes time. The e2e suite is built from the same module, but in a recipe of its own,
//! because it compiles many packages that only one tier needs.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::PeersError;

/// Programs that are built together from a Go module. Go files in the folders of its own programs are part of the recipe.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    pub name: &'static str,
    pub scope: Scope,
    /// The folder of the go.mod.
    module: &'static str,
    pub programs: &'static [Program],
    /// The module whose version is stamped into the programs, as Kubernetes' release builds do.
    stamped_module: Option<&'static str>,
}

/// Which programs are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Those of the tests that always run.
    Default,
    /// These, and those of Kubernetes' own e2e suite, which runs on request.
    E2e,
}

impl Scope {
    pub fn recipes(self) -> impl Iterator<Item = &'static Recipe> {
        RECIPES.iter().filter(move |recipe| recipe.scope <= self)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// The file's name in the cache.
    pub name: &'static str,
    package: &'static str,
}

pub const RECIPES: &[Recipe] = &[
    Recipe {
        name: "vsphere",
        scope: Scope::Default,
        module: "vsphere",
        programs: &[Program { name: "vcsim", package: "./vcsim" }, Program { name: "govc", package: "./govc" }],
        stamped_module: None,
    },
    Recipe {
        name: "etcd",
        scope: Scope::Default,
        module: "etcd",
        programs: &[Program { name: "etcd", package: "go.etcd.io/etcd/server/v3" }],
        stamped_module: None,
    },
    Recipe {
        name: "kubernetes",
        scope: Scope::Default,
        module: "kubernetes",
        programs: &[
            Program { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
            Program { name: "kube-controller-manager", package: "k8s.io/kubernetes/cmd/kube-controller-manager" },
            Program { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler" },
            Program { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl" },
            Program { name: "scheduler-judge", package: "./scheduler-judge" },
            Program { name: "scheduler-recorder", package: "./scheduler-recorder" },
        ],
        stamped_module: Some("k8s.io/kubernetes"),
    },
    Recipe {
        name: "e2e",
        scope: Scope::E2e,
        module: "kubernetes",
        programs: &[Program { name: "e2e.test", package: "./e2e-suite" }],
        stamped_module: Some("k8s.io/kubernetes"),
    },
    Recipe {
        name: "kwok",
        scope: Scope::E2e,
        module: "kwok",
        programs: &[Program { name: "kwok", package: "sigs.k8s.io/kwok/cmd/kwok" }],
        stamped_module: None,
    },
];

impl Program {
    pub(crate) fn package(&self) -> &'static str {
        self.package
    }
}

impl Recipe {
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.module)
    }

    /// go.mod, go.sum, and the files of the recipe's own programs, in a fixed order.
    fn files(&self) -> Result<Vec<PathBuf>, PeersError> {
        let folder = self.folder();
        let mut files = vec![folder.join("go.mod"), folder.join("go.sum")];
        for own in self.programs.iter().filter_map(|program| program.package.strip_prefix("./")) {
            files.extend(files_below(&folder.join(own))?);
        }
        Ok(files)
    }

    /// The folder's name in the cache: a hash of every file of the recipe, the programs, and the platform.
    pub fn key(&self) -> Result<String, PeersError> {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        let what = (self.programs, self.stamped_module, std::env::consts::OS, std::env::consts::ARCH);
        part(format!("{what:?}").as_bytes());
        let folder = self.folder();
        for file in self.files()? {
            let inside = file.strip_prefix(&folder).unwrap_or(&file);
            part(inside.to_string_lossy().as_bytes());
            part(&fs::read(&file).map_err(PeersError::io(format!("reading {}", file.display())))?);
        }
        let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{}-{digest}", self.name))
    }

    /// The linker flags that stamp the version. It is read from go.mod, the only file that contains it.
    pub(crate) fn linker_flags(&self) -> Result<String, PeersError> {
        let mut flags = "-s -w".to_owned();
        if let Some(module) = self.stamped_module {
            let go_mod = self.go_mod()?;
            let version = required_version(&go_mod, module).unwrap_or_default();
            let mut numbers = version.trim_start_matches('v').split('.');
            let variables = [
                ("gitVersion", version),
                ("gitMajor", numbers.next().unwrap_or_default()),
                ("gitMinor", numbers.next().unwrap_or_default()),
                ("gitTreeState", "clean"),
            ];
            for (variable, value) in variables {
                flags.push_str(&format!(" -X k8s.io/component-base/version.{variable}={value}"));
            }
        }
        Ok(flags)
    }

    /// The oldest Go version that builds the recipe: the `go` line of its go.mod.
    pub(crate) fn go_needed(&self) -> Result<String, PeersError> {
        let go_mod = self.go_mod()?;
        Ok(go_mod.lines().find_map(|line| line.strip_prefix("go ")).unwrap_or("1.26.0").trim().to_owned())
    }

    fn go_mod(&self) -> Result<String, PeersError> {
        let file = self.folder().join("go.mod");
        fs::read_to_string(&file).map_err(PeersError::io(format!("reading {}", file.display())))
    }
}

fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten()
    })
}

/// Every file below a folder, in a fixed order.
fn files_below(folder: &Path) -> Result<Vec<PathBuf>, PeersError> {
    let reading = || PeersError::io(format!("reading {}", folder.display()));
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        if path.is_dir() {
            found.extend(files_below(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_pinned_by_a_go_sum() {
        for recipe in RECIPES {
            assert!(recipe.folder().join("go.sum").is_file(), "{} has no go.sum", recipe.name);
            assert!(recipe.key().unwrap().starts_with(recipe.name));
        }
    }

    #[test]
    fn only_the_larger_scope_has_the_programs_of_the_e2e_suite() {
        let names = |scope: Scope| scope.recipes().map(|recipe| recipe.name).collect::<Vec<_>>();
        assert_eq!(names(Scope::Default), ["vsphere", "etcd", "kubernetes"]);
        assert_eq!(names(Scope::E2e), ["vsphere", "etcd", "kubernetes", "e2e", "kwok"]);
    }

    #[test]
    fn recipes_of_one_module_have_their_own_files() {
        let files = |name: &str| {
            let recipe = RECIPES.iter().find(|recipe| recipe.name == name).unwrap();
            let files = recipe.files().unwrap().into_iter();
            files.map(|file| file.strip_prefix(recipe.folder()).unwrap().display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(files("e2e"), ["go.mod", "go.sum", "e2e-suite/main.go"]);
        let kubernetes = files("kubernetes");
        assert!(kubernetes.iter().any(|file| file == "scheduler-judge/main.go"), "{kubernetes:?}");
        assert!(!kubernetes.iter().any(|file| file.starts_with("e2e-suite")), "{kubernetes:?}");
    }

    #[test]
    fn kubernetes_is_stamped_with_the_version_of_its_go_mod() {
        let recipe = RECIPES.iter().find(|recipe| recipe.name == "kubernetes").unwrap();
        let flags = recipe.linker_flags().unwrap();
        assert!(flags.contains("version.gitVersion=v1."), "{flags}");
        assert!(flags.contains("version.gitMajor=1"), "{flags}");
    }

    #[test]
    fn versions_are_found_in_blocks_and_in_single_lines() {
        let go_mod = "module x\nrequire a.b/c v1.2.3\nrequire (\n\td.e/f v0.4.0 // indirect\n)\n";
        assert_eq!(required_version(go_mod, "a.b/c"), Some("v1.2.3"));
        assert_eq!(required_version(go_mod, "d.e/f"), Some("v0.4.0"));
        assert_eq!(required_version(go_mod, "x.y/z"), None);
    }
}
