//! Where the copies of a config go.

use std::fs;
use std::path::{Path, PathBuf};

use gpu_tuned_core::profile::ProfileTable;

use super::args::WriteArgs;
use super::error::OptimizeError;
use super::source::Read;
use crate::error::Error;
use crate::init::change::Change as FileChange;
use crate::init::write;
use crate::recording::is_standard;
use crate::targets::Target;

/// The file that a target's copy becomes.
pub(super) fn path(config: &Path, target: &Target, args: &WriteArgs, profiles: &ProfileTable) -> PathBuf {
    if args.in_place {
        return config.to_owned();
    }
    if let Some(output) = &args.output {
        return output.clone();
    }
    let stem = config.file_stem().unwrap_or_default().to_string_lossy();
    // What is a copy for one GPU already makes no copy of a copy.
    let stem = stem.rsplit_once('.').filter(|(_, last)| profiles.get(last).is_some()).map_or(&*stem, |(stem, _)| stem);
    let extension = config.extension().unwrap_or_default().to_string_lossy();
    config.with_file_name(format!("{stem}.{}.{extension}", short(target)))
}

/// A name for files: the profile's, else that of the device in small letters and dashes.
pub(super) fn short(target: &Target) -> String {
    if let Some(profile) = &target.profile {
        return profile.id.to_string();
    }
    if target.facts.kind == gpu_tuned_core::device::DeviceKind::Cpu {
        return "cpu".to_owned();
    }
    let words = target.name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Looks whether a copy of this text may be written, and how.
pub(super) fn prepared(path: PathBuf, config: &Read, text: &str, args: &WriteArgs) -> Result<FileChange, Error> {
    let after = config.marked(text);
    if is_standard(&path) {
        return Ok(FileChange { path, name: "standard output".to_owned(), before: None, after });
    }
    let there = match fs::read_to_string(&path) {
        Ok(there) => Some(there),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(source) => return Err(Error::Read { path, source }),
    };
    let differs = there.as_ref().is_some_and(|there| *there != after);
    if differs && !args.force && !args.in_place && !args.dry_run {
        return Err(OptimizeError::Exists { path }.into());
    }
    // What was read is what is changed.
    let before = if path == config.path { Some(config.marked(&config.text)) } else { there };
    let name = path.display().to_string();
    Ok(FileChange { path, name, before, after })
}

/// Writes all copies, or none.
pub(super) fn write(changes: &[FileChange]) -> Result<(), Error> {
    let new: Vec<_> = changes.iter().filter(|change| change.changes() && !is_standard(&change.path)).cloned().collect();
    write::all(&new)
}
