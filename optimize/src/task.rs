//! The training of a config on one device: as configured, as planned, and its memory in PyTorch.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Misfit, Plan, PlanError, STATISTICS_ENOUGH, STATISTICS_FLOOR};
use gpu_tuned_core::pytorch::{OptimizerState, Run, Sharding, Weights, peak};
use gpu_tuned_core::workload::{WeightFormat, Workload, WorkloadSpec};
use gpu_tuned_core::{Bytes, Goal, Pins, Precision, PrecisionPolicy, Provenance, Setting, plan, three_digits};
use serde::Serialize;

use crate::config::{Config, Step, implied_accumulation};
use crate::dialect::Role;
use crate::document::Value;
use crate::error::OptimizeError;

/// A training to be planned on any device.
pub struct Task<'a> {
    /// The config that is tuned.
    pub config: &'a Config,
    /// The optimizer step.
    pub step: Step,
    /// Costs of the model.
    pub workload: &'a Workload,
    /// The workload's name in messages.
    pub name: &'a str,
    /// The goal without batch and precision.
    pub goal: Goal,
    /// The precision that the user asks for.
    pub precision: Option<PrecisionPolicy>,
    /// Adds keys that the file lacks, for a program that reads all of them.
    pub add_keys: bool,
}

const F32: PrecisionPolicy = PrecisionPolicy::Fixed(Precision::F32);

/// Reason for fp32 in place of a format of 16 bits.
fn no_tensor_cores(precision: Precision, facts: &DeviceFacts) -> Option<&'static str> {
    match precision {
        _ if precision.needs_bf16() => Some("no bf16 tensor cores").filter(|_| !facts.has_bf16),
        Precision::MixedF16 => Some("no fp16 tensor cores").filter(|_| !facts.has_f16),
        _ => None,
    }
}

/// The training on one device, before and after.
pub(crate) struct Planned {
    pub before: Outcome,
    pub after: Outcome,
    /// The plan for a config with a key for accumulation, where this one has none.
    pub with_accumulation: Option<Box<Plan>>,
    /// Changes of the run's results, and goals that are missed.
    pub warnings: Vec<String>,
    /// The goal of the plan.
    pub goal: Goal,
}

pub(crate) enum Outcome {
    Plan(Box<Plan>),
    Misfit(Box<Misfit>),
    /// Reason why the device lacks a requested feature.
    Unsupported(String),
}

impl Outcome {
    pub(crate) fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Plan(plan) => Some(plan),
            _ => None,
        }
    }
}

impl Task<'_> {
    pub(crate) fn plan(&self, facts: &DeviceFacts, goal: Goal) -> Result<Planned, OptimizeError> {
        let goal = Goal { world_size: self.step.ranks, ..goal };
        let before = self.before(facts, &goal)?;
        let mut warnings = Vec::new();
        if let Some(key) = self.config.open_precision().filter(|_| self.precision.is_none()) {
            let message = format!("`{key}` leaves the precision to the program: give it with --precision");
            return Err(self.config.mistake(Role::Precision, message));
        }
        let precision = Some(self.precision_on(facts, &mut warnings)).filter(|policy| *policy != F32);
        let goal = Goal { global_batch: Some(self.step.global), precision, ..goal };
        let goal = self.pin(goal, facts.host_cores.is_some(), &mut warnings);
        let free = self.outcome(facts, &goal)?;
        let (planned, with_accumulation) = self.expressible(facts, &goal, free)?;
        let mut after = self.prefer_configured(facts, &goal, planned)?;
        let falls_back = goal.precision.is_none() && self.requested_precision() != F32;
        let reason = no_tensor_cores(self.config.precision, facts).filter(|_| falls_back);
        if let (Outcome::Plan(plan), Some(reason)) = (&mut after, reason) {
            explain(plan, Setting::Precision, reason);
        }
        Ok(Planned { before, after, with_accumulation, warnings, goal })
    }

    /// The outcome of the config as it is.
    fn before(&self, facts: &DeviceFacts, goal: &Goal) -> Result<Outcome, OptimizeError> {
        let (step, config) = (self.step, self.config);
        if config.leaves_micro_batch() {
            return Ok(Outcome::Unsupported("the config leaves the micro-batch to the program".to_owned()));
        }
        let mut pins = Pins::default();
        (pins.batch_size, pins.gradient_accumulation) = (Some(step.batch), Some(step.accumulation));
        pins.gradient_checkpointing = Some(config.checkpointing.unwrap_or(false));
        (pins.num_workers, pins.prefetch_depth) = (config.workers, config.prefetch_depth());
        pins.allow_tf32 = config.tf32;
        let (global_batch, precision) = (Some(step.configured()), Some(config.precision.into()));
        self.outcome(facts, &Goal { global_batch, precision, pins, ..goal.clone() })
    }

    fn requested_precision(&self) -> PrecisionPolicy {
        self.precision.unwrap_or(self.config.precision.into())
    }

    /// The requested precision, or fp32 where the device lacks the config's.
    fn precision_on(&self, facts: &DeviceFacts, warnings: &mut Vec<String>) -> PrecisionPolicy {
        let configured = self.config.precision;
        let is_left = self.config.keys.iter().any(|key| key.is_left && key.role.is_of_precision());
        let reason = no_tensor_cores(configured, facts).filter(|_| self.precision.is_none() && !is_left);
        if let Some(reason) = reason {
            warnings.push(format!("{reason}: f32 in place of {configured}, which changes how the run rounds"));
            return F32;
        }
        self.requested_precision()
    }

    fn can_set_accumulation(&self) -> bool {
        let global = self.config.global_batch_of(self.step.ranks);
        let is_implied = || implied_accumulation(self.config, global, self.step.batch, self.step.ranks).is_some();
        // An optimizer step in the backward pass has all samples.
        !self.config.has_feature("whole_step")
            && (self.config.can_set(Role::Accumulation, self.add_keys) || is_implied())
    }

    fn can_set_checkpointing(&self) -> bool {
        self.config.can_set(Role::Checkpointing, self.add_keys) && !self.config.has_feature("checkpointing_stays")
    }

    /// The goal with pins for settings that the file cannot express, or that the user leaves alone.
    fn pin(&self, mut goal: Goal, knows_host: bool, warnings: &mut Vec<String>) -> Goal {
        let config = self.config;
        if !self.can_set_checkpointing() {
            goal.pins.gradient_checkpointing = Some(config.checkpointing.unwrap_or(false));
        }
        if config.keys.iter().any(|key| key.is_left && key.role.is_of_step()) {
            let steps = self.step.global / self.step.ranks / self.step.batch;
            (goal.pins.batch_size, goal.pins.gradient_accumulation) = (Some(self.step.batch), Some(steps));
        }
        if !knows_host || config.leaves(Role::Workers) {
            goal.pins.num_workers = config.workers;
        }
        // TF32 changes rounding: a config that turns it off keeps it off.
        if config.tf32 == Some(false) || config.leaves(Role::Tf32) {
            goal.pins.allow_tf32 = config.tf32;
        }
        if let Some(what) = self.depends_on_micro_batch() {
            let fits = self.step.samples_per_rank().is_multiple_of(self.step.batch);
            goal.pins.batch_size = fits.then_some(self.step.batch);
            if !fits {
                warnings.push(format!("{what} the micro-batch, whose size changes"));
            }
        }
        goal
    }

    /// Effect of the samples of a micro-batch beside the rounding.
    pub(crate) fn depends_on_micro_batch(&self) -> Option<&'static str> {
        let statistics = self.workload.batch_statistics.then_some("the model computes statistics over");
        statistics.or(self.config.use_of_micro_batch)
    }

    /// The plan in micro-batches of one size; in one micro-batch where the file has no key for accumulation.
    fn expressible(
        &self,
        facts: &DeviceFacts,
        goal: &Goal,
        free: Outcome,
    ) -> Result<(Outcome, Option<Box<Plan>>), OptimizeError> {
        let Outcome::Plan(plan) = free else { return Ok((free, None)) };
        if plan.schedule.micro_steps() > 1 && !self.can_set_accumulation() {
            let mut at_once = goal.clone();
            at_once.pins.gradient_accumulation = Some(1);
            let mut outcome = self.outcome(facts, &at_once)?;
            if let Outcome::Plan(plan) = &mut outcome {
                explain(plan, Setting::GradientAccumulation, "the config has no key for it");
                explain(plan, Setting::BatchSize, "the whole batch at once: the config has no key for accumulation");
            }
            return Ok((outcome, Some(plan)));
        }
        if plan.schedule.samples_per_rank().is_multiple_of(plan.settings.batch_size) {
            return Ok((Outcome::Plan(plan), None));
        }
        let even = self.best_divisor(facts, goal)?;
        Ok((even.unwrap_or(Outcome::Plan(plan)), None))
    }

    /// The best plan among micro-batches that divide the step evenly.
    fn best_divisor(&self, facts: &DeviceFacts, goal: &Goal) -> Result<Option<Outcome>, OptimizeError> {
        let share = self.step.samples_per_rank();
        let small = (1..=share.isqrt()).filter(|batch| share.is_multiple_of(*batch));
        let sizes = small.flat_map(|batch| [batch, share / batch]);
        let mut all = Vec::new();
        for batch in sizes.filter(|batch| *batch >= self.workload.least_micro_batch()) {
            let mut goal = goal.clone();
            goal.pins.batch_size = Some(batch);
            if let Outcome::Plan(plan) = self.outcome(facts, &goal)? {
                all.push(plan);
            }
        }
        let has_statistics = self.workload.batch_statistics;
        let most = all.iter().map(|plan| plan.settings.batch_size).max().unwrap_or(0).min(STATISTICS_FLOOR);
        all.retain(|plan| !has_statistics || plan.settings.batch_size >= most);
        let Some(fastest) = all.iter().map(|plan| plan.samples_per_s).max_by(f64::total_cmp) else { return Ok(None) };
        all.retain(|plan| plan.samples_per_s >= fastest * (1.0 - goal.throughput_tolerance));
        let missing = |batch: u64| if has_statistics { STATISTICS_ENOUGH.saturating_sub(batch) } else { 0 };
        let size = |batch: u64| (missing(batch), batch);
        let key = |plan: &Plan| (plan.settings.gradient_checkpointing, size(plan.settings.batch_size));
        let found = if has_statistics { "largest" } else { "smallest" };
        Ok(all.into_iter().min_by_key(|plan| key(plan)).map(|mut plan| {
            let (tolerance, fastest) = (goal.throughput_tolerance * 100.0, three_digits(fastest));
            let why = format!("{found} even divisor within {tolerance:.0}% of the fastest ({fastest} samples/s)");
            explain(&mut plan, Setting::BatchSize, &why);
            Outcome::Plan(plan)
        }))
    }

    /// The plan with the config's micro-batch, unless the planned one is predicted to be faster, or has better evidence.
    fn prefer_configured(&self, facts: &DeviceFacts, goal: &Goal, planned: Outcome) -> Result<Outcome, OptimizeError> {
        let (step, config) = (self.step, self.config);
        let Outcome::Plan(plan) = &planned else { return Ok(planned) };
        let is_same = plan.settings.batch_size == step.batch;
        if is_same || config.leaves_micro_batch() || step.configured() != step.global {
            return Ok(planned);
        }
        let mut goal = goal.clone();
        (goal.pins.batch_size, goal.pins.gradient_accumulation) = (Some(step.batch), Some(step.accumulation));
        let is_as_good = |configured: &Plan| {
            configured.samples_per_s >= plan.samples_per_s
                && configured.samples_per_s_provenance <= plan.samples_per_s_provenance
        };
        match self.outcome(facts, &goal)? {
            Outcome::Plan(mut configured) if is_as_good(&configured) => {
                let why = format!("kept: {} is not predicted to be faster", plan.settings.batch_size);
                explain(&mut configured, Setting::BatchSize, &why);
                explain(&mut configured, Setting::GradientAccumulation, "kept with the batch size");
                Ok(Outcome::Plan(configured))
            }
            _ => Ok(planned),
        }
    }

    pub(crate) fn outcome(&self, facts: &DeviceFacts, goal: &Goal) -> Result<Outcome, OptimizeError> {
        match plan(facts, self.workload, goal) {
            Ok(mut plan) => {
                if !self.can_set_checkpointing() {
                    let has_key = self.config.key(Role::Checkpointing).is_some();
                    let why = if has_key { "left as it is" } else { "the config has no key for it" };
                    explain(&mut plan, Setting::GradientCheckpointing, why);
                }
                Ok(Outcome::Plan(Box::new(plan)))
            }
            Err(PlanError::DoesNotFit(misfit)) => Ok(Outcome::Misfit(misfit)),
            Err(error) if error.is_of_device() => Ok(Outcome::Unsupported(error.to_string())),
            Err(PlanError::WorldSize { global_batch, world_size, .. }) => {
                Err(OptimizeError::Ranks { global: global_batch, ranks: world_size })
            }
            Err(source) => Err(OptimizeError::Plan { workload: self.name.to_owned(), source }),
        }
    }
}

/// Replaces the reason of a setting.
pub(crate) fn explain(plan: &mut Plan, setting: Setting, why: &str) {
    for reason in plan.reasons.iter_mut().filter(|reason| reason.setting == setting) {
        why.clone_into(&mut reason.why);
        if reason.provenance == Provenance::Declared {
            reason.provenance = plan.samples_per_s_provenance;
        }
    }
}

/// Memory of one GPU in PyTorch, as the driver counts it: an estimate from published formulas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PytorchMemory {
    /// Needed by the config as it is.
    pub before_bytes: Bytes,
    /// Needed by the tuned config; `None` where there is none.
    pub after_bytes: Option<Bytes>,
}

#[derive(Clone, Copy)]
pub(crate) struct MicroBatch {
    pub samples: u64,
    pub steps: u64,
    pub precision: Precision,
    pub checkpointing: bool,
}

impl From<&Plan> for MicroBatch {
    fn from(plan: &Plan) -> Self {
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
        let before_bytes = bytes(before)?;
        let after_bytes = if let Some(after) = after { Some(bytes(after)?) } else { None };
        Some(Self { before_bytes, after_bytes })
    }
}

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
    Run {
        micro_batch: part.samples,
        precision: part.precision,
        frozen,
        prepared: config.has_feature("prepared") && spec.training.frozen_weights != WeightFormat::Full,
        flash_attention: config.has_feature("flash_attention"),
        checkpointing: part.checkpointing,
        fused_loss: config.has_feature("fused_cross_entropy"),
        accumulates: part.steps > 1,
        step_in_backward: config.has_feature("whole_step"),
        foreach: state == OptimizerState::Full && !optimizer.contains("fused"),
        state,
        devices: step.ranks,
        sharding,
    }
}
