//! Copies of a config for its targets.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_optimize::ConfigText;
use serde::Serialize;

use super::args::WriteArgs;
use crate::error::Error;
use crate::files::{Change, write_all};
use crate::stdio::is_standard;
use crate::target::Target;

/// Effect on the file of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileOutcome {
    /// The file has this text already.
    Unchanged,
    /// A new file gets the text of the config.
    Copied,
    /// The file gets another text.
    Changed,
}

#[derive(Serialize)]
pub(super) struct CopyReport<'a> {
    file: Option<&'a str>,
    written: bool,
    /// True if the file has the text of the config, or had its own already.
    unchanged: bool,
}

impl FileOutcome {
    pub(super) fn new(copy: &Change, config: &ConfigText) -> Self {
        if !copy.is_needed() {
            Self::Unchanged
        } else if copy.after == config.with_mark(&config.text) {
            Self::Copied
        } else {
            Self::Changed
        }
    }
}

impl<'a> CopyReport<'a> {
    pub(super) fn new(copy: Option<&'a Change>, config: &ConfigText, dry_run: bool) -> Self {
        let outcome = copy.map(|copy| FileOutcome::new(copy, config));
        Self {
            file: copy.map(|copy| copy.name.as_str()),
            written: matches!(outcome, Some(FileOutcome::Copied | FileOutcome::Changed)) && !dry_run,
            unchanged: matches!(outcome, Some(FileOutcome::Unchanged | FileOutcome::Copied)),
        }
    }
}

pub(super) fn path(config: &Path, target: &Target, args: &WriteArgs, profiles: &ProfileTable) -> PathBuf {
    if args.in_place {
        return config.to_owned();
    }
    if let Some(output) = &args.output {
        return output.clone();
    }
    let stem = config.file_stem().unwrap_or_default();
    // The copy of a copy has the name of a copy of the config.
    let copied = stem.to_str().and_then(|stem| stem.rsplit_once('.')).filter(|(_, last)| profiles.get(last).is_some());
    let mut name = copied.map_or(stem, |(stem, _)| OsStr::new(stem)).to_owned();
    name.push(format!(".{}.", short_name(target)));
    name.push(config.extension().unwrap_or_default());
    config.with_file_name(name)
}

/// Name of a target in file names: its profile, else the device in small letters with dashes.
pub(super) fn short_name(target: &Target) -> String {
    if let Some(profile) = &target.profile {
        return profile.id.to_string();
    }
    if target.facts.kind == DeviceKind::Cpu {
        return "cpu".to_owned();
    }
    let words = target.name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

/// Prepares a copy with this text. A file that differs is refused unless the arguments allow it.
pub(super) fn prepare(path: PathBuf, config: &ConfigText, text: &str, args: &WriteArgs) -> Result<Change, Error> {
    let after = config.with_mark(text);
    if is_standard(&path) {
        return Ok(Change { path, name: "standard output".to_owned(), before: None, after });
    }
    let present = match read_text(&path, LARGEST) {
        Ok(present) => Some(present),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(source) => return Err(Error::Read { path, source }),
    };
    let differs = present.as_ref().is_some_and(|present| *present != after);
    if differs && !args.force && !args.in_place && !args.dry_run {
        return Err(Error::Exists { path });
    }
    // The edit is of the text that was read.
    let before = if path == config.path { Some(config.with_mark(&config.text)) } else { present };
    let name = path.display().to_string();
    Ok(Change { path, name, before, after })
}

/// Writes all copies, or none.
pub(super) fn write(copies: impl Iterator<Item = Change>) -> Result<(), Error> {
    let needed: Vec<_> = copies.filter(|copy| copy.is_needed() && !is_standard(&copy.path)).collect();
    write_all(&needed)
}
