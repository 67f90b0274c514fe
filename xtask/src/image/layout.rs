//! The OCI image: one layer, its configuration, its manifest, and the archive of all of them.
//!
//! Formats: image-spec 1.1 (layout, index, manifest, configuration). The archive also has the `manifest.json` that
//! `docker save` writes, for engines that read no OCI layout.

use std::io::Write;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::VERSION;
use super::archive::Archive;
use super::program::Source;

/// `nonroot` of distroless images: no user of the node has this ID.
const USER: &str = "65532:65532";

pub struct Image {
    reference: String,
    layer: Blob,
    configuration: Blob,
    manifest: Blob,
}

struct Blob {
    media_type: &'static str,
    bytes: Vec<u8>,
}

impl Image {
    pub fn of(program: &[u8], source: &Source, reference: &str) -> Result<Image> {
        let files = file_system(program, source.committed_s)?;
        let diff_id = digest(&files);
        let layer = Blob { media_type: "application/vnd.oci.image.layer.v1.tar+gzip", bytes: compressed(&files)? };
        let labels = labels(source);
        let configuration = Blob::json(
            "application/vnd.oci.image.config.v1+json",
            &json!({
                "created": timestamp(source.committed_s),
                "architecture": architecture(),
                "os": "linux",
                "config": { "User": USER, "Entrypoint": ["/bridger"], "WorkingDir": "/", "Labels": labels },
                "rootfs": { "type": "layers", "diff_ids": [diff_id] },
                "history": [{ "created": timestamp(source.committed_s), "created_by": "cargo xtask image" }],
            }),
        );
        let manifest = Blob::json(
            "application/vnd.oci.image.manifest.v1+json",
            &json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": configuration.descriptor(),
                "layers": [layer.descriptor()],
                "annotations": labels,
            }),
        );
        Ok(Image { reference: reference.to_owned(), layer, configuration, manifest })
    }

    /// The digest by which registries know the image.
    pub fn digest(&self) -> String {
        digest(&self.manifest.bytes)
    }

    pub fn archive(&self) -> Result<Vec<u8>> {
        let mut manifest = self.manifest.descriptor();
        manifest["platform"] = json!({ "architecture": architecture(), "os": "linux" });
        let tag = self.reference.rsplit_once(':').map_or(VERSION, |(_, tag)| tag);
        manifest["annotations"] =
            json!({ "org.opencontainers.image.ref.name": tag, "io.containerd.image.name": self.reference });
        let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [manifest] });
        let saved = json!([{ "Config": self.configuration.path(), "RepoTags": [self.reference],
            "Layers": [self.layer.path()] }]);
        let mut archive = Archive::new(0);
        archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        archive.file("index.json", 0o644, index.to_string().as_bytes())?;
        archive.file("manifest.json", 0o644, saved.to_string().as_bytes())?;
        archive.folder("blobs", 0o755)?;
        archive.folder("blobs/sha256", 0o755)?;
        for blob in [&self.manifest, &self.configuration, &self.layer] {
            archive.file(&blob.path(), 0o644, &blob.bytes)?;
        }
        archive.finish()
    }
}

impl Blob {
    fn json(media_type: &'static str, value: &Value) -> Blob {
        Blob { media_type, bytes: value.to_string().into_bytes() }
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": digest(&self.bytes), "size": self.bytes.len() })
    }

    fn path(&self) -> String {
        format!("blobs/{}", digest(&self.bytes).replace(':', "/"))
    }
}

/// The program, and an empty `/tmp` that a volume can be mounted on.
fn file_system(program: &[u8], modified_s: u64) -> Result<Vec<u8>> {
    let mut files = Archive::new(modified_s);
    files.file("bridger", 0o755, program)?;
    files.folder("tmp", 0o1777)?;
    files.finish()
}

fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    // Without a name and a time, so that equal files are equal when compressed.
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

fn labels(source: &Source) -> Value {
    json!({
        "org.opencontainers.image.title": "bridger",
        "org.opencontainers.image.description": "Makes the Kubernetes scheduler and vSphere DRS agree",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.revision": source.revision,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": timestamp(source.committed_s),
    })
}

/// The name of this machine's architecture in images.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn timestamp(seconds: u64) -> String {
    let at = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    at.unwrap_or(jiff::Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn image(program: &[u8]) -> Image {
        let source = Source { revision: "abc".to_owned(), committed_s: 1_700_000_000 };
        Image::of(program, &source, "bridger:test").expect("an image")
    }

    fn files(archive: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").to_string_lossy().into_owned();
            let mode = entry.header().mode().expect("a mode");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            found.insert(path, (mode, bytes));
        }
        found
    }

    #[test]
    fn every_digest_and_size_of_the_archive_is_that_of_its_blob() {
        let archive = files(&image(b"a program").archive().expect("an archive"));
        let parsed = |path: &str| -> Value { serde_json::from_slice(&archive[path].1).expect(path) };
        let blob = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().expect("a digest");
            let bytes = archive[&format!("blobs/{}", name.replace(':', "/"))].1.clone();
            assert_eq!(
                (digest(&bytes), bytes.len()),
                (name.to_owned(), descriptor["size"].as_u64().expect("a size") as usize)
            );
            bytes
        };
        let manifest: Value = serde_json::from_slice(&blob(&parsed("index.json")["manifests"][0])).expect("a manifest");
        let configuration: Value = serde_json::from_slice(&blob(&manifest["config"])).expect("a configuration");
        let mut layer = Vec::new();
        GzDecoder::new(blob(&manifest["layers"][0]).as_slice()).read_to_end(&mut layer).expect("gzip");
        assert_eq!(configuration["rootfs"]["diff_ids"], json!([digest(&layer)]));
        assert_eq!(configuration["config"]["User"], "65532:65532");
        let system = files(&layer);
        assert_eq!(system.keys().collect::<Vec<_>>(), ["bridger", "tmp"], "nothing but the program");
        assert_eq!(system["bridger"], (0o755, b"a program".to_vec()));
        let saved = &parsed("manifest.json")[0];
        for path in [&saved["Config"], &saved["Layers"][0]] {
            assert!(archive.contains_key(path.as_str().expect("a path")), "{path}");
        }
    }

    #[test]
    fn equal_programs_give_equal_archives_and_others_do_not() {
        let bytes = |program: &[u8]| image(program).archive().expect("an archive");
        assert_eq!(bytes(b"a"), bytes(b"a"));
        assert_ne!(image(b"a").digest(), image(b"b").digest());
    }
}
