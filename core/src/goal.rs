use serde::{Deserialize, Serialize};

use crate::dims::Presence::{Defaulted, Optional};
use crate::dims::{Dim, DimKind, Schema};
use crate::{Pins, Precision, SettingRow, SettingValue};

/// The user's request to the planner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Goal {
    /// Samples in one optimizer step, over all ranks. Default: the micro-batch of the compile-time target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u64>,
    /// Tokens in one optimizer step, over all ranks; an alternative to `global_batch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_tokens: Option<u64>,
    /// Mean tokens in a padded sample. Default: samples are packed full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_tokens: Option<f64>,
    /// True if an epoch leaves out a last step smaller than the global batch.
    pub drop_last: bool,
    /// Ranks that train together; must divide the global batch.
    pub world_size: u64,
    /// True if each rank stores only its share of the optimizer's state.
    pub shard_optimizer: bool,
    /// Precision. Default: fp32, with TF32 where the GPU supports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// Memory headroom: fraction of the available memory left free, 0 to 0.9.
    pub memory_headroom: f64,
    /// Fraction of the best predicted throughput to give up for a smaller micro-batch, 0 to 0.5.
    pub throughput_tolerance: f64,
    /// Fraction of the time that the device computes instead of waiting for launches. Replaces
    /// `throughput_tolerance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_utilization: Option<f64>,
    /// Memory limit for prepared batches, in MiB.
    pub prefetch_mib: u64,
    /// Settings fixed by the user; checked, never changed.
    #[serde(skip_deserializing, skip_serializing_if = "Pins::is_empty")]
    pub pins: Pins,
}

impl Default for Goal {
    fn default() -> Self {
        Self {
            global_batch: None,
            global_tokens: None,
            mean_tokens: None,
            drop_last: false,
            world_size: 1,
            shard_optimizer: false,
            precision: None,
            memory_headroom: 0.10,
            throughput_tolerance: 0.02,
            target_utilization: None,
            prefetch_mib: 1024,
            pins: Pins::default(),
        }
    }
}

const LARGEST_BATCH: u64 = SettingRow::LARGEST;

impl Schema for Goal {
    const DIMS: &'static [Dim] = &[
        Dim::count_in(
            "global_batch",
            Optional,
            1..=LARGEST_BATCH,
            "samples of one optimizer step over all ranks (default: the planned GPU's micro-batch, times the ranks)",
        ),
        Dim::count_in(
            "global_tokens",
            Optional,
            1..=1 << 40,
            "tokens of one optimizer step over all ranks, in place of `global_batch`",
        ),
        Dim::number(
            "mean_tokens",
            Optional,
            1.0..=1e9,
            "tokens in a sample on average, where sequences are padded (default: packed full)",
        ),
        Dim::flag("drop_last", "leave out an epoch's last step if smaller than the others (default false)"),
        Dim::count_in(
            "world_size",
            Defaulted,
            1..=LARGEST_BATCH,
            "ranks that train together; divides the global batch (default 1)",
        ),
        Dim::flag("shard_optimizer", "store only a rank's share of the optimizer's state on each rank (default false)"),
        Dim {
            name: "precision",
            kind: DimKind::Choice(&Precision::CHOICES),
            presence: Optional,
            meaning: "precision (default fp32, with TF32 where the GPU supports it)",
        },
        Dim::number(
            "memory_headroom",
            Defaulted,
            0.0..=0.9,
            "memory headroom: fraction of the memory left free (default 0.1)",
        ),
        Dim::number(
            "throughput_tolerance",
            Defaulted,
            0.0..=0.5,
            "fraction of the best throughput to give up for a smaller micro-batch (default 0.02)",
        ),
        Dim::number(
            "target_utilization",
            Optional,
            0.05..=0.99,
            "fraction of the time that the device computes, in place of `throughput_tolerance`",
        ),
        Dim::count_in("prefetch_mib", Defaulted, 0..=1 << 30, "memory that prepared batches may take (default 1024)"),
    ];
}

impl Goal {
    /// Fraction of the headroom that stays free on a probed GPU. The rest is reserved for other processes, and a
    /// probe measures their memory.
    pub const HEADROOM_KEPT: f64 = 0.5;

    /// Errors in the goal, as `(key, message)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = self.out_of_range();
        if self.global_tokens.is_some() && self.global_batch.is_some() {
            let message = "global_tokens and global_batch both set the size of an optimizer step: keep one of them";
            found.push(("global_tokens", message.to_owned()));
        }
        if self.mean_tokens.is_some() && self.global_tokens.is_none() {
            let message = "mean_tokens converts global_tokens to samples, and global_tokens is not given";
            found.push(("mean_tokens", message.to_owned()));
        }
        for (setting, value) in self.pins.iter() {
            if matches!(value, SettingValue::Count(count) if count > SettingRow::LARGEST) {
                found.push((setting.name(), format!("{setting} = {value} is out of range, expected at most 2^30")));
            }
        }
        found
    }
}
