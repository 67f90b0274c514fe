//! The audit log of `bridger run`: every change as a line of JSON, in a file that only its owner reads.
//!
//! In: reports of changes. Out: one line for each, in the order of the reports. A thread of its own writes, so that a slow
//! disk never holds the loop.
//!
//! Invariants: nothing that was in the file is changed; the queue is bounded; a line that cannot be queued or written is
//! counted and reported, and nothing else happens. A line begins on a line of its own, whatever was written before. No
//! line contains a credential, because no report does.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use engine::changes::{ChangeAction, ChangeReport, ChangeResult, Side};
use engine::counters::Counters;
use engine::ports::ChangeSink;
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Failure;

/// More than one pass over all rules of a large cluster.
const QUEUED_MAX: usize = 10_000;
/// How long the last lines may take when the service stops.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// Names of pods and VMs say what a company runs.
const MODE: u32 = 0o600;

/// The file of an audit log, or what stands for it in a test.
pub struct AuditFile<W = File> {
    file: W,
    /// It ends within a line: a disk became full, or a process ended.
    is_torn: bool,
}

/// Opens the file to append to it.
pub fn open(path: &Path) -> Result<AuditFile, Failure> {
    let opened = OpenOptions::new().append(true).create(true).mode(MODE).open(path);
    let file = opened.map_err(|error| {
        Failure::configuration(format!("cannot open the audit log {}: {error}", path.display()), "check --audit-log")
    })?;
    // If it cannot be read, nothing is known against it.
    let is_torn = ends_within_a_line(&file, path).unwrap_or(false);
    Ok(AuditFile { file, is_torn })
}

/// `file` can only be written. A pipe or a device has no end to look at.
fn ends_within_a_line(file: &File, path: &Path) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok(false);
    }
    let (mut file, mut last) = (File::open(path)?, [0u8]);
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

impl<W: Write> AuditFile<W> {
    /// Appends a line with its end. After an error a part of it may be in the file; then the next line begins a new one.
    fn append(&mut self, line: &str) -> io::Result<()> {
        if self.is_torn {
            self.write("\n")?;
        }
        self.write(line)
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let mut left = text.as_bytes();
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    left = left.get(count..).unwrap_or_default();
                    self.is_torn = !left.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

enum Message {
    Line(String),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// Writes reports to the file.
pub struct AuditLog {
    queue: SyncSender<Message>,
    counters: Arc<Counters>,
    time_of_day: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

impl AuditLog {
    /// Starts the thread that writes; it ends with this value.
    pub fn start(
        file: AuditFile,
        counters: Arc<Counters>,
        time_of_day: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> AuditLog {
        let (queue, received) = sync_channel(QUEUED_MAX);
        let of_thread = counters.clone();
        std::thread::spawn(move || write(file, &received, &of_thread));
        AuditLog { queue, counters, time_of_day }
    }

    /// Waits until everything is written, for a limited time. Blocks.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        // If the queue is full, the thread is far behind, and the wait would be in vain.
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(FLUSH_WITHIN);
        }
    }
}

impl ChangeSink for AuditLog {
    fn put(&self, change: &ChangeReport) {
        let line = line(change, (self.time_of_day)());
        if self.queue.try_send(Message::Line(line)).is_err() {
            self.counters.audit_lines_lost.add(1);
        }
    }
}

fn write(mut file: AuditFile, received: &Receiver<Message>, counters: &Counters) {
    let mut is_failing = false;
    for message in received {
        let line = match message {
            Message::Line(line) => line,
            Message::Flush(done) => {
                let _ = done.send(());
                continue;
            }
        };
        let written = file.append(&line);
        if let Err(error) = &written {
            counters.audit_lines_lost.add(1);
            if !is_failing {
                tracing::error!(%error, "cannot write the audit log; the changes themselves are not affected");
            }
        }
        is_failing = written.is_err();
    }
}

/// The form of a line. Fields are only ever added.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    time: Timestamp,
    side: Side,
    kind: &'a str,
    name: &'a str,
    vcenter: Option<&'a str>,
    cluster: Option<&'a str>,
    action: ChangeAction,
    members: &'a [String],
    pods: &'a [String],
    cause: Option<&'a str>,
    result: &'static str,
    error: Option<&'a str>,
}

fn line(change: &ChangeReport, time: Timestamp) -> String {
    let (result, error) = match &change.result {
        ChangeResult::Done => ("done", None),
        ChangeResult::DryRun => ("dryRun", None),
        ChangeResult::Refused(error) => ("refused", Some(error.as_str())),
    };
    let line = Line {
        time,
        side: change.side,
        kind: change.kind,
        name: &change.name,
        vcenter: change.cluster.as_ref().map(|cluster| cluster.vcenter.as_str()),
        cluster: change.cluster.as_ref().map(|cluster| cluster.name.as_str()),
        action: change.action,
        members: &change.members,
        pods: &change.pods,
        cause: change.cause.as_deref(),
        result,
        error,
    };
    // Serializing strings cannot fail.
    let mut text = serde_json::to_string(&line).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use drs::{ChangeKind, ClusterKey, RuleChange, RuleType};
    use engine::changes::ReportedCluster;
    use engine::ports::LabelChanges;
    use model::event::VcenterId;
    use serde_json::{Value, json};

    use super::*;

    fn report(result: ChangeResult) -> ChangeReport {
        let labels = LabelChanges::from([("host".to_owned(), Some("esx-1".to_owned()))]);
        ChangeReport::of_labels("n1", &labels, Some("the node was added".to_owned()), result)
    }

    fn start(file: AuditFile) -> (AuditLog, Arc<Counters>) {
        let counters = Arc::<Counters>::default();
        let time = Arc::new(|| Timestamp::UNIX_EPOCH);
        (AuditLog::start(file, counters.clone(), time), counters)
    }

    #[test]
    fn number_7_a_line_has_every_field_and_the_file_is_appended_to_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for result in [ChangeResult::Done, ChangeResult::Refused("no \"right\"\nhere".to_owned())] {
            let (log, counters) = start(open(&path).unwrap());
            log.put(&report(result));
            log.flush();
            assert_eq!(counters.audit_lines_lost.get(), 0);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut expected = json!({
            "time": "1970-01-01T00:00:00Z", "side": "kubernetes", "kind": "node", "name": "n1", "vcenter": null,
            "cluster": null, "action": "label", "members": ["host=esx-1"], "pods": [], "cause": "the node was added",
            "result": "done", "error": null,
        });
        assert_eq!(lines[0], expected);
        expected["result"] = "refused".into();
        expected["error"] = "no \"right\"\nhere".into();
        assert_eq!((lines.len(), &lines[1]), (2, &expected));
    }

    #[test]
    fn number_7_lines_that_cannot_be_written_are_counted() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (log, counters) = start(AuditFile { file: full, is_torn: false });
        log.put(&report(ChangeResult::Done));
        log.put(&report(ChangeResult::DryRun));
        log.flush();
        assert_eq!(counters.audit_lines_lost.get(), 2);
        assert!(open(Path::new("/proc/no-such-folder/audit.log")).is_err());
    }

    #[test]
    fn number_7_two_vcenters_with_a_cluster_of_one_name_have_different_lines() {
        let change = RuleChange::new("r".to_owned(), RuleType::VmAntiAffinity, ChangeKind::Create, Vec::new());
        let lines: Vec<Value> = (0..2)
            .map(|number| {
                let key = ClusterKey::new(VcenterId(number), "domain-c1");
                let vcenter = format!("vc-{number}.example.org");
                let cluster = ReportedCluster { key, name: "prod".to_owned(), vcenter };
                let reports = ChangeReport::of_rule(&change, &cluster, None, |_| None);
                serde_json::from_str(&line(&reports[0], Timestamp::UNIX_EPOCH)).unwrap()
            })
            .collect();
        assert_eq!((&lines[0]["cluster"], &lines[1]["cluster"]), (&json!("prod"), &json!("prod")));
        let vcenters = (&lines[0]["vcenter"], &lines[1]["vcenter"]);
        assert_eq!(vcenters, (&json!("vc-0.example.org"), &json!("vc-1.example.org")));
    }

    /// A disk with room for so many bytes.
    struct Disk {
        content: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= count;
            self.content.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn number_7_after_a_partly_written_line_the_next_one_begins_a_new_line() {
        for (room, expected) in [
            // Nothing of the second line fits, a part of it, or all but its end.
            (4, "one\nthree\n"),
            (6, "one\ntw\nthree\n"),
            (7, "one\ntwo\nthree\n"),
            (8, "one\ntwo\nthree\n"),
        ] {
            let mut log = AuditFile { file: Disk { content: Vec::new(), room }, is_torn: false };
            log.append("one\n").unwrap();
            assert_eq!(log.append("two\n").is_ok(), room == 8);
            log.file.room = 0;
            assert!(log.append("lost\n").is_err());
            log.file.room = 100;
            log.append("three\n").unwrap();
            assert_eq!(String::from_utf8(log.file.content).unwrap(), expected, "{room}");
        }
    }

    #[test]
    fn number_7_a_fragment_of_an_earlier_process_stays_on_a_line_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for (before, expected) in [("", "new\n"), ("old\n", "old\nnew\n"), ("fragm", "fragm\nnew\n")] {
            std::fs::write(&path, before).unwrap();
            open(&path).unwrap().append("new\n").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
        }
    }
}
