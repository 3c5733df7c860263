use serde::{Deserialize, Serialize};

use crate::{Precision, Setting, Settings};

/// What the user asks of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Goal {
    /// Samples in one optimizer step, over all ranks. Without it the compile-time target's micro-batch becomes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u64>,
    /// Ranks that train together; must divide the global batch.
    pub world_size: u64,
    /// Number formats; without it f32, with TF32 where the GPU has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Share of the available memory that is left alone, 0 to 0.9.
    pub memory_headroom: f64,
    /// How much of the best predicted throughput may be given up for a smaller micro-batch, 0 to 0.5.
    pub throughput_tolerance: f64,
    /// Settings that the user fixed; they are checked, never changed.
    #[serde(skip_deserializing, skip_serializing_if = "Pins::is_empty")]
    pub pins: Pins,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            global_batch: None,
            world_size: 1,
            precision: None,
            memory_headroom: 0.10,
            throughput_tolerance: 0.02,
            pins: Pins::default(),
        }
    }
}

impl Goal {
    /// What is wrong with the goal, as `(key, message)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut range = |key, value: f64, least: f64, most: f64| {
            if !(least..=most).contains(&value) {
                found.push((key, format!("{key} = {value} is out of range, expected {least} to {most}")));
            }
        };
        range("memory_headroom", self.memory_headroom, 0.0, 0.9);
        range("throughput_tolerance", self.throughput_tolerance, 0.0, 0.5);
        let largest = f64::from(1 << 30);
        range("world_size", self.world_size as f64, 1.0, largest);
        range("global_batch", self.global_batch.unwrap_or(1) as f64, 1.0, largest);
        found
    }
}

/// Settings that the user fixed, by leaving a tuned field at another value than the compiled one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Pins {
    /// Samples in a micro-batch.
    pub batch_size: Option<u64>,
    /// Micro-batches in an optimizer step.
    pub gradient_accumulation: Option<u64>,
    /// Number formats.
    pub precision: Option<Precision>,
    /// Whether f32 products may use TF32.
    pub allow_tf32: Option<bool>,
    /// Whether activations are recomputed.
    pub gradient_checkpointing: Option<bool>,
    /// Batches prepared ahead.
    pub prefetch_depth: Option<u64>,
    /// Loader workers.
    pub num_workers: Option<u64>,
    /// Samples in an evaluation batch.
    pub eval_batch_size: Option<u64>,
}

impl Pins {
    /// Whether nothing is fixed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this setting is fixed.
    pub fn has(&self, setting: Setting) -> bool {
        match setting {
            Setting::BatchSize => self.batch_size.is_some(),
            Setting::GradientAccumulation => self.gradient_accumulation.is_some(),
            Setting::Precision => self.precision.is_some(),
            Setting::AllowTf32 => self.allow_tf32.is_some(),
            Setting::GradientCheckpointing => self.gradient_checkpointing.is_some(),
            Setting::PrefetchDepth => self.prefetch_depth.is_some(),
            Setting::NumWorkers => self.num_workers.is_some(),
            Setting::EvalBatchSize => self.eval_batch_size.is_some(),
        }
    }

    /// Lays the fixed settings over planned ones.
    pub(crate) fn over(&self, planned: &mut Settings) {
        macro_rules! lay {
            ($($field:ident),*) => {$( if let Some(value) = self.$field { planned.$field = value; } )*};
        }
        lay!(allow_tf32, prefetch_depth, num_workers, eval_batch_size);
    }
}
