//! `gpu-tuned.lock`: measurements of each workload, written by `cargo gpu-tuned measure` and committed.
//!
//! ```
//! use gpu_tuned_project::lock::Lock;
//! use gpu_tuned_core::source::Source;
//!
//! let text = "\
//! format = 2
//!
//! [workload.digits]
//! parameters = 60_074
//! shape = \"9c1f\"
//!
//! ## end of gpu-tuned.lock
//! ";
//! let lock = Lock::parse(Source { file: Lock::NAME, text }).expect("it is valid");
//! assert_eq!(lock.workload["digits"].measured.parameters, 60_074);
//! ```
//!
//! Reading skips keys of newer releases, and [`merged`] keeps them. Required values must be present and in range. Each
//! mistake is a [`FileError`] with its place, and the last one has the remedy. A file of an older format is read as an empty
//! one.

mod codec;
mod file;
mod merge;
#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use gpu_tuned_core::Goal;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::dims::{DimValues, Schema as _};
use gpu_tuned_core::measured::Measured;
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{ModelSpec, WorkloadSpec};
use serde::{Serialize, Serializer};
use toml::de::{DeTable, Error};
use toml::{Spanned, Table};

use crate::file::merge_marker;
use crate::workspace::CargoLock;

pub use file::{LockError, LockFile, Update};
pub use merge::{Merged, merged};

/// Contents of a `gpu-tuned.lock`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    /// Workloads by name.
    pub workload: BTreeMap<String, LockedWorkload>,
    /// Number of the format, where an older release wrote the file; its measurements are then left out.
    pub older_format: Option<u64>,
}

/// A measured workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LockedWorkload {
    /// The description that the measured program was built with; `None` where it had none, or one that only a newer
    /// release can read.
    pub described: Option<WorkloadSpec>,
    /// The goal that the measured program was built with. Pins are not kept.
    pub goal: Option<Goal>,
    /// The measurements.
    pub measured: Measured,
}

/// Remedy for a file with both sides of a merge.
const REMEDY_OF_MERGE: &str = "keep either side whole (`git checkout --ours` or `--theirs` and the file), or delete the file; \
                               then run `cargo gpu-tuned measure`";

impl Lock {
    /// The file's name, beside `Cargo.toml`.
    pub const NAME: &'static str = "gpu-tuned.lock";

    /// Last line of every file; a file without it was cut short. The line is equal on both sides of a merge, and follows a
    /// blank line. So git can join lines added at the end with changes of the lines before.
    pub const END: &'static str = "# end of gpu-tuned.lock";

    /// Number of the format that this release writes and reads.
    pub const FORMAT: u32 = 2;

    /// Advice for a file that cannot be repaired.
    pub const REMEDY: &'static str =
        "put back the file that was committed, or delete it and run `cargo gpu-tuned measure`";

    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// All mistakes, each with its place: conflict markers of a merge, a format of a newer release, a text without its
    /// [last line](Self::END), and values that are missing, of the wrong type or out of range.
    pub fn parse(source: Source<'_>) -> Result<Self, Vec<FileError>> {
        Self::parse_whole(source).map(|(lock, _)| lock)
    }

    /// Reads the file's text as the lock, and as the whole table with keys that only a newer release reads.
    fn parse_whole(source: Source<'_>) -> Result<(Self, Table), Vec<FileError>> {
        if let Some(mistake) = merge_marker(source, REMEDY_OF_MERGE) {
            return Err(vec![mistake]);
        }
        let root = DeTable::parse(source.text);
        match root.as_ref().ok().and_then(|root| format(root.get_ref())) {
            Some((_, format)) if format < u64::from(Self::FORMAT) => {
                return Ok((Self { older_format: Some(format), ..Self::default() }, empty()));
            }
            Some((place, format)) if format > u64::from(Self::FORMAT) => {
                let message = format!(
                    "format {format} was written by a newer release of gpu-tuned, this one reads format {}: update \
                     gpu-tuned and its command line",
                    Self::FORMAT
                );
                return Err(vec![source.error(&place, message)]);
            }
            _ => {}
        }
        Self::read(root, source).map_err(|mut mistakes| {
            if let Some(last) = mistakes.last_mut() {
                last.message = format!("{}; mend that, {}", last.message, Self::REMEDY);
            }
            mistakes
        })
    }

    /// Reads the tables of a file in this format, without a remedy in the mistakes.
    fn read<'i>(
        root: Result<Spanned<DeTable<'i>>, Error>,
        source: Source<'i>,
    ) -> Result<(Self, Table), Vec<FileError>> {
        let syntax = |error| vec![source.toml_error(&error)];
        let outcome = root.map_err(syntax).and_then(|root| {
            let workload = codec::read(root.into_inner(), source, true)?;
            // Numbers that are not read may be malformed.
            Ok((Self { workload, older_format: None }, source.text.parse().map_err(syntax)?))
        });
        match (outcome, cut_off(source)) {
            (Ok(read), None) => Ok(read),
            (outcome, cut_off) => Err(outcome.err().into_iter().flatten().chain(cut_off).collect()),
        }
    }

    /// Reads the measurements in a table that [`Serialize`] wrote.
    pub(crate) fn from_table<'i>(table: DeTable<'i>, source: Source<'i>) -> Result<Self, Vec<FileError>> {
        codec::read(table, source, false).map(|workload| Self { workload, older_format: None })
    }

    /// Returns the file's text: sorted, one value or micro-batch a line, rounded as by [`merged`]. Equal locks have equal
    /// texts.
    pub fn to_toml(&self) -> String {
        let mut root = empty();
        root.extend(self.to_table(true));
        merge::format(&root)
    }

    /// Returns `{ workload }`, with figures rounded to what was measured, or exact.
    fn to_table(&self, is_rounded: bool) -> Table {
        let workloads =
            self.workload.iter().map(|(name, entry)| (name.clone(), codec::write(entry, is_rounded).into()));
        Table::from_iter([("workload".to_owned(), workloads.collect::<Table>().into())])
    }

    /// Warning about a file of an older release, with the command that replaces it.
    pub fn older_warning(&self) -> Option<String> {
        let format = self.older_format?;
        let name = Self::NAME;
        Some(format!(
            "{name}: an older release wrote it (format {format}), and its measurements are not used: measure again \
             (`cargo gpu-tuned measure`)"
        ))
    }

    /// Returns true if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.workload.is_empty()
    }

    /// Returns the measurements of the workload with this description, and its name in the file. If several entries have the
    /// description, as after a renaming, returns the entry `name`, or else the entry with most of the `devices`.
    pub fn measured_for(
        &self,
        name: Option<&str>,
        spec: &WorkloadSpec,
        devices: &[DeviceFacts],
    ) -> Option<(&str, &LockedWorkload)> {
        let is_same = |(_, entry): &(&String, &LockedWorkload)| entry.described.as_ref() == Some(spec);
        let named = name.and_then(|name| self.workload.get_key_value(name)).filter(is_same);
        let best = named.or_else(|| {
            self.workload.iter().filter(is_same).min_by_key(|(_, LockedWorkload { measured, .. })| {
                let missing = devices.iter().filter(|device| !device.is_in(measured)).count();
                (missing, measured.on.is_empty())
            })
        });
        best.map(|(name, entry)| (name.as_str(), entry))
    }

    /// Returns groups of workloads with the same description. Leaves out groups whose workloads are all `described` in a file,
    /// because configs name one of them.
    pub fn alike(&self, described: &BTreeMap<String, WorkloadSpec>) -> Vec<SameDescription<'_>> {
        let mut groups: Vec<(&WorkloadSpec, Vec<&str>)> = Vec::new();
        for (name, entry) in &self.workload {
            let Some(measured) = &entry.described else { continue };
            match groups.iter_mut().find(|(spec, _)| *spec == measured) {
                Some((_, names)) => names.push(name),
                None => groups.push((measured, vec![name])),
            }
        }
        let is_meant = |spec: &WorkloadSpec, name: &str| described.get(name) == Some(spec);
        groups.retain(|(spec, names)| names.len() > 1 && !names.iter().all(|name| is_meant(spec, name)));
        groups.into_iter().map(|(_, names)| SameDescription { names }).collect()
    }

    /// Removes and returns measurements taken with other releases of Burn than those that `package` is built with.
    pub fn take_outdated(&mut self, cargo_lock: &CargoLock, package: &str) -> Vec<Outdated> {
        let mut taken = Vec::new();
        for (workload, entry) in &mut self.workload {
            entry.measured.on.retain(|device, on| {
                let Some(now) = cargo_lock.other_than(&on.burn, package, "burn") else { return true };
                taken.push(Outdated { workload: workload.clone(), device: device.clone(), burn: on.burn.clone(), now });
                false
            });
        }
        taken
    }

    /// Returns the measured description that preceded `spec`: the one of the entry `name`. Without a name, returns the one of
    /// the same kind of model with the fewest changes. `None` if `spec` itself was measured.
    pub fn measured_before(&self, name: Option<&str>, spec: &WorkloadSpec) -> Option<EarlierDescription<'_>> {
        if self.measured_for(name, spec, &[]).is_some() {
            return None;
        }
        // Declared costs do not identify a model.
        let has_dimensions = !matches!(spec.model, ModelSpec::Declared(_));
        let is_alike = |earlier: &WorkloadSpec| has_dimensions && spec.model.kind().name == earlier.model.kind().name;
        let is_meant =
            |before: &str, earlier: &WorkloadSpec| name.map_or_else(|| is_alike(earlier), |name| name == before);
        let described = self.workload.iter().filter_map(|(name, entry)| Some((name, entry.described.as_ref()?)));
        let meant = described.filter(|(name, earlier)| is_meant(name, earlier));
        let before =
            meant.map(|(name, earlier)| EarlierDescription { name, changes: SpecChange::between(earlier, spec) });
        before.min_by_key(|before| before.changes.len())
    }
}

/// Writes the workloads in the keys of the file, with exact figures.
impl Serialize for Lock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_table(false).serialize(serializer)
    }
}

/// A file without any workload.
fn empty() -> Table {
    Table::from_iter([("format".to_owned(), Lock::FORMAT.into())])
}

/// Number of the file's format with its place, if it is one from 1 on.
fn format(root: &DeTable<'_>) -> Option<(Range<usize>, u64)> {
    let value = root.get("format")?;
    let format = codec::whole(value.get_ref()).filter(|format| *format > 0)?;
    Some((value.span(), format))
}

/// Mistake at the end of the file: a part may have been cut off.
fn cut_off(source: Source<'_>) -> Option<FileError> {
    let text = source.text.trim_end();
    let mut lines = text.lines().rev();
    if text.is_empty() || lines.next() == Some(Lock::END) {
        return None;
    }
    let message = if lines.any(|line| line == Lock::END) {
        format!("this stands behind `{}`, the last line", Lock::END)
    } else {
        format!("`{}` is missing, the last line: the file was cut short", Lock::END)
    };
    Some(source.error(&(text.len()..text.len()), message))
}

/// Workloads with the same description. A config that names no workload could use any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SameDescription<'a> {
    /// Names of the workloads, at least two.
    pub names: Vec<&'a str>,
}

/// Formats one sentence, with the remedy.
impl fmt::Display for SameDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let (last, others) = names.split_last().expect("BUG: there are two");
        let all = if others.len() > 1 { "all but " } else { "" };
        write!(f, "{}: {} and {last} have the same description: delete {all}one", Lock::NAME, others.join(", "))
    }
}

/// Measurements taken with another release of Burn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outdated {
    /// The workload's name.
    pub workload: String,
    /// The device's name.
    pub device: String,
    /// The measured release.
    pub burn: String,
    /// The releases in `Cargo.lock`.
    pub now: String,
}

/// A measured workload whose description changed afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierDescription<'a> {
    /// Name of the workload in the lock.
    pub name: &'a str,
    /// Changes since the measurement.
    pub changes: Vec<SpecChange>,
}

/// Formats one sentence, with the command to run.
impl fmt::Display for EarlierDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes: Vec<_> = self.changes.iter().map(ToString::to_string).collect();
        let (file, name) = (Lock::NAME, self.name);
        write!(f, "{file}: `{name}` was measured with {}: run `cargo gpu-tuned measure`", changes.join("; "))
    }
}

/// Formats one sentence, with the command to run.
impl fmt::Display for Outdated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.by(CargoLock::NAME))
    }
}

impl Outdated {
    /// Returns the message, with `cargo_lock` as the name of the `Cargo.lock`.
    pub fn by(&self, cargo_lock: &str) -> String {
        let Self { workload, device, burn, now } = self;
        format!(
            "{}: `{workload}` was measured on {device} with Burn {burn}, {cargo_lock} has {now}: its figures are left out, run \
             `cargo gpu-tuned measure`",
            Lock::NAME
        )
    }
}

/// A difference between two workloads: a dimension, or the kind of `model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecChange {
    /// Name of the dimension, such as `layers`.
    pub name: &'static str,
    /// Earlier value in TOML; `its default` if absent.
    pub was: String,
    /// Present value, likewise.
    pub now: String,
}

/// `layers = 4, now 6`
impl fmt::Display for SpecChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}, now {}", self.name, self.was, self.now)
    }
}

impl SpecChange {
    /// Lists the differences of `now` from `earlier`, sorted. For another kind of model, lists that difference only.
    pub fn between(earlier: &WorkloadSpec, now: &WorkloadSpec) -> Vec<Self> {
        let kinds = [earlier, now].map(|spec| spec.model.kind().name);
        if let [was, now] = kinds
            && was != now
        {
            return vec![Self { name: "model", was: was.to_owned(), now: now.to_owned() }];
        }
        let [was, now] = [earlier, now].map(values);
        let names: BTreeSet<_> = was.keys().chain(now.keys()).copied().collect();
        let changed = names.into_iter().filter(|name| was.get(name) != now.get(name));
        let change = |name| Self { name, was: value_or_default(&was, name), now: value_or_default(&now, name) };
        changed.map(change).collect()
    }
}

fn values(spec: &WorkloadSpec) -> DimValues {
    spec.model.values().into_iter().chain(spec.training.values()).collect()
}

fn value_or_default(values: &DimValues, name: &str) -> String {
    values.get(name).map_or_else(|| "its default".to_owned(), ToString::to_string)
}
