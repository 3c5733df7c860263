//! The training of a config on one device: as configured and as planned, in Burn.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Misfit, Plan, PlanError, Reason, STATISTICS_ENOUGH, STATISTICS_FLOOR};
use gpu_tuned_core::{Goal, Pins, Precision, PrecisionPolicy, Provenance, Setting, Settings, plan, three_digits};

use crate::config::implied_accumulation;
use crate::dialect::Role;
use crate::error::OptimizeError;
use crate::pytorch::no_tensor_cores;
use crate::tuner::Tuner;

const F32: PrecisionPolicy = PrecisionPolicy::Fixed(Precision::F32);

/// The settings of a config on one device, with their reasons.
pub(crate) struct Decision {
    pub settings: Settings,
    /// Samples of an optimizer step over all devices.
    pub global_batch: u64,
    /// Devices that train together.
    pub ranks: u64,
    pub reasons: Vec<Reason>,
    /// Reason why the settings of the loader stay.
    pub loader_stays: Option<&'static str>,
    /// True if the batch of evaluation is set.
    pub sets_evaluation: bool,
}

impl Decision {
    /// The settings of a plan; those of the loader stay unless the machine that trains is known.
    pub(crate) fn new(plan: &Plan, knows_host: bool) -> Self {
        let unknown = "left as it is: the CPU cores are unknown; plan on that machine";
        Self {
            settings: plan.settings,
            global_batch: plan.schedule.global_batch,
            ranks: plan.schedule.world_size,
            reasons: plan.reasons.clone(),
            loader_stays: Some(unknown).filter(|_| !knows_host),
            sets_evaluation: true,
        }
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

impl Tuner<'_> {
    pub(crate) fn plan(&self, facts: &DeviceFacts, goal: Goal) -> Result<Planned, OptimizeError> {
        let goal = Goal { world_size: self.step.ranks, ..goal };
        let before = self.before(facts, &goal)?;
        let mut warnings = Vec::new();
        self.require_precision()?;
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

    /// Refuses a precision that is left open, and fp32 for weights that keep their saved format.
    pub(crate) fn require_precision(&self) -> Result<(), OptimizeError> {
        if self.precision == Some(F32) && self.config.loads_saved() {
            let key = self.config.dialect.usual(Role::Weights, 1);
            let message =
                format!("without `{key}` the weights keep their saved format: write `{key}: float32` for fp32");
            return Err(self.config.mistake(Role::Precision, message));
        }
        let Some(key) = self.config.open_precision().filter(|_| self.precision.is_none()) else { return Ok(()) };
        let message = format!("`{key}` leaves the precision to the program: give it with --precision");
        Err(self.config.mistake(Role::Precision, message))
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
    pub(crate) fn precision_on(&self, facts: &DeviceFacts, warnings: &mut Vec<String>) -> PrecisionPolicy {
        let configured = self.config.precision;
        let is_left = self.config.keys.iter().any(|key| key.is_left && key.role.is_of_precision());
        let reason = no_tensor_cores(configured, facts).filter(|_| self.precision.is_none() && !is_left);
        if let Some(reason) = reason {
            let nearest = facts.mixed_precision();
            let other = nearest.map_or_else(String::new, |nearest| format!("; `--precision {nearest}` has them"));
            let key = self.config.dialect.usual(Role::Weights, 1);
            let saved = format!("; without `{key}: float32` the weights keep their saved format");
            let other = if self.config.loads_saved() { other + &saved } else { other };
            warnings.push(format!("{reason}: f32 in place of {configured}, which changes how the run rounds{other}"));
            return F32;
        }
        self.requested_precision()
    }

    pub(crate) fn can_set_accumulation(&self) -> bool {
        // An open micro-batch is a part of the global batch.
        let is_implied = || {
            self.config.leaves_micro_batch() && self.config.divides_global_batch()
                || implied_accumulation(self.config, self.config.global_batch, self.step.batch, self.step.ranks)
                    .is_some()
        };
        // An optimizer step in the backward pass has all samples.
        !self.config.has_feature("whole_step")
            && (self.config.can_set(Role::Accumulation, self.add_keys) || is_implied())
    }

    pub(crate) fn can_set_checkpointing(&self) -> bool {
        self.config.can_set(Role::Checkpointing, self.add_keys)
            && !["checkpointing_stays", "offload"].iter().any(|name| self.config.has_feature(name))
    }

    /// Returns true if the user leaves a factor of the step as it is.
    pub(crate) fn keeps_step(&self) -> bool {
        self.config.keys.iter().any(|key| key.is_left && key.role.is_of_step())
    }

    /// The goal with pins for settings that the file cannot express, or that the user leaves alone.
    fn pin(&self, mut goal: Goal, knows_host: bool, warnings: &mut Vec<String>) -> Goal {
        let config = self.config;
        if !self.can_set_checkpointing() {
            goal.pins.gradient_checkpointing = Some(config.checkpointing.unwrap_or(false));
        }
        if self.keeps_step() {
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
