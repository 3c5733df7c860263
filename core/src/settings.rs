use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Precision;

/// The tuned values of a training run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Samples in one micro-batch on one device.
    pub batch_size: u64,
    /// Micro-batches in one optimizer step on one device; the last may be smaller.
    pub gradient_accumulation: u64,
    /// Number formats of the training step.
    pub precision: Precision,
    /// Whether f32 matrix products may use TF32 tensor cores. Where not, a session switches TF32 off on its GPUs.
    pub allow_tf32: bool,
    /// Whether memory-bound activations are recomputed in the backward pass.
    pub gradient_checkpointing: bool,
    /// Batches that the loader prepares ahead.
    pub prefetch_depth: u64,
    /// Threads that prepare batches.
    pub num_workers: u64,
    /// Samples in one batch of an evaluation, which keeps nothing for a backward pass.
    pub eval_batch_size: u64,
}

/// One of the tuned values; its name is that of the field it tunes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// [`Settings::batch_size`]
    BatchSize,
    /// [`Settings::gradient_accumulation`]
    GradientAccumulation,
    /// [`Settings::precision`]
    Precision,
    /// [`Settings::allow_tf32`]
    AllowTf32,
    /// [`Settings::gradient_checkpointing`]
    GradientCheckpointing,
    /// [`Settings::prefetch_depth`]
    PrefetchDepth,
    /// [`Settings::num_workers`]
    NumWorkers,
    /// [`Settings::eval_batch_size`]
    EvalBatchSize,
}

/// The kind of value that a setting has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// A whole number.
    Count,
    /// `true` or `false`.
    Flag,
    /// A [`Precision`].
    Precision,
}

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// A whole number.
    Count(u64),
    /// `true` or `false`.
    Flag(bool),
    /// A precision.
    Precision(Precision),
}

impl Setting {
    /// All settings, in the order in which reports list them.
    pub const ALL: [Self; 8] = [
        Self::BatchSize,
        Self::GradientAccumulation,
        Self::Precision,
        Self::AllowTf32,
        Self::GradientCheckpointing,
        Self::PrefetchDepth,
        Self::NumWorkers,
        Self::EvalBatchSize,
    ];

    /// The name, which is the name of the field in a config struct.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BatchSize => "batch_size",
            Self::GradientAccumulation => "gradient_accumulation",
            Self::Precision => "precision",
            Self::AllowTf32 => "allow_tf32",
            Self::GradientCheckpointing => "gradient_checkpointing",
            Self::PrefetchDepth => "prefetch_depth",
            Self::NumWorkers => "num_workers",
            Self::EvalBatchSize => "eval_batch_size",
        }
    }

    /// The setting with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }

    /// The kind of its value.
    pub const fn kind(self) -> SettingKind {
        match self {
            Self::Precision => SettingKind::Precision,
            Self::AllowTf32 | Self::GradientCheckpointing => SettingKind::Flag,
            _ => SettingKind::Count,
        }
    }

    /// Its value in `settings`.
    pub const fn of(self, settings: &Settings) -> SettingValue {
        match self {
            Self::BatchSize => SettingValue::Count(settings.batch_size),
            Self::GradientAccumulation => SettingValue::Count(settings.gradient_accumulation),
            Self::Precision => SettingValue::Precision(settings.precision),
            Self::AllowTf32 => SettingValue::Flag(settings.allow_tf32),
            Self::GradientCheckpointing => SettingValue::Flag(settings.gradient_checkpointing),
            Self::PrefetchDepth => SettingValue::Count(settings.prefetch_depth),
            Self::NumWorkers => SettingValue::Count(settings.num_workers),
            Self::EvalBatchSize => SettingValue::Count(settings.eval_batch_size),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Count(count) => count.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Precision(precision) => precision.to_string(),
        };
        f.pad(&text)
    }
}
