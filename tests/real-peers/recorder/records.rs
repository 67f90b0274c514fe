//! The file of the records: one line of JSON per call, in the order of the calls.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::scenarios::Point;

#[derive(Serialize)]
pub struct Record<'a> {
    pub point: Point,
    pub plugin: &'a str,
    pub pod: &'a str,
    /// Empty if the call is about no single node.
    pub node: &'a str,
    pub status: &'a str,
}

/// Several plugins and executors may append to one file: each line is a single write.
#[derive(Clone)]
pub struct Records(Arc<File>);

impl Records {
    pub fn open(path: &Path) -> Result<Records, String> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.map(|file| Records(Arc::new(file))).map_err(|error| format!("opening {}: {error}", path.display()))
    }

    /// The line is in the file when this returns. Panics if it cannot be written: a file without it would be wrong, and
    /// the test could not know.
    pub fn write(&self, record: &Record<'_>) {
        let mut line = serde_json::to_vec(record).expect("a record is JSON");
        line.push(b'\n');
        (&*self.0).write_all(&line).expect("the record is written");
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Records")
    }
}
