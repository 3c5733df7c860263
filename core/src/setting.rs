//! The table of settings. A new setting is a row of this table and the code that acts on it.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Kernels, Precision, suggest};

/// Columns of a row in the table of settings.
#[derive(Debug)]
#[non_exhaustive]
pub struct SettingRow {
    /// Name of the setting, and of the field that it tunes.
    pub name: &'static str,
    /// Kind of the value.
    pub kind: SettingKind,
    /// Documentation in Markdown.
    pub meaning: &'static str,
    /// Unit of a count.
    pub unit: Option<&'static str>,
    /// Smallest count that can be pinned.
    pub least: u64,
    /// Largest count that can be pinned, a power of two.
    pub most: u64,
    /// `true` if the setting decides how an optimizer step is cut into micro-batches.
    pub cuts_step: bool,
    /// `true` if another value changes the results of training, if only by rounding.
    pub changes_results: bool,
    /// Value in a resumed run.
    pub on_resume: OnResume,
    /// Heading in tables of plans, which leave out settings without one.
    pub heading: Option<&'static str>,
}

/// Value of a setting in a resumed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnResume {
    /// The saved value.
    Keep,
    /// The saved value, unless another one is needed to fit into memory.
    KeepIfFits,
    /// Planned again, because the value belongs to the machine or follows from other settings.
    Replan,
}

impl SettingRow {
    /// Largest count of any setting.
    pub const LARGEST: u64 = 1 << 30;

    /// Returns `true` if the setting can be pinned to this count.
    const fn contains(&self, count: u64) -> bool {
        self.least <= count && count <= self.most
    }

    /// The counts that the setting can be pinned to: `1 to 2^30`.
    fn range(&self) -> String {
        format!("{} to 2^{}", self.least, self.most.ilog2())
    }

    const DEFAULT: Self = Self {
        name: "",
        kind: SettingKind::Count,
        meaning: "",
        unit: None,
        least: 1,
        most: Self::LARGEST,
        cuts_step: false,
        changes_results: false,
        on_resume: OnResume::Replan,
        heading: None,
    };
}

/// Generates the types that list settings. A row is
/// `/// documentation`, then `field: type = default, Variant { column: value, … }`.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident: $type:ty = $default:expr, $setting:ident { $($column:ident: $value:expr),* $(,)? }
    )+) => {
        /// Tuned values of a training run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        /// Settings fixed by the user. A plan uses them unchanged.
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        #[non_exhaustive]
        pub struct Pins {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)+
        }

        /// One of the tuned values. Its name is the name of the field that it tunes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Setting {
            $(#[doc = concat!("[`Settings::", stringify!($name), "`]")] $setting,)+
        }

        const ROWS: &[SettingRow] = &[$(
            SettingRow {
                name: stringify!($name),
                kind: <$type as Typed>::KIND,
                meaning: concat!($($doc),+).trim_ascii(),
                $($column: $value,)*
                ..SettingRow::DEFAULT
            },
        )+];

        impl Setting {
            /// All settings, in the order of reports.
            pub const ALL: [Self; ROWS.len()] = [$(Self::$setting),+];
        }

        impl Default for Settings {
            fn default() -> Self { Self::DEFAULT }
        }

        impl Settings {
            /// Values that nothing was planned for.
            pub const DEFAULT: Self = Self { $($name: $default),+ };

            /// Value of a setting.
            pub fn get(&self, setting: Setting) -> SettingValue {
                match setting {
                    $(Setting::$setting => self.$name.into(),)+
                }
            }
        }

        impl Pins {
            /// Value that a setting is pinned to.
            pub fn get(&self, setting: Setting) -> Option<SettingValue> {
                match setting {
                    $(Setting::$setting => self.$name.map(Into::into),)+
                }
            }

            /// Pins a setting to the value that `text` spells.
            ///
            /// # Errors
            ///
            /// [`SetError::Value`] if the setting has no such value.
            pub fn set(&mut self, setting: Setting, text: &str) -> Result<(), SetError> {
                match setting {
                    $(Setting::$setting => self.$name = Some(parse(setting, text)?),)+
                }
                Ok(())
            }

            /// Writes the pinned values into `settings`.
            pub(crate) fn over(&self, settings: &mut Settings) {
                $(settings.$name = self.$name.unwrap_or(settings.$name);)+
            }

            /// Adds the pins of `others` that `is_taken` accepts, where none is set.
            fn merge(&self, others: &Self, is_taken: impl Fn(Setting) -> bool) -> Self {
                Self { $($name: self.$name.or(others.$name.filter(|_| is_taken(Setting::$setting)))),+ }
            }
        }

        /// Pins every setting.
        impl From<&Settings> for Pins {
            fn from(settings: &Settings) -> Self {
                Self { $($name: Some(settings.$name)),+ }
            }
        }
    };
}

settings! {
    /// Samples in one micro-batch on one device. Models with batch statistics (BatchNorm) depend on it.
    batch_size: u64 = 1, BatchSize {
        unit: Some("samples"), cuts_step: true, on_resume: OnResume::Keep, heading: Some("batch")
    }

    /// Micro-batches in one optimizer step on one device. The last one may be smaller.
    gradient_accumulation: u64 = 1, GradientAccumulation {
        unit: Some("micro-batches"), cuts_step: true, heading: Some("accumulation")
    }

    /// Number formats of the training step.
    precision: Precision = Precision::F32, Precision {
        changes_results: true, on_resume: OnResume::Keep, heading: Some("precision")
    }

    /// Permission to use TF32 tensor cores for f32 matrix products. `false` switches TF32 off on the session's GPUs.
    allow_tf32: bool = false, AllowTf32 {
        changes_results: true
    }

    /// Activation checkpointing: memory-bound activations are recomputed in the backward pass.
    gradient_checkpointing: bool = false, GradientCheckpointing {
        on_resume: OnResume::KeepIfFits, heading: Some("checkpointing")
    }

    /// Batches that the loader prepares ahead.
    prefetch_depth: u64 = 1, PrefetchDepth {
        unit: Some("batches"), least: 0, most: 1 << 16, on_resume: OnResume::KeepIfFits, heading: Some("prefetch")
    }

    /// Threads that prepare batches.
    num_workers: u64 = 1, NumWorkers {
        unit: Some("threads"), least: 0, most: 1 << 12, heading: Some("workers")
    }

    /// Samples in one evaluation batch. Evaluation stores no activations for a backward pass.
    eval_batch_size: u64 = 1, EvalBatchSize {
        unit: Some("samples"), on_resume: OnResume::KeepIfFits
    }

    /// CUDA graphs: the trainer records a micro-step once and launches it again. Planned where they were measured to be 5%
    /// faster; a replayed micro-step does not call the loss function.
    cuda_graphs: bool = false, CudaGraphs {}

    /// Kernels of the modules in `gpu_tuned::nn`: `burn`, or `library` for NVIDIA's cuBLASLt. Without the library a session
    /// falls back to Burn's.
    kernels: Kernels = Kernels::Burn, Kernels {
        changes_results: true, on_resume: OnResume::Keep
    }
}

impl Setting {
    /// Row of the setting in the table.
    pub const fn row(self) -> &'static SettingRow {
        &ROWS[self as usize]
    }

    /// Returns the error for a count that the setting cannot have, `None` for any other value.
    pub fn out_of_range(self, value: SettingValue) -> Option<String> {
        let row = self.row();
        match value {
            SettingValue::Count(count) if !row.contains(count) => {
                Some(format!("{count} is out of range, expected {}", row.range()))
            }
            _ => None,
        }
    }

    /// Name of the setting, and of the field that it tunes.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Kind of the value.
    pub const fn kind(self) -> SettingKind {
        self.row().kind
    }

    /// Finds a setting by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// Whole number.
    Count,
    /// `true` or `false`.
    Flag,
    /// [`Precision`].
    Precision,
    /// [`Kernels`].
    Kernels,
}

impl SettingKind {
    /// Types of the config fields that can hold such a value; a precision also fits an enum with the usual names.
    pub const fn field_types(self) -> &'static [&'static str] {
        match self {
            Self::Count => &["usize", "u32", "u64", "i32", "i64"],
            Self::Flag => &["bool"],
            Self::Precision => &["Precision", "String", "&str", "bool"],
            Self::Kernels => &["Kernels", "String", "&str", "bool"],
        }
    }
}

/// Value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// Whole number.
    Count(u64),
    /// `true` or `false`.
    Flag(bool),
    /// Precision.
    Precision(Precision),
    /// Kernels.
    Kernels(Kernels),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.pad(&count.to_string()),
            Self::Flag(flag) => f.pad(if *flag { "true" } else { "false" }),
            Self::Precision(precision) => f.pad(precision.name()),
            Self::Kernels(kernels) => f.pad(kernels.name()),
        }
    }
}

/// Type of a field of [`Settings`](super::Settings).
trait Typed: Into<SettingValue> {
    const KIND: SettingKind;

    /// Parses a value of the setting in this row. The error is the text that was expected.
    fn parse(text: &str, row: &SettingRow) -> Result<Self, String>;
}

macro_rules! from {
    ($($type:ident: $kind:ident),+) => {$(
        impl From<$type> for SettingValue {
            fn from(value: $type) -> Self {
                Self::$kind(value)
            }
        }
    )+};
}

from!(u64: Count, bool: Flag, Precision: Precision, Kernels: Kernels);

impl Typed for u64 {
    const KIND: SettingKind = SettingKind::Count;

    fn parse(text: &str, row: &SettingRow) -> Result<Self, String> {
        let commas = if text.contains('=') { "; settings are separated by commas" } else { "" };
        let count = text.parse().ok().filter(|count| row.contains(*count));
        count.ok_or_else(|| format!("expected a whole number from {}{commas}", row.range()))
    }
}

impl Typed for bool {
    const KIND: SettingKind = SettingKind::Flag;

    fn parse(text: &str, _: &SettingRow) -> Result<Self, String> {
        text.parse().map_err(|_| "expected true or false".to_owned())
    }
}

impl Typed for Precision {
    const KIND: SettingKind = SettingKind::Precision;

    fn parse(text: &str, _: &SettingRow) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        text.parse().map_err(|_| format!("expected {}{}", names.join(", "), suggest(text, names)))
    }
}

impl Typed for Kernels {
    const KIND: SettingKind = SettingKind::Kernels;

    fn parse(text: &str, _: &SettingRow) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        text.parse().map_err(|_| format!("expected {}{}", names.join(" or "), suggest(text, names)))
    }
}

/// Error in a text that pins settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetError {
    /// A word has no value.
    #[error("`{word}` has no value: write it as {word}=VALUE; values are separated by commas")]
    NoValue {
        /// The word.
        word: String,
    },
    /// No setting has this name.
    #[error("there is no setting `{name}`{hint}; there are {}", Setting::ALL.map(Setting::name).join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Suggestion of a similar name.
        hint: String,
    },
    /// The setting has no such value.
    #[error("{setting} cannot be `{value}`: {expected}")]
    Value {
        /// The setting.
        setting: Setting,
        /// The text of the value.
        value: String,
        /// Values that the setting accepts.
        expected: String,
    },
    /// The text pins a setting twice.
    #[error("{setting} is given twice: keep one of them")]
    Twice {
        /// The setting.
        setting: Setting,
    },
}

impl Pins {
    /// The environment variable that fixes settings for one start of a program: `batch_size=64,num_workers=4`.
    pub const VARIABLE: &'static str = "GPU_TUNED_SET";

    /// Returns `true` if nothing is pinned.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if the setting is pinned.
    pub fn has(&self, setting: Setting) -> bool {
        self.get(setting).is_some()
    }

    /// Pinned settings with their values, in the order of [`Setting::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Setting, SettingValue)> {
        Setting::ALL.into_iter().filter_map(|setting| Some((setting, self.get(setting)?)))
    }

    /// Keeps the pins of the settings that `is_kept` accepts.
    #[must_use]
    pub fn keep(&self, is_kept: impl Fn(Setting) -> bool) -> Self {
        Self::default().merge(self, is_kept)
    }

    /// Adds the pins of `others` where none is set. Pins that cut the optimizer step come from `self` alone if it has any.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        let cuts_step = |setting: Setting| setting.row().cuts_step;
        let is_cut = self.iter().any(|(setting, _)| cuts_step(setting));
        self.merge(others, |setting| !(is_cut && cuts_step(setting)))
    }

    /// Returns `false` if TF32 is pinned off.
    pub(crate) fn allow_tf32(&self) -> bool {
        self.allow_tf32 != Some(false)
    }
}

/// Parses the value of a setting.
fn parse<T: Typed>(setting: Setting, text: &str) -> Result<T, SetError> {
    T::parse(text, setting.row()).map_err(|expected| SetError::Value { setting, value: text.to_owned(), expected })
}

impl FromStr for Pins {
    type Err = SetError;

    fn from_str(text: &str) -> Result<Self, SetError> {
        let mut pins = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((name, text)) = word.split_once('=') else {
                return Err(SetError::NoValue { word: word.to_owned() });
            };
            let (name, text) = (name.trim(), text.trim());
            let unknown =
                || SetError::Unknown { name: name.to_owned(), hint: suggest(name, Setting::ALL.map(Setting::name)) };
            let setting = Setting::named(name).ok_or_else(unknown)?;
            if pins.has(setting) {
                return Err(SetError::Twice { setting });
            }
            pins.set(setting, text)?;
        }
        Ok(pins)
    }
}

/// The text that [`FromStr`] parses.
impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(|(setting, value)| format!("{setting}={value}")).collect();
        f.write_str(&words.join(","))
    }
}

#[cfg(test)]
mod tests;
