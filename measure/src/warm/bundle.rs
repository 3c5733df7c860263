//! Archives: their file, the search for one, and the caches that are filled from it.
//!
//! The file is a line of JSON with its fingerprint, then `CubeCL`'s export of an environment.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::{env, fmt, io};

use cubecl::bundle::{Bundle, BundleFormat, EmbeddedBundle, ExportOptions, export};
use cubecl::environment;
use cubecl_environment::bytes::Bytes;
use cubecl_environment::persistence::{self, Insertion, Origin};
use gpu_tuned_core::atomic_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::caches::{TUNED, found_no_memory, is_tuned};
use super::fingerprint::Fingerprint;
use super::{BUNDLE, BundleError, FOLDER, NOTES, SHA256, driver};
use crate::requests::package;

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
    let entries = count_entries(&exported.map_err(|error| BundleError::Export(error.to_string()))?);
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
    .and_then(|()| [&path, folder].into_iter().try_for_each(keep_others_out))
    .map_err(failed)?;
    Ok(Saved { path, bytes, entries, sha256: sha256([&line, &contents]) })
}

pub(super) fn file_name(fingerprint: &Fingerprint) -> String {
    format!("{}.{EXTENSION}", fingerprint.environment())
}

const EXTENSION: &str = "bundle";

/// Result of loading an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "bundle", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Bundled {
    /// Its entries are in the caches.
    Taken {
        /// The file.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
        /// Entries that came from it now; 0 when an earlier process has taken it.
        entries: usize,
        /// True if the archive's kernels are of this build of the program. Kernels of another build are skipped,
        /// because `CubeCL` never uses them. Tuning applies to every build.
        kernels: bool,
        /// Files of the driver's cache that came from it, where the driver had none.
        driver_files: usize,
    },
    /// The archive was ignored.
    Ignored {
        /// The file, or the folder where one would be.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
        /// Why.
        because: String,
    },
}

/// Search path of archives: beside `Cargo.toml`, when cargo runs the program; beside the program.
fn folders() -> impl Iterator<Item = PathBuf> {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    [package(), beside].into_iter().flatten().map(|folder| folder.join(FOLDER))
}

/// The archive to take, or the reason why no archive in the folder fits; `None` without any.
pub(super) fn find(fingerprint: &Fingerprint) -> Option<Result<PathBuf, Bundled>> {
    let named = env::var_os(BUNDLE).filter(|path| !path.is_empty());
    find_in(named, folders(), fingerprint)
}

fn find_in(
    named: Option<OsString>,
    folders: impl Iterator<Item = PathBuf>,
    fingerprint: &Fingerprint,
) -> Option<Result<PathBuf, Bundled>> {
    let (name, is_named) = (file_name(fingerprint), named.is_some());
    let folders: Vec<_> = match named.map(PathBuf::from) {
        Some(file) if !file.is_dir() => return Some(Ok(file)),
        Some(folder) => vec![folder],
        None => folders.collect(),
    };
    if let Some(file) = folders.iter().map(|folder| folder.join(&name)).find(|file| file.is_file()) {
        let foreign = if is_named { None } else { others_can_write(&file) };
        return Some(foreign.map_or(Ok(file.clone()), |because| Err(Bundled::Ignored { path: file, because })));
    }
    folders.iter().find_map(|folder| {
        let others = others(folder);
        let because = format!("none of its archives is {name}, but {}", others.join(", "));
        (!others.is_empty()).then(|| Err(Bundled::Ignored { path: folder.clone(), because }))
    })
}

/// The archives in a folder, sorted.
fn others(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let bundles = files.filter(|path| path.extension() == Some(OsStr::new(EXTENSION)));
    let mut names: Vec<_> = bundles.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// Fills the active environment with what is in the file, for the GPUs with these numbers.
pub(super) fn take(path: PathBuf, fingerprint: &Fingerprint, gpus: &[usize]) -> Bundled {
    let filled = filled(&path, fingerprint, gpus);
    filled.unwrap_or_else(|error| Bundled::Ignored { path, because: error.to_string() })
}

fn filled(path: &Path, fingerprint: &Fingerprint, gpus: &[usize]) -> Result<Bundled, BundleError> {
    let found = Found::open(path)?;
    found.header.check(fingerprint)?;
    let kernels = found.header.build.is_some() && found.header.build == build();
    // A note of what was taken: it is not read again at every start.
    let numbers = gpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let key = [found.header.key(), format!(" {kernels} {numbers}").into_bytes()].concat();
    let notes = persistence::open(NOTES);
    let taken = |entries, driver_files| Bundled::Taken { path: path.to_owned(), entries, kernels, driver_files };
    let digest = env::var(SHA256).ok().filter(|digest| !digest.is_empty());
    let is_known = notes.get(&key).is_some();
    if digest.is_none() && is_known {
        return Ok(taken(0, 0));
    }
    let bundle = found.read(digest.as_deref())?;
    if is_known {
        return Ok(taken(0, 0));
    }
    let driver_files = if kernels { driver_files(&bundle) } else { 0 };
    let mut entries = 0;
    for namespace in bundle.namespaces().into_iter().filter(|namespace| namespace != driver::NAMESPACE) {
        if !is_tuned(&namespace) && !kernels {
            continue;
        }
        for target in for_gpus(&namespace, gpus) {
            entries += insert(&bundle, &namespace, &target)?;
        }
    }
    if let Insertion::Failed(message) = notes.insert(&key, Bytes::from_bytes_vec(vec![1]), Origin::Local) {
        tracing::debug!(message, "the archive will be taken again at the next start");
    }
    Ok(taken(entries, driver_files))
}

/// Lays the driver's cache out, where it has none. Without it, kernels are compiled by the driver, and that is all.
fn driver_files(bundle: &dyn Bundle) -> usize {
    let Some(folder) = driver::folder(|name| env::var_os(name)) else { return 0 };
    driver::lay_out(bundle, &folder).unwrap_or_else(|error| {
        tracing::warn!(%error, folder = %folder.display(), "the driver's cache could not be filled from the archive");
        0
    })
}

/// Copies the entries of a namespace, but for choices made without memory, and returns how many are new.
fn insert(bundle: &dyn Bundle, namespace: &str, target: &str) -> Result<usize, BundleError> {
    let mut entries = Vec::new();
    let owned = |bytes: &[u8]| Bytes::from_bytes_vec(bytes.to_vec());
    bundle.scan(namespace, &mut |key, value| {
        if !is_tuned(namespace) || !found_no_memory(value) {
            entries.push((owned(key), owned(value)));
        }
    });
    let summary = persistence::open(target).insert_many(&mut entries.into_iter(), Origin::Imported);
    if summary.failed > 0 {
        let message = format!("{} entries could not be written to the caches", summary.failed);
        return Err(BundleError::Write { path: target.into(), cause: std::io::Error::other(message) });
    }
    Ok(summary.stored)
}

fn count_entries(bundle: &dyn Bundle) -> usize {
    let mut entries = 0;
    for namespace in bundle.namespaces() {
        bundle.scan(&namespace, &mut |_, _| entries += 1);
    }
    entries
}

/// The namespaces for GPUs with these numbers: tuned choices are kept for each number of CUDA's order (`device-0-NUMBER-…`),
/// and GPUs of a kind choose the same. All others are for every GPU.
fn for_gpus(namespace: &str, gpus: &[usize]) -> Vec<String> {
    let renumbered = |gpu: &usize| {
        let [tuned, version, device, rest] = namespace.splitn(4, '/').collect::<Vec<_>>().try_into().ok()?;
        let [word, kind, _number, runtime] = device.splitn(4, '-').collect::<Vec<_>>().try_into().ok()?;
        (tuned == TUNED && word == "device").then(|| format!("{tuned}/{version}/{word}-{kind}-{gpu}-{runtime}/{rest}"))
    };
    let targets: Option<Vec<_>> = gpus.iter().map(renumbered).collect();
    targets.filter(|targets| !targets.is_empty()).unwrap_or_else(|| vec![namespace.to_owned()])
}

impl fmt::Display for Bundled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken { path, entries, kernels, driver_files } => {
                match entries {
                    0 => write!(f, "archive {} was taken before", path.display())?,
                    entries => write!(f, "{entries} entries taken from {}", path.display())?,
                }
                if *driver_files > 0 {
                    write!(f, "; {driver_files} files for the driver's cache")?;
                }
                if *kernels { Ok(()) } else { f.write_str("; its kernels are of another build, and left out") }
            }
            Self::Ignored { path, because } => write!(f, "{} ignored: {because}", path.display()),
        }
    }
}

/// The reason why users other than this one and root could have written the file; `None` if they could not. An archive has
/// code for the GPU.
#[cfg(unix)]
fn others_can_write(file: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;

    let user = rustix::process::geteuid().as_raw();
    // Whoever can write the folder can replace the file.
    [Some(file), file.parent()].into_iter().flatten().find_map(|path| match path.symlink_metadata() {
        Err(error) => Some(format!("{} cannot be examined: {error}", path.display())),
        Ok(found) if found.is_symlink() => Some(format!("{} is a symbolic link; {}", path.display(), remedy())),
        Ok(found) if found.uid() != user && found.uid() != 0 => {
            Some(format!("{} belongs to user id {}, not to this user; {}", path.display(), found.uid(), remedy()))
        }
        Ok(found) if found.mode() & OF_OTHERS != 0 => {
            Some(format!("others can write {} (mode {:o}); {}", path.display(), found.mode() & 0o7777, remedy()))
        }
        Ok(_) => None,
    })
}

/// Removes write permission of the group and of others, which some systems give by default.
///
/// # Errors
///
/// Errors of the system.
#[cfg(unix)]
fn keep_others_out(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mode = std::fs::metadata(path)?.permissions().mode();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & !OF_OTHERS))
}

#[cfg(not(unix))]
fn keep_others_out(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Permission to write for the group and for all.
#[cfg(unix)]
const OF_OTHERS: u32 = 0o022;

#[cfg(not(unix))]
fn others_can_write(_: &Path) -> Option<String> {
    Some(format!("its owner is unknown on this system; {}", remedy()))
}

/// Way to use such an archive.
fn remedy() -> String {
    format!("name it in {BUNDLE} to use it all the same")
}

#[cfg(test)]
mod tests;
