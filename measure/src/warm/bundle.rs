//! Archive as a file: a line of JSON with its fingerprint, then `CubeCL`'s export of an environment.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use cubecl::bundle::{BundleFormat, EmbeddedBundle, ExportOptions, export};
use cubecl::environment;
use cubecl_environment::bytes::Bytes;
use gpu_tuned_core::atomic_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::BundleError;
use super::fingerprint::Fingerprint;
use super::owner;

/// The format that is written and read.
pub(super) const FORMAT: u32 = 1;
/// Limit of the first line, which names GPUs and versions.
const LONGEST_HEADER: u64 = 1 << 16;
/// Limit of an archive, which is read into memory. A few training steps have never produced more.
pub(super) const LARGEST: u64 = 1 << 30;
/// `CubeCL`'s records of its own work are not archived.
const LEFT_OUT: [&str; 2] = ["records", super::NOTES];

/// The first line of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    gpu_tuned_warm: u32,
    /// Fingerprint of the archive.
    pub made_on: Fingerprint,
    /// The build ID of the program that made it, in hexadecimal: kernels are those of this build alone.
    pub build: Option<String>,
    bytes: u64,
    crc32: u32,
}

/// An archive that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Saved {
    /// The file.
    #[serde(serialize_with = "super::path_as_text")]
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Kernels and tuned choices in it.
    pub entries: usize,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The build ID of this program in hexadecimal.
pub(super) fn build() -> Option<String> {
    buildid::build_id().map(hexadecimal)
}

fn sha256(parts: [&[u8]; 2]) -> String {
    let hasher = parts.iter().fold(Sha256::new(), Digest::chain_update);
    hexadecimal(&hasher.finalize())
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]));
    bytes.iter().flat_map(digits).collect()
}

/// The file of an archive that can be taken, at its second part.
pub(super) struct Found {
    pub header: Header,
    line: Vec<u8>,
    rest: BufReader<File>,
}

impl Found {
    /// Opens the file and reads the first line.
    pub(super) fn open(path: &Path) -> Result<Self, BundleError> {
        let file = File::open(path).map_err(BundleError::Read)?;
        let whole = file.metadata().map_err(BundleError::Read)?.len();
        if whole > LARGEST {
            return Err(BundleError::TooLarge { bytes: whole });
        }
        let mut rest = BufReader::new(file);
        let mut line = Vec::new();
        rest.by_ref().take(LONGEST_HEADER).read_until(b'\n', &mut line).map_err(BundleError::Read)?;
        let header = Header::parse(&line)?;
        let there = whole - line.len() as u64;
        if there != header.bytes {
            return Err(BundleError::Damaged(format!("{there} bytes follow its first line, not {}", header.bytes)));
        }
        Ok(Self { header, line, rest })
    }

    /// Reads what `CubeCL` made, from a file with this SHA-256 where one is given.
    pub(super) fn read(mut self, expected: Option<&str>) -> Result<EmbeddedBundle, BundleError> {
        let mut contents = Vec::with_capacity(self.header.bytes as usize);
        self.rest.read_to_end(&mut contents).map_err(BundleError::Read)?;
        if crc32fast::hash(&contents) != self.header.crc32 {
            return Err(BundleError::Damaged("its checksum does not match".to_owned()));
        }
        if let Some(expected) = expected {
            let found = sha256([&self.line, &contents]);
            if !expected.trim().eq_ignore_ascii_case(&found) {
                return Err(BundleError::Digest { found, expected: expected.to_owned() });
            }
        }
        let bundle = EmbeddedBundle::open(Bytes::from_bytes_vec(contents));
        bundle.map_err(|error| BundleError::Damaged(error.to_string()))
    }
}

impl Header {
    fn parse(line: &[u8]) -> Result<Self, BundleError> {
        #[derive(Deserialize)]
        struct Format {
            gpu_tuned_warm: u32,
        }
        // Other formats may have other fields beside their number.
        let Ok(Format { gpu_tuned_warm: found }) = serde_json::from_slice(line) else {
            return Err(BundleError::Unknown);
        };
        if found != FORMAT {
            return Err(BundleError::Format { found });
        }
        serde_json::from_slice(line).map_err(|error| BundleError::Damaged(error.to_string()))
    }

    /// Refuses what was made for elsewhere.
    pub(super) fn check(&self, here: &Fingerprint) -> Result<(), BundleError> {
        let differences = here.differences(&self.made_on);
        if differences.is_empty() { Ok(()) } else { Err(BundleError::Elsewhere { differences }) }
    }

    /// Identity of an archive, independent of its name.
    pub(super) fn key(&self) -> Vec<u8> {
        let build = self.build.as_deref().unwrap_or_default();
        format!("{:08x} {} {build}", self.crc32, self.bytes).into_bytes()
    }
}

/// Writes an archive of `CubeCL`'s environment into `folder`, which is created if missing.
///
/// The file is called after the fingerprint ([`Fingerprint::environment`]), and replaces an older one when it is whole.
///
/// # Errors
///
/// [`BundleError`]; an older one is then as it was.
pub fn save(folder: &Path, fingerprint: &Fingerprint) -> Result<Saved, BundleError> {
    let path = folder.join(file_name(fingerprint));
    let failed = |cause| BundleError::Write { path: path.clone(), cause };
    fs::create_dir_all(folder).map_err(failed)?;
    // CubeCL's own file is beside the bundle while it is made, and not left there.
    let drafts = tempfile::Builder::new().prefix(".gpu-tuned-warm-").tempdir_in(folder).map_err(failed)?;
    let draft = drafts.path().join("exported");
    let options = ExportOptions {
        name: fingerprint.environment(),
        excluded_namespaces: LEFT_OUT.map(str::to_owned).to_vec(),
        format: BundleFormat::Flat,
        ..ExportOptions::default()
    };
    export(&[environment::path()], &draft, &options).map_err(|error| BundleError::Export(error.to_string()))?;
    let contents = fs::read(&draft).map_err(failed)?;
    let exported = EmbeddedBundle::open(Bytes::from_bytes_vec(contents.clone()));
    let entries = super::taken::entries(&exported.map_err(|error| BundleError::Export(error.to_string()))?);
    if entries == 0 {
        return Err(BundleError::Empty);
    }
    let header = Header {
        gpu_tuned_warm: FORMAT,
        made_on: fingerprint.clone(),
        build: build(),
        bytes: contents.len() as u64,
        crc32: crc32fast::hash(&contents),
    };
    let mut line = serde_json::to_vec(&header).expect("BUG: a header is always JSON");
    line.push(b'\n');
    let bytes = (line.len() + contents.len()) as u64;
    if bytes > LARGEST {
        return Err(BundleError::TooLarge { bytes });
    }
    atomic_file::replace_with(&path, |file| {
        file.write_all(&line)?;
        file.write_all(&contents)
    })
    .and_then(|()| [&path, folder].into_iter().try_for_each(owner::keep_others_out))
    .map_err(failed)?;
    Ok(Saved { path, bytes, entries, sha256: sha256([&line, &contents]) })
}

/// File name of an archive.
pub(super) fn file_name(fingerprint: &Fingerprint) -> String {
    format!("{}.{EXTENSION}", fingerprint.environment())
}

/// File extension of archives.
pub(super) const EXTENSION: &str = "bundle";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{BundleError, Found, Header};
    use crate::warm::fingerprint::tests::h200;

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_no_utf_8_is_shown_in_json() {
        use std::os::unix::ffi::OsStrExt;

        let path = std::ffi::OsStr::from_bytes(b"na\xefve").into();
        let saved =
            serde_json::to_value(super::Saved { path, bytes: 1, entries: 1, sha256: String::new() }).expect("JSON");
        assert_eq!(saved["path"], "na\u{fffd}ve");
    }

    /// A file with this first line, before whatever follows.
    fn file(folder: &Path, line: &str, contents: &[u8]) -> Result<(), String> {
        let path = folder.join("one.bundle");
        fs::write(&path, [line.as_bytes(), b"\n", contents].concat()).expect("it is written");
        let read = |found: Found| {
            found.header.check(&h200())?;
            found.read(None).map(drop)
        };
        Found::open(&path).and_then(read).map_err(|error| error.to_string())
    }

    fn header(contents: &[u8]) -> serde_json::Value {
        let header = Header {
            gpu_tuned_warm: super::FORMAT,
            made_on: h200(),
            build: None,
            bytes: contents.len() as u64,
            crc32: crc32fast::hash(contents),
        };
        serde_json::to_value(header).expect("JSON")
    }

    #[test]
    fn what_is_no_bundle_for_here_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let contents = b"what CubeCL wrote";
        let with = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut header = header(contents);
            change(&mut header);
            header.to_string()
        };
        let other_driver = with(&|header| header["made_on"]["driver"] = "550.1".into());
        for (line, reason) in [
            (String::new(), "it is no kernel cache archive of gpu-tuned"),
            ("SQLite format 3\0".to_owned(), "it is no kernel cache archive of gpu-tuned"),
            ("{\"format\":1}".to_owned(), "it is no kernel cache archive of gpu-tuned"),
            (with(&|header| header["gpu_tuned_warm"] = 2.into()), "it has format 2, and this release reads format 1"),
            (with(&|header| header["made_on"] = 1.into()), "it is damaged: invalid type"),
            (with(&|header| header["bytes"] = 99.into()), "it is damaged: 17 bytes follow its first line, not 99"),
            (other_driver, "made with driver 550.1, here it is 580.95.05"),
            (with(&|header| header["crc32"] = 7.into()), "it is damaged: its checksum does not match"),
            (with(&|_| ()), "it is damaged: not a cubecl flat bundle"),
        ] {
            let refused = file(folder.path(), &line, contents).expect_err(reason);
            assert!(refused.starts_with(reason), "{refused}, not {reason}");
        }
        assert!(matches!(Found::open(&folder.path().join("none")), Err(BundleError::Read(_))));
    }

    #[test]
    fn a_first_line_without_an_end_is_not_read_for_ever() {
        let folder = tempfile::tempdir().expect("a folder");
        let refused = file(folder.path(), &"x".repeat(1 << 20), b"").expect_err("no header is so long");
        assert_eq!(refused, "it is no kernel cache archive of gpu-tuned");
    }

    #[test]
    fn another_build_or_other_contents_are_another_bundle() {
        let of = |contents: &[u8]| serde_json::from_value::<Header>(header(contents)).expect("a header");
        let (a, b) = (of(b"a"), of(b"b"));
        assert_ne!(a.key(), b.key());
        assert_ne!(a.key(), Header { build: Some("ab".to_owned()), ..a.clone() }.key());
        assert_eq!(a.key(), of(b"a").key());
    }
}
