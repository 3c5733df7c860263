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

mod alike;
mod change;
mod described;
mod file;
mod merge;
mod outdated;
mod read;
mod render;
mod table_reader;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use alike::SameDescription;
pub use change::SpecChange;
pub use file::{LockError, LockFile, Update};
pub use merge::{Merged, merged};
pub use outdated::{EarlierDescription, Outdated};

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::measured::{Measured, Mode};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Precision};

/// Contents of a `gpu-tuned.lock`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// Workloads by name.
    #[serde(default)]
    pub workload: BTreeMap<String, LockedWorkload>,
    /// Number of the format, where an older release wrote the file; its measurements are then left out.
    #[serde(skip)]
    pub older_format: Option<u64>,
}

/// A measured workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockedWorkload {
    /// The description that the measured program was built with; `None` where it had none, or one that only a newer
    /// release can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub described: Option<WorkloadSpec>,
    /// The goal that the measured program was built with. Pins are not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// The measurements.
    pub measured: Measured,
}

/// Key of the bytes that steps with accumulated gradients reserve.
const ACCUMULATING: &str = "reserved_accumulating_bytes";

/// The same in `bf16_params`. Earlier releases summed these gradients in bf16, and wrote [`ACCUMULATING`].
const F32_SUMS: &str = "reserved_f32_sums_bytes";

/// Key of the bytes that steps with accumulated gradients reserve in a mode.
fn accumulating_key(mode: Mode) -> &'static str {
    if mode.precision == Precision::Bf16Params { F32_SUMS } else { ACCUMULATING }
}

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
        read::file(source).map(|(lock, _)| lock)
    }

    /// Returns the file's text: sorted, one value or micro-batch a line, rounded as by [`merged`]. Equal locks have equal
    /// texts.
    pub fn to_toml(&self) -> String {
        render::text(&write::document(self))
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

    /// Returns the first mistake that [`parse`](Self::parse) would report for a file with these values.
    pub fn mistake(&self) -> Option<String> {
        let text = self.to_toml();
        let mistakes = read::document(Source { file: Self::NAME, text: &text }).err()?;
        mistakes.into_iter().next().map(|mistake| mistake.message)
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
}
