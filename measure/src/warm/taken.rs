//! Finds an archive, and fills the caches from it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use cubecl::bundle::Bundle;
use cubecl_environment::bytes::Bytes;
use cubecl_environment::persistence::{self, Insertion, Origin};
use serde::Serialize;

use super::bundle::{EXTENSION, Found, build, file_name};
use super::caches::{TUNED, found_no_memory};
use super::error::BundleError;
use super::fingerprint::Fingerprint;
use super::{BUNDLE, FOLDER, NOTES, SHA256, driver, owner};
use crate::requests::package;

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
        let foreign = if is_named { None } else { owner::others_can_write(&file) };
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

fn is_tuned(namespace: &str) -> bool {
    namespace.split('/').next() == Some(TUNED)
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

/// Number of entries.
pub(super) fn entries(bundle: &dyn Bundle) -> usize {
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

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::path::PathBuf;

    use super::{Bundled, find_in, for_gpus};
    use crate::warm::bundle::file_name;
    use crate::warm::fingerprint::tests::h200;

    #[test]
    fn tuned_choices_are_for_every_gpu_of_the_session() {
        let namespace = "autotune/0.11.3/device-0-0-cuda/burn-cubecl/matmul";
        assert_eq!(for_gpus(namespace, &[0]), [namespace]);
        let targets = for_gpus(namespace, &[1, 3]);
        let expected = [1, 3].map(|gpu| format!("autotune/0.11.3/device-0-{gpu}-cuda/burn-cubecl/matmul"));
        assert_eq!(targets, expected);
        for all in ["cuda/0.11.3/ptx_sm90-llvm-86", "autotune/0.11.3/device-0-0-cuda", "autotune/0.11.3/other/x"] {
            assert_eq!(for_gpus(all, &[1, 3]), [all]);
        }
    }

    #[test]
    fn the_bundle_of_the_fingerprint_is_found_in_the_first_folder_that_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
        for folder in [&a, &b, &c] {
            fs::create_dir(folder).expect("a folder");
        }
        let find = |named: Option<&PathBuf>| {
            let all = [folder.path().join("missing"), a.clone(), b.clone(), c.clone()];
            find_in(named.map(OsString::from), all.into_iter(), &h200())
        };
        assert_eq!(find(None), None);
        fs::write(a.join("other.bundle"), "").expect("it is written");
        let Some(Err(Bundled::Ignored { path, because })) = find(None) else { panic!("there is another one") };
        assert_eq!((path, because.ends_with("but other.bundle")), (a.clone(), true));
        for folder in [&b, &c] {
            fs::write(folder.join(file_name(&h200())), "").expect("it is written");
        }
        assert_eq!(find(None), Some(Ok(b.join(file_name(&h200())))));
        assert_eq!(find(Some(&c)), Some(Ok(c.join(file_name(&h200())))));
        // A file that is named is the one, whatever its name, and is there or not.
        let named = folder.path().join("mine");
        assert_eq!(find(Some(&named)), Some(Ok(named.clone())));
    }
}
