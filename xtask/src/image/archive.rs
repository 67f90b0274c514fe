//! Tar files whose bytes depend on their content alone.

use anyhow::Result;
use tar::{Builder, EntryType, Header};

/// A tar file; entries are in the order in which they were added, and owned by root.
pub struct Archive {
    builder: Builder<Vec<u8>>,
    modified_s: u64,
}

impl Archive {
    /// All entries get this time of modification.
    pub fn new(modified_s: u64) -> Archive {
        Archive { builder: Builder::new(Vec::new()), modified_s }
    }

    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let header = self.header(EntryType::Regular, mode, bytes.len() as u64);
        self.append(header, path, bytes)
    }

    pub fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        let header = self.header(EntryType::Directory, mode, 0);
        self.append(header, path, &[])
    }

    pub fn finish(self) -> Result<Vec<u8>> {
        Ok(self.builder.into_inner()?)
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64) -> Header {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(self.modified_s);
        header
    }

    fn append(&mut self, mut header: Header, path: &str, bytes: &[u8]) -> Result<()> {
        header.set_uid(0);
        header.set_gid(0);
        Ok(self.builder.append_data(&mut header, path, bytes)?)
    }
}
