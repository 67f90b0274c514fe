//! The recipes: which programs come from which Go module.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::PeersError;

/// One Go module and the programs built from it. The Go files in the folder of its go.mod are part of the recipe.
#[derive(Debug, PartialEq, Eq)]
pub struct Recipe {
    pub name: &'static str,
    pub programs: &'static [Program],
    /// The module whose version is stamped into the programs, as Kubernetes' release builds do.
    stamped_module: Option<&'static str>,
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
        programs: &[Program { name: "vcsim", package: "./vcsim" }, Program { name: "govc", package: "./govc" }],
        stamped_module: None,
    },
    Recipe {
        name: "etcd",
        programs: &[Program { name: "etcd", package: "go.etcd.io/etcd/server/v3" }],
        stamped_module: None,
    },
    Recipe {
        name: "kubernetes",
        programs: &[
            Program { name: "kube-apiserver", package: "k8s.io/kubernetes/cmd/kube-apiserver" },
            Program { name: "kube-scheduler", package: "k8s.io/kubernetes/cmd/kube-scheduler" },
            Program { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl" },
            Program { name: "scheduler-judge", package: "./scheduler-judge" },
            Program { name: "scheduler-recorder", package: "./scheduler-recorder" },
        ],
        stamped_module: Some("k8s.io/kubernetes"),
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
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.name)
    }

    /// The folder's name in the cache: a hash of every file of the recipe, the programs, and the platform.
    pub fn key(&self) -> Result<String, PeersError> {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        part(format!("{self:?} {} {}", std::env::consts::OS, std::env::consts::ARCH).as_bytes());
        let folder = self.folder();
        for file in files_below(&folder)? {
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
