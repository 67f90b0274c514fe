//! A folder for the files of a peer: data, certificates, logs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io, thread};

/// Removed on drop, unless the test fails: then it is kept, and its path is printed.
#[derive(Debug)]
pub struct Workdir {
    path: PathBuf,
}

static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Workdir {
    pub fn create(purpose: &str) -> io::Result<Workdir> {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{purpose}-{}-{number}", std::process::id());
        let path = logs_folder().join(name);
        fs::create_dir_all(&path)?;
        Ok(Workdir { path })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> io::Result<PathBuf> {
        let path = self.join(name);
        fs::write(&path, content)?;
        Ok(path)
    }
}

impl Drop for Workdir {
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("logs are kept in {}", self.path.display());
        } else {
            // The next run clears what cannot be removed now.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// `peer-logs` in cargo's target folder, which contains the test binary.
fn logs_folder() -> PathBuf {
    let binary = std::env::current_exe().unwrap_or_default();
    let target = binary.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    target.map_or_else(std::env::temp_dir, Path::to_owned).join("peer-logs")
}
