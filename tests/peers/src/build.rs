//! Builds the recipes that are missing in the cache.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::toolchain::check_go;
use crate::{Cache, Peers, PeersError, Recipe, Scope};

/// Progress of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<'a> {
    /// Another process is building into this cache; waiting for it.
    Waiting,
    Started {
        recipe: &'a str,
        programs: Vec<&'a str>,
    },
    /// Every few seconds while a recipe builds: the number of compiled packages, and the latest one.
    Compiling {
        recipe: &'a str,
        packages: usize,
        latest: &'a str,
        elapsed: Duration,
    },
    Finished {
        recipe: &'a str,
        elapsed: Duration,
    },
}

const PROGRESS_EVERY: Duration = Duration::from_secs(10);
const TAIL_LINES: usize = 30;

/// Builds every recipe of the scope that is missing in the cache, and returns the paths of the programs.
pub fn build(cache: &Cache, scope: Scope, mut report: impl FnMut(Progress<'_>)) -> Result<Peers, PeersError> {
    if let Ok(peers) = cache.peers(scope) {
        return Ok(peers);
    }
    for recipe in scope.recipes() {
        check_go(&recipe.go_needed()?)?;
    }
    let root = cache.root();
    fs::create_dir_all(root).map_err(PeersError::io(format!("creating {}", root.display())))?;
    let _lock = lock(root, &mut report)?;
    remove_leftovers(root)?;
    for recipe in scope.recipes() {
        // The previous holder of the lock may have built it.
        if !cache.has(recipe)? {
            build_recipe(cache, recipe, &mut report)?;
        }
    }
    cache.peers(scope)
}

/// The lock is released when the file handle closes, also when the process is killed.
fn lock(root: &Path, report: &mut impl FnMut(Progress<'_>)) -> Result<File, PeersError> {
    let path = root.join("lock");
    let locking = || PeersError::io(format!("locking {}", path.display()));
    let file = File::create(&path).map_err(locking())?;
    if file.try_lock().is_err() {
        report(Progress::Waiting);
        file.lock().map_err(locking())?;
    }
    Ok(file)
}

const PARTIAL: &str = ".partial";

/// Removes the folders of killed builds. Called only under the lock, so no build is using them.
fn remove_leftovers(root: &Path) -> Result<(), PeersError> {
    let reading = || PeersError::io(format!("reading {}", root.display()));
    for entry in fs::read_dir(root).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        if path.extension().is_some_and(|extension| extension == &PARTIAL[1..]) {
            fs::remove_dir_all(&path).map_err(PeersError::io(format!("removing {}", path.display())))?;
        }
    }
    Ok(())
}

fn build_recipe(cache: &Cache, recipe: &Recipe, report: &mut impl FnMut(Progress<'_>)) -> Result<(), PeersError> {
    let started = Instant::now();
    report(Progress::Started {
        recipe: recipe.name,
        programs: recipe.programs.iter().map(|program| program.name).collect(),
    });
    let finished = cache.folder(recipe)?;
    // The process id keeps an orphaned compiler of a killed build from writing into this build's folder.
    let partial = finished.with_extension(format!("{}{PARTIAL}", std::process::id()));
    fs::create_dir_all(&partial).map_err(PeersError::io(format!("creating {}", partial.display())))?;
    for program in recipe.programs {
        compile(recipe, program.package(), &partial.join(program.name), started, report)?;
    }
    fs::rename(&partial, &finished).map_err(PeersError::io(format!(
        "moving {} to {}",
        partial.display(),
        finished.display()
    )))?;
    report(Progress::Finished { recipe: recipe.name, elapsed: started.elapsed() });
    Ok(())
}

fn compile(
    recipe: &Recipe,
    package: &str,
    output: &Path,
    started: Instant,
    report: &mut impl FnMut(Progress<'_>),
) -> Result<(), PeersError> {
    let mut command = Command::new("go");
    command
        .args(["build", "-v", "-trimpath", "-mod=readonly", "-ldflags", &recipe.linker_flags()?, "-o"])
        .arg(output)
        .arg(package)
        .current_dir(recipe.folder())
        // Needs no C compiler, and the programs do not depend on the system's C library.
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOFLAGS", "")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let running = || PeersError::io(format!("running go build {package}"));
    let mut child = command.spawn().map_err(running())?;
    // `go build -v` prints each package to stderr as it compiles it; errors go to stderr, too.
    let mut tail = VecDeque::new();
    let mut last_report = Instant::now();
    let mut packages = 0;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines() {
            let line = line.map_err(running())?;
            packages += 1;
            if last_report.elapsed() >= PROGRESS_EVERY {
                last_report = Instant::now();
                report(Progress::Compiling {
                    recipe: recipe.name,
                    packages,
                    latest: &line,
                    elapsed: started.elapsed(),
                });
            }
            if tail.len() == TAIL_LINES {
                tail.pop_front();
            }
            tail.push_back(line);
        }
    }
    let status = child.wait().map_err(running())?;
    if status.success() {
        return Ok(());
    }
    Err(PeersError::BuildFailed {
        command: format!("go build {package}"),
        status: status.to_string(),
        tail: Vec::from(tail).join("\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_builds_are_removed_and_finished_folders_stay() {
        let root = tempfile::tempdir().unwrap();
        let leftover = root.path().join("etcd-0123.4711.partial");
        let finished = root.path().join("etcd-0123");
        fs::create_dir_all(leftover.join("half")).unwrap();
        fs::create_dir_all(&finished).unwrap();
        remove_leftovers(root.path()).unwrap();
        assert!(!leftover.exists());
        assert!(finished.exists());
    }

    #[test]
    fn the_lock_makes_a_second_builder_wait() {
        let root = tempfile::tempdir().unwrap();
        let held = lock(root.path(), &mut |_| ()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let path = root.path().to_owned();
        let second = std::thread::spawn(move || {
            lock(&path, &mut |progress| sender.send(progress == Progress::Waiting).unwrap()).map(drop)
        });
        assert!(receiver.recv_timeout(Duration::from_secs(10)).unwrap());
        assert!(!second.is_finished());
        drop(held);
        second.join().unwrap().unwrap();
    }
}
