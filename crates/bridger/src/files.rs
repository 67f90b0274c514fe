//! The files that commands read.
//!
//! In: a path. Out: the content, or a failure that says which flag to check. Invariants: no more of a file than its limit
//! is ever in memory; no message quotes the content, which may contain secrets.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

/// What a file is, in messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) flag: &'static str,
    pub(crate) bytes_max: u64,
}

/// No configuration is that large.
pub(crate) const CONFIGURATION: Kind = Kind { name: "configuration file", flag: "--config", bytes_max: 4 << 20 };
pub(crate) const VALUES: Kind = Kind { name: "file with values", flag: "--values", bytes_max: 4 << 20 };
/// A snapshot of 150,000 pods has a tenth of this.
pub(crate) const SNAPSHOT: Kind = Kind { name: "snapshot", flag: "--snapshot", bytes_max: 2 << 30 };

pub(crate) fn read(path: &Path, kind: Kind) -> Result<Vec<u8>, Failure> {
    let Kind { name, flag, bytes_max } = kind;
    let (shown, check) = (path.display(), format!("check {flag}"));
    let unreadable =
        |error: std::io::Error| Failure::configuration(format!("cannot read {name} {shown}: {error}"), &check);
    let mut bytes = Vec::new();
    // Its size may change meanwhile, and a device has none.
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > bytes_max {
        let what = format!("{name} {shown} is too large: the limit is {bytes_max} bytes");
        return Err(Failure::configuration(what, &check));
    }
    Ok(bytes)
}

pub(crate) fn read_text(path: &Path, kind: Kind) -> Result<String, Failure> {
    String::from_utf8(read(path, kind)?).map_err(|_| {
        let what = format!("cannot read {} {}: it is not UTF-8", kind.name, path.display());
        Failure::configuration(what, format!("check {}", kind.flag))
    })
}

/// The error and its position, without the excerpt of the file that follows, which may contain secrets.
pub(crate) fn cannot_parse(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    format!("cannot parse it: {}", text.lines().next().unwrap_or_default().trim_start_matches("error: "))
}

/// A format that a command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Of `bridger run`.
    Configuration,
    /// A KubeSchedulerConfiguration.
    SchedulerConfiguration,
    Snapshot,
    /// A Kubernetes `List`, or a snapshot.
    Objects,
}

/// Reads the content of a file as a command does, and drops the result.
pub fn check(format: Format, content: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(content).map_err(|error| error.to_string());
    match format {
        Format::Configuration => crate::service::settings::check(text?),
        Format::SchedulerConfiguration => crate::service::scheduler::check(text?),
        Format::Snapshot => crate::snapshot::Snapshot::parse(content).map(drop),
        Format::Objects => crate::service::scheduler_world::parse(text?).map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_10_files_are_limited_in_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![b'#'; 4 << 20]).unwrap();
        assert!(read(&path, CONFIGURATION).is_ok());
        std::fs::write(&path, vec![b'#'; (4 << 20) + 1]).unwrap();
        let endless = Path::new("/dev/zero");
        for path in [path.as_path(), endless].into_iter().filter(|path| path.exists()) {
            let error = read(path, CONFIGURATION).unwrap_err().to_string();
            assert!(
                error.contains("is too large: the limit is 4194304 bytes") && error.contains("--config"),
                "{error}"
            );
        }
        std::fs::write(&path, b"\xff").unwrap();
        assert!(read_text(&path, CONFIGURATION).unwrap_err().to_string().contains("UTF-8"));
    }
}
