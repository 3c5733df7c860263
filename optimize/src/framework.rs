//! Memory of a training in the framework of its config, where that is PyTorch.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::pytorch::{OptimizerState, Run, Sharding, Weights, peak};
use gpu_tuned_core::workload::{WeightFormat, WorkloadSpec};
use gpu_tuned_core::{Bytes, Precision};
use serde::Serialize;

use crate::config::Config;
use crate::dialect::Role;
use crate::document::Value;
use crate::matched::Meaning;
use crate::step::Step;

/// Memory of one GPU in PyTorch, as the driver counts it: an estimate from published formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PytorchMemory {
    /// Needed by the config as it is.
    pub before_bytes: Bytes,
    /// Needed by the tuned config; `None` where there is none.
    pub after_bytes: Option<Bytes>,
}

/// Settings of a micro-batch.
#[derive(Clone, Copy)]
pub(crate) struct MicroBatch {
    pub samples: u64,
    pub steps: u64,
    pub precision: Precision,
    pub checkpointing: bool,
}

impl MicroBatch {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            samples: plan.settings.batch_size,
            steps: plan.settings.gradient_accumulation,
            precision: plan.settings.precision,
            checkpointing: plan.settings.gradient_checkpointing,
        }
    }
}

impl PytorchMemory {
    /// The memory before and after the change; `None` for configs of other frameworks, and for models without an estimate.
    pub(crate) fn new(
        (config, step): (&Config, Step),
        spec: &WorkloadSpec,
        facts: &DeviceFacts,
        after: Option<MicroBatch>,
    ) -> Option<Self> {
        if !config.dialect.pytorch {
            return None;
        }
        let bytes = |part: MicroBatch| Some(peak(spec, &run(config, step, spec, part))?.on_device(facts));
        let before = MicroBatch {
            samples: step.batch,
            steps: step.accumulation,
            precision: config.precision,
            checkpointing: config.checkpointing.unwrap_or(false),
        };
        let after_bytes = match after {
            Some(after) => Some(bytes(after)?),
            None => None,
        };
        Some(Self { before_bytes: bytes(before)?, after_bytes })
    }
}

/// The run of a config in PyTorch.
fn run(config: &Config, step: Step, spec: &WorkloadSpec, part: MicroBatch) -> Run {
    let is_half = part.precision != Precision::F32;
    let optimizer = match config.matched(Role::Optimizer).map(|key| &key.entry.value) {
        Some(Value::Text(text)) => text.to_lowercase(),
        _ => String::new(),
    };
    let state = match (optimizer.contains("paged"), optimizer.contains("8bit")) {
        (true, _) => OptimizerState::Paged,
        (false, true) => OptimizerState::EightBit,
        (false, false) => OptimizerState::Full,
    };
    let frozen = match spec.training.frozen_weights {
        WeightFormat::Q8 => Weights::Int8,
        WeightFormat::Q4 => Weights::Nf4,
        WeightFormat::Full if is_half => Weights::Half,
        WeightFormat::Full => Weights::Full,
    };
    let sharding = match config.feature("zero_stage").as_deref() {
        Some("1") => Sharding::Zero1,
        Some("2") => Sharding::Zero2,
        Some("3") => Sharding::Zero3,
        Some("fsdp") => Sharding::Fsdp,
        _ => Sharding::None,
    };
    let has = |feature: &str| config.feature(feature).as_deref() == Some("true");
    Run {
        micro_batch: part.samples,
        precision: part.precision,
        frozen,
        prepared: has("prepared") && spec.training.frozen_weights != WeightFormat::Full,
        flash_attention: has("flash_attention"),
        checkpointing: part.checkpointing,
        fused_loss: has("fused_cross_entropy"),
        accumulates: part.steps > 1,
        step_in_backward: has("whole_step"),
        foreach: state == OptimizerState::Full && !optimizer.contains("fused"),
        state,
        devices: step.ranks,
        sharding,
    }
}

impl Config {
    /// The value of a feature: the strongest of its keys', else the default of the dialect.
    pub(crate) fn feature(&self, name: &str) -> Option<String> {
        let of_keys = self.with_role(Role::Feature).filter(|key| key.row.dim == name).filter_map(|key| {
            match key.meaning(&self.file.text) {
                Meaning::Known(word) => Some(word.to_owned()),
                _ => key.entry.value.bare().filter(|_| key.row.words.is_empty()),
            }
        });
        let default = || self.dialect.default_of(Role::Feature, name).map(str::to_owned);
        of_keys.max().or_else(default)
    }
}
