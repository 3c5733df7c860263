//! The training of a config in `PyTorch`: the largest parts of the configured micro-batch that fit, by [`peak`].

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{PlanError, Reason};
use gpu_tuned_core::pytorch::{Loss, OptimizerState, Peak, Run, Sharding, Weights, peak};
use gpu_tuned_core::workload::WeightFormat;
use gpu_tuned_core::{Precision, PrecisionPolicy, Provenance, Setting, Settings};

use crate::dialect::Role;
use crate::error::OptimizeError;
use crate::model::{family, has_liger};
use crate::names::{Names, Words};
use crate::task::Decision;
use crate::tuner::{Expectation, Tuned, Tuner};

/// GPUs of a node, where no key gives them: those of DGX and HGX servers.
const USUAL_NODE: u64 = 8;

/// A micro-batch in a mode.
#[derive(Clone, Copy, PartialEq)]
struct Part {
    samples: u64,
    precision: Precision,
    checkpointing: bool,
}

impl Tuner<'_> {
    /// Keeps the micro-batch where it fits; else takes the largest smaller one, without checkpointing where possible. Returns the
    /// settings, where the training fits or has no memory model.
    pub(crate) fn plan_in_pytorch(
        &self,
        facts: &DeviceFacts,
        tuned: &mut Tuned,
    ) -> Result<Option<Decision>, OptimizeError> {
        let (config, share) = (self.config, self.step.samples_per_rank());
        self.require_precision()?;
        self.require_sharding()?;
        tuned.before = self.configured(facts);
        let precision = match self.precision_on(facts, &mut tuned.warnings) {
            PrecisionPolicy::Auto => facts.mixed_precision().unwrap_or(Precision::F32),
            PrecisionPolicy::Fixed(precision) => precision,
        };
        if let Some(error) = unsupported(precision, facts).filter(|_| self.precision.is_some()) {
            tuned.after.problem = Some(error);
            return Ok(None);
        }
        let checkpointing = config.checkpointing.unwrap_or(false);
        let as_is = Part { samples: self.step.batch.min(share), precision, checkpointing };
        let is_open = config.leaves_micro_batch();
        let needed = |part: Part| Some(self.peak(part)?.on_device(facts));
        let mut parts = vec![as_is];
        if needed(as_is).is_none() {
            if is_open {
                let message = "the micro-batch is left to the program, and the memory of this model in PyTorch is unknown: put a number in its place";
                return Err(config.mistake(Role::Batch, message.to_owned()));
            }
            let of = self.spec.model.kind().name;
            tuned.warnings.push(format!(
                "the memory of {of} in PyTorch is not modelled, so that the batch stays. To plan it, measure the peak of two \
                 micro-batches, in PyTorch with torch.cuda.max_memory_reserved()"
            ));
        } else {
            let is_kept = self.goal.whole_batch_loss || self.depends_on_micro_batch().is_some();
            let fixed = !self.can_set_accumulation() || self.keeps_step() || is_kept;
            let sizes = (1..=as_is.samples).rev().filter(|samples| share.is_multiple_of(*samples));
            let sizes: Vec<_> = sizes.filter(|samples| !fixed || *samples == as_is.samples).collect();
            let modes =
                if checkpointing || !self.can_set_checkpointing() { &[checkpointing][..] } else { &[false, true] };
            let all = modes.iter().flat_map(|mode| sizes.iter().map(|size| (*size, *mode)));
            parts = all.map(|(samples, checkpointing)| Part { samples, checkpointing, ..as_is }).collect();
        }
        let fits = |part: &&Part| needed(**part).is_none_or(|bytes| bytes <= facts.memory_available);
        let found = parts.iter().find(fits).copied();
        let least = parts.iter().min_by_key(|part| needed(**part)).copied().unwrap_or(as_is);
        let part = found.unwrap_or(least);
        tuned.after = Expectation::in_pytorch(self.peak(part), facts);
        let decision = found.map(|part| self.decide(part, as_is, facts));
        let fits_with = |part: &Part, eval_batch: u64| {
            let peak = peak(self.spec, &Run { eval_batch, ..self.run(*part) });
            peak.is_some_and(|peak| peak.on_device(facts) <= facts.memory_available)
        };
        if let (None, Some(bytes)) = (&decision, needed(part)) {
            let (what, remedy) = if let Some(part) = parts.iter().find(|part| fits_with(part, 0)) {
                let (batch, key) = (self.run(*part).eval_batch, config.key(Role::EvalBatch));
                let key = key.map_or_else(|| config.dialect.usual(Role::EvalBatch, 3), str::to_owned);
                let (mut most, mut above) = (0, batch);
                while above - most > 1 {
                    let middle = most.midpoint(above);
                    *(if fits_with(part, middle) { &mut most } else { &mut above }) = middle;
                }
                let remedy =
                    if most > 0 { format!("set `{key}` to {most}") } else { "evaluate in another run".to_owned() };
                (format!("evaluation in batches of {batch}"), format!(": {remedy}"))
            } else {
                let (samples, with) = (part.samples, if part.checkpointing { " with checkpointing" } else { "" });
                let remedy =
                    if self.can_set_accumulation() { "" } else { "; the config has no key for smaller micro-batches" };
                (format!("a micro-batch of {samples}{with}"), remedy.to_owned())
            };
            let available = facts.memory_available;
            let problem = format!("does not fit: {what} needs {bytes} in PyTorch, of {available}{remedy}");
            tuned.after.problem = Some(problem);
        }
        Ok(decision)
    }

    /// Refuses `DeepSpeed` in bf16 without `ZeRO`, whose optimizer has flat gradients in fp32 on each GPU.
    fn require_sharding(&self) -> Result<(), OptimizeError> {
        let (config, names) = (self.config, ["zero_optimization.stage", "deepspeed"]);
        let is_off = config.precision.needs_bf16() && config.feature("zero_stage").as_deref() == Some("0");
        let mut keys = config.with_role(Role::Feature).filter(|_| is_off && self.spec.training.lora_rank.is_none());
        let Some(key) = keys.find(|key| names.iter().any(|name| key.row.names.has(name))) else { return Ok(()) };
        let why = "is DeepSpeed without ZeRO, whose gradients in bf16 are not modelled: stage 1 trains the same";
        let message = format!("`{}` {why}", key.entry.shown);
        Err(config.file.mistakes(vec![config.file.source().error(&key.entry.place(), message)]))
    }

    /// The config as it is.
    fn configured(&self, facts: &DeviceFacts) -> Expectation {
        let (config, samples) = (self.config, self.step.batch);
        let problem = |problem: String| Expectation { problem: Some(problem), ..Expectation::default() };
        if config.leaves_micro_batch() {
            return problem("the config leaves the micro-batch to the program".to_owned());
        }
        if let Some(error) = unsupported(config.precision, facts) {
            return problem(error);
        }
        let checkpointing = config.checkpointing.unwrap_or(false);
        let part = Part { samples, precision: config.precision, checkpointing };
        let mut all = Expectation::in_pytorch(self.peak(part), facts);
        if let Some(bytes) = all.memory_bytes.filter(|_| !all.fits) {
            all.problem = Some(format!("does not fit: it needs {bytes} in PyTorch, of {}", facts.memory_available));
        }
        all
    }

    /// Peak memory of a part; `None` without a memory model.
    fn peak(&self, part: Part) -> Option<Peak> {
        peak(self.spec, &self.run(part))
    }

    fn decide(&self, part: Part, as_is: Part, facts: &DeviceFacts) -> Decision {
        let (config, step) = (self.config, self.step);
        let mut reasons = Vec::new();
        let mut because = |setting: Setting, provenance: Provenance, why: String| {
            reasons.push(Reason { setting, provenance, why });
        };
        let (kept, derived) = (Provenance::Declared, Provenance::Derived);
        let follows = "follows from the batch size".to_owned();
        if part.samples == step.batch && !config.leaves_micro_batch() {
            because(Setting::BatchSize, kept, "kept".to_owned());
            because(Setting::GradientAccumulation, kept, follows);
        } else {
            because(Setting::BatchSize, derived, "the largest divisor of the step that fits in PyTorch".to_owned());
            because(Setting::GradientAccumulation, derived, follows);
        }
        let is_added = part.checkpointing && !as_is.checkpointing;
        let why = if is_added { "does not fit without checkpointing" } else { "kept" };
        because(Setting::GradientCheckpointing, derived, why.to_owned());
        let why = match no_tensor_cores(config.precision, facts) {
            Some(reason) if part.precision == Precision::F32 => reason,
            _ if self.precision.is_some() => "--precision",
            _ => "kept: it is part of the run's results",
        };
        because(Setting::Precision, kept, why.to_owned());
        let has_tf32 = config.tf32 != Some(true) || facts.has_tf32;
        because(Setting::AllowTf32, kept, if has_tf32 { "kept" } else { "the GPU has no TF32" }.to_owned());
        let settings = Settings {
            batch_size: part.samples,
            gradient_accumulation: step.samples_per_rank() / part.samples,
            precision: part.precision,
            gradient_checkpointing: part.checkpointing,
            allow_tf32: config.tf32.unwrap_or(false) && facts.has_tf32,
            num_workers: config.workers.unwrap_or(0),
            prefetch_depth: config.prefetch_depth().unwrap_or(0),
            ..Settings::default()
        };
        Decision {
            settings,
            global_batch: step.global,
            ranks: step.ranks,
            reasons,
            loader_stays: Some("left as it is: the speed is not predicted"),
            sets_evaluation: false,
        }
    }

    /// The run that [`peak`] estimates.
    fn run(&self, part: Part) -> Run {
        let (config, step, training) = (self.config, self.step, &self.spec.training);
        let (stage, half) = (config.sharding(), config.feature("half_weights"));
        let has_adapters = training.lora_rank.is_some();
        // The published weights of a model without adapters, unless the program makes new ones.
        let is_saved = half.as_deref() == Some("saved") && (has_adapters || config.named_models().next().is_some());
        let is_one_of = |families: &Words| family(config).is_some_and(|family| families.has(family));
        // Models that were tuned for chats are published in 16 bits.
        let is_tuned = |text: &str| ["-it", "-instruct", "-chat"].iter().any(|end| text.to_lowercase().ends_with(end));
        let is_base = !config.named_models().any(|(text, _)| is_tuned(&text));
        let is_saved_half = is_saved && !(is_base && is_one_of(&Names::get().saved_f32)) && !config.loads_f32();
        let kind = config.feature("zero_stage");
        let is_sharded = kind.as_deref().is_some_and(|kind| !["0", "none", "fsdp-half"].contains(&kind));
        let is_mixed = part.precision.is_mixed() || part.precision == Precision::Bf16Params && config.is_mixed;
        // DeepSpeed converts all weights to the format of its own table, and keeps trained ones in fp32.
        let is_converted = matches!(stage.as_deref(), Some("1" | "2" | "3"));
        let keeps_f32 = (is_converted || is_sharded && is_mixed) && !has_adapters;
        let precision = match (part.precision, half.as_deref()) {
            // So does FSDP for mixed precision.
            (Precision::Bf16Params, _) if keeps_f32 => Precision::MixedBf16,
            (precision, _) if keeps_f32 => precision,
            // Autocast over weights that stay in 16 bits.
            (Precision::MixedBf16, Some("true")) | (_, Some("pure")) => Precision::Bf16Params,
            _ if is_saved_half && !has_adapters => Precision::Bf16Params,
            // Adapters over weights in the format of the saved model.
            (Precision::F32, half) if has_adapters && (is_saved_half || half == Some("frozen")) => Precision::MixedBf16,
            (precision, _) => precision,
        };
        let optimizer = config.matched(Role::Optimizer).and_then(|key| key.entry.value.bare());
        let default = || config.dialect.default_of(Role::Optimizer, "", &config.entries).map(str::to_owned);
        let optimizer = optimizer.or_else(default).unwrap_or_default().to_lowercase();
        let state = match (optimizer.contains("paged"), ["8bit", "4bit"].iter().any(|bits| optimizer.contains(bits))) {
            (true, _) => OptimizerState::Paged,
            // `adamw_bnb_8bit` of transformers
            (false, true) if optimizer.ends_with("_8bit") && !optimizer.contains("torch") => {
                OptimizerState::EightBitMatrices
            }
            (false, true) => OptimizerState::EightBit,
            (false, false) => OptimizerState::Full,
        };
        let is_loaded = match half.as_deref() {
            Some("false") => true,
            Some("saved") => !is_saved_half,
            _ => config.loads_f32(),
        };
        let is_full = precision == Precision::F32 || precision.is_mixed() && is_loaded && !is_converted;
        let frozen = match training.frozen_weights {
            WeightFormat::Q8 => Weights::Int8,
            WeightFormat::Q4 => Weights::Nf4,
            WeightFormat::Full if is_full => Weights::Full,
            WeightFormat::Full => Weights::Half,
        };
        // The GPUs of a node share one copy of the state.
        let node = config.devices_of_node.unwrap_or(USUAL_NODE).min(step.ranks);
        let shards = if matches!(stage.as_deref(), Some("hsdp" | "hsdp2")) { node } else { step.ranks };
        let sharding = match stage.as_deref() {
            Some("1") => Sharding::Zero1,
            Some("2") => Sharding::Zero2,
            Some("3") => Sharding::Zero3,
            Some("fsdp" | "fsdp-half" | "fsdp_checkpointing" | "hsdp") => Sharding::Fsdp,
            Some("fsdp2" | "hsdp2") => Sharding::FsdpGradients,
            _ => Sharding::None,
        };
        // All-reduced in place, and updated by a fused optimizer.
        let buffers = sharding == Sharding::None && config.has_feature("gradient_buffers");
        let is_fused = buffers || optimizer.contains("fused") || config.has_feature("fused");
        let (attention, loss) = (config.feature("flash_attention"), config.feature("fused_cross_entropy"));
        let (attention, eval_loss) = (
            attention.as_deref(),
            loss.as_deref().is_some_and(|loss| loss.ends_with("in_training")).then_some(Loss::Whole),
        );
        let loss = match loss.as_deref() {
            Some("true" | "in_training") => Loss::Chunked,
            Some("liger" | "liger_in_training") if has_liger(config, self.spec) => Loss::Chunked,
            Some("chunks" | "logits") if config.has_feature("compiled") => Loss::Chunked,
            // Logits and their gradients in 16 bits have 4 bytes, kept chunks 4.75.
            Some("chunks" | "fused") => Loss::KeptChunks,
            // Logits with a copy in fp32, which becomes the gradient, have 6 bytes, kept logits 6.5.
            Some("logits" | "float") => Loss::KeptLogits,
            Some("in_place") => Loss::InPlace,
            _ => Loss::Whole,
        };
        Run {
            micro_batch: part.samples,
            eval_batch: config.eval_batch(part.samples),
            eval_loss: eval_loss.unwrap_or(loss),
            precision,
            frozen,
            prepared: config.has_feature("prepared") && training.frozen_weights != WeightFormat::Full,
            flash_attention: attention == Some("true")
                || attention == Some("sdpa") && !is_one_of(&Names::get().without_sdpa),
            checkpointing: part.checkpointing || stage.as_deref() == Some("fsdp_checkpointing") && step.ranks > 1,
            offloads: config.offloads(),
            loss,
            unsynced: config.has_feature("no_sync"),
            accumulates: buffers || step.samples_per_rank() > part.samples,
            step_in_backward: config.has_feature("whole_step"),
            foreach: state == OptimizerState::Full && !is_fused,
            state,
            devices: if buffers { 1 } else { step.ranks },
            shards,
            sharding,
        }
    }
}

/// Reason for fp32 in place of a format of 16 bits.
pub(crate) fn no_tensor_cores(precision: Precision, facts: &DeviceFacts) -> Option<&'static str> {
    match precision {
        _ if precision.needs_bf16() => Some("no bf16 tensor cores").filter(|_| !facts.has_bf16),
        Precision::MixedF16 => Some("no fp16 tensor cores").filter(|_| !facts.has_f16),
        _ => None,
    }
}

/// Message on a precision that the device has no tensor cores for.
fn unsupported(precision: Precision, facts: &DeviceFacts) -> Option<String> {
    no_tensor_cores(precision, facts).map(|_| PlanError::precision_unsupported(precision, facts).to_string())
}
