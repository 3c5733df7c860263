//! The table of settings. A new setting is a row of this table and the code that acts on it.

mod pins;
#[cfg(test)]
mod tests;
mod value;

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Precision;
pub use pins::SetError;
use value::Typed;
pub use value::{SettingKind, SettingValue};

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
                    $(Setting::$setting => self.$name = Some(pins::parse(setting, text)?),)+
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
