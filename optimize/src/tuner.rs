//! Tunes a config for one device after another, with expectations and faster alternatives.

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{ASSUMED_CORES, Filling, Plan, Remedy, SpeedError, filling};
use gpu_tuned_core::pytorch::Peak;
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Bytes, Goal, Pins, Precision, PrecisionPolicy, Provenance, Setting, Settings};
use serde::Serialize;

use crate::changes::{Change, ChangeState, Changes, counts_of_micro_batches, following_values};
use crate::config::{Config, Step};
use crate::dialect::Framework;
use crate::document::Value;
use crate::error::OptimizeError;
use crate::task::{Decision, Outcome};

/// Tunes a config for one device after another.
pub struct Tuner<'a> {
    /// The config that is tuned.
    pub config: &'a Config,
    /// The optimizer step.
    pub step: Step,
    /// The model's description.
    pub spec: &'a WorkloadSpec,
    /// Costs of the model.
    pub workload: &'a Workload,
    /// The workload's name in messages.
    pub name: &'a str,
    /// The goal without batch and precision.
    pub goal: Goal,
    /// Share of the memory that the user keeps free. Without it, estimates in PyTorch have no headroom.
    pub headroom: Option<f64>,
    /// The precision that the user asks for.
    pub precision: Option<PrecisionPolicy>,
    /// Adds keys that the file lacks, for a program that reads all of them.
    pub add_keys: bool,
    /// The framework that runs the training.
    pub framework: Framework,
}

/// A config tuned for one device.
#[derive(Default, Serialize)]
pub struct Tuned {
    /// Name of the device.
    pub target: String,
    /// The machine of the device.
    pub host: Host,
    /// The framework that runs the training, of which the figures are.
    pub framework: Framework,
    /// Changes of the config; none where the training does not fit.
    pub changes: Vec<Change>,
    /// Expectation for the config as it is.
    pub before: Expectation,
    /// Expectation for the tuned config.
    pub after: Expectation,
    /// Samples per second after the change, relative to before.
    pub speedup: Option<f64>,
    /// Utilization of the device by the plan.
    pub filling: Option<Filling>,
    /// Changes of the run's results, and goals that are missed.
    pub warnings: Vec<String>,
    /// Faster alternatives that change the run's results.
    #[serde(rename = "more")]
    pub suggestions: Suggestions,
    /// The settings, where the training fits.
    #[serde(skip)]
    pub settings: Option<Settings>,
    /// The plan of a training in Burn, where it fits.
    #[serde(skip)]
    pub plan: Option<Box<Plan>>,
    /// The plan for a config with a key for accumulation, where this one has none.
    #[serde(skip)]
    pub with_accumulation: Option<Box<Plan>>,
    /// Text of the tuned config, where the training fits.
    #[serde(skip)]
    pub text: Option<String>,
}

/// CPU cores that loader workers are planned for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Host {
    /// CPU cores.
    pub cores: u64,
    /// True if the number is assumed; else it is this machine's.
    pub assumed: bool,
}

impl Tuner<'_> {
    /// Plans the training on a device and edits the config. `goal` is the tuner's goal with the device's headroom.
    ///
    /// # Errors
    ///
    /// A goal that no device can meet, and a plan that the file cannot express.
    pub fn tune(&self, target: &str, facts: &DeviceFacts, goal: Goal) -> Result<Tuned, OptimizeError> {
        let (assumed, workers) = (facts.host_cores.is_none(), self.config.workers);
        let host = Host { cores: facts.host_cores.unwrap_or(ASSUMED_CORES), assumed };
        let mut tuned = Tuned { target: target.to_owned(), host, framework: self.framework, ..Tuned::default() };
        if self.framework == Framework::Pytorch {
            if let Some((_, message)) = self.goal.mistakes().into_iter().find(|(key, _)| *key == "memory_headroom") {
                return Err(OptimizeError::Dimension { message });
            }
            let rest = 1.0 - self.headroom.unwrap_or(0.0);
            let facts = DeviceFacts { memory_available: facts.memory_available.scaled(rest), ..facts.clone() };
            if let Some(decision) = self.plan_in_pytorch(&facts, &mut tuned)? {
                self.edit(&mut tuned, &decision)?;
            }
            return Ok(tuned);
        }
        let planned = self.plan(facts, goal)?;
        tuned.before = Expectation::before(&planned.before, self.workload, workers);
        tuned.after = Expectation::new(&planned.after, self.workload, workers);
        (tuned.warnings, tuned.with_accumulation) = (planned.warnings, planned.with_accumulation);
        let Outcome::Plan(plan) = &planned.after else { return Ok(tuned) };
        self.edit(&mut tuned, &Decision::new(plan, !assumed))?;
        let sets_workers = |it: &Change| it.setting == "num_workers" && it.state.is_edit();
        if tuned.changes.iter().any(sets_workers) {
            tuned.after = Expectation::new(&planned.after, self.workload, Some(plan.settings.num_workers));
        }
        tuned.speedup = tuned.after.ratio_to(&tuned.before).map(|(ratio, _)| ratio);
        tuned.filling = Some(filling(facts, self.workload, plan));
        tuned.suggestions = Suggestions::new(plan, self, facts, &planned.goal)?;
        tuned.plan = Some(plan.clone());
        Ok(tuned)
    }

    /// Edits the config, and notes the effects of the edits.
    fn edit(&self, tuned: &mut Tuned, decision: &Decision) -> Result<(), OptimizeError> {
        let changes = Changes::new(self.config, decision, self.add_keys);
        if let Some(key) = changes.shared {
            return Err(OptimizeError::Shared { key });
        }
        let leaves = self.config.file.leaves()?;
        self.verify(&changes, decision.settings.precision, &leaves)?;
        tuned.warnings.extend(changes.effects);
        let micro_batch = decision.settings.batch_size;
        tuned.warnings.extend(counts_of_micro_batches(self.config, self.step.batch, micro_batch));
        tuned.warnings.extend(following_values(&self.config.entries, &leaves, &changes.all));
        (tuned.changes, tuned.text, tuned.settings) = (changes.all, Some(changes.text), Some(decision.settings));
        Ok(())
    }

    /// Reads the edited text back, and refuses one whose step or precision is not the plan's, unless the user adds the key of
    /// the precision by hand.
    fn verify(&self, changes: &Changes, planned: Precision, before: &[(String, Value)]) -> Result<(), OptimizeError> {
        let refuse = |what: String| OptimizeError::Inexpressible { what };
        let edited = self.config.file.edited(&changes.text);
        let broken = |error: OptimizeError| {
            let first = error.to_string();
            refuse(format!("the plan: the edited text would be invalid ({})", first.lines().next().unwrap_or_default()))
        };
        let entries = edited.entries().map_err(broken)?;
        let edits: BTreeMap<_, _> =
            changes.all.iter().filter(|it| it.state.is_edit()).map(|it| (it.key.as_str(), it.after.as_str())).collect();
        let there: BTreeMap<_, _> = entries.iter().map(|it| (it.shown.as_str(), it.raw(&edited.text))).collect();
        // `update_freq: [16]`
        let is_there =
            |key: &str, after: &str| there.get(key).is_some_and(|raw| raw.trim_matches(['[', ' ', ']']) == after);
        if let Some((lost, _)) = edits.iter().find(|(key, after)| !is_there(key, after)) {
            return Err(refuse(format!("`{lost}`: it cannot be written in place; write it by hand")));
        }
        let is_other = |(path, _): &&(String, Value)| !edits.contains_key(path.trim_end_matches("[0]"));
        let after = edited.leaves().map_err(broken)?;
        let [before, after] = [before, &after].map(|all| all.iter().filter(is_other).collect::<Vec<_>>());
        let same = before.iter().zip(&after).take_while(|(before, after)| before == after).count();
        if let Some((path, _)) = before.get(same).or(after.get(same)) {
            return Err(refuse(format!("the plan without an effect on `{path}`; edit it by hand")));
        }
        let config = self.config.again(&edited, &entries).map_err(broken)?;
        // An open batch was taken from the user's global batch.
        let global =
            Some(self.step.global).filter(|_| self.config.batch.is_none() && self.config.global_batch.is_none());
        let step = Step::new(&config, global, Some(self.step.ranks)).ok();
        if step.is_none_or(|step| [step.global, step.configured()] != [self.step.global; 2]) {
            return Err(refuse(format!("a step of {} samples in parts that fit", self.step.global)));
        }
        let is_by_hand = |it: &Change| it.setting == Setting::Precision.name() && it.state == ChangeState::ByHand;
        if config.precision == planned || changes.all.iter().any(is_by_hand) {
            return Ok(());
        }
        Err(refuse(planned.name().to_owned()))
    }
}

/// Expected memory and throughput, or the reason why there is none.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Expectation {
    /// True if the training fits the device.
    pub fits: bool,
    /// Memory needed.
    pub memory_bytes: Option<Bytes>,
    /// Memory that `PyTorch`'s allocator can reserve where lengths vary and memory is free, if it is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<Bytes>,
    /// Memory available.
    pub available_bytes: Option<Bytes>,
    /// Provenance of the memory needed.
    pub memory_provenance: Option<Provenance>,
    /// Samples per second over all ranks, bounded by the loader where its speed is measured or given.
    pub samples_per_s: Option<f64>,
    /// Lowest and highest samples per second within the error of predictions; `None` for a measured speed, and for one that
    /// the loader bounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s_interval: Option<[f64; 2]>,
    /// What the interval is the error of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s_error: Option<SpeedError>,
    /// Provenance of the throughput.
    pub samples_per_s_provenance: Option<Provenance>,
    /// Reason why the training cannot run.
    pub problem: Option<String>,
}

impl Expectation {
    /// The config as it is, whose remedy is the plan.
    pub(crate) fn before(outcome: &Outcome, workload: &Workload, workers: Option<u64>) -> Self {
        let mut all = Self::new(outcome, workload, workers);
        if let Outcome::Misfit(misfit) = outcome {
            all.problem = Some(misfit.causes());
        }
        all
    }

    /// A training in `PyTorch` that needs this memory; without a memory model it fits.
    pub(crate) fn in_pytorch(peak: Option<Peak>, facts: &DeviceFacts) -> Self {
        let needed = peak.map(|peak| peak.on_device(facts));
        let freely = peak.map(|peak| (peak.reserved_freely + facts.context).min(facts.memory_available));
        Self {
            reserved_bytes: freely.filter(|bytes| Some(*bytes) > needed),
            fits: needed.is_none_or(|bytes| bytes <= facts.memory_available),
            memory_bytes: needed,
            available_bytes: Some(facts.memory_available),
            memory_provenance: needed.map(|_| Provenance::Derived),
            ..Self::default()
        }
    }

    pub(crate) fn new(outcome: &Outcome, workload: &Workload, workers: Option<u64>) -> Self {
        match outcome {
            Outcome::Plan(plan) => {
                let samples_per_s = bounded(plan.samples_per_s, plan.schedule.world_size, workload, workers);
                let is_of_plan = samples_per_s >= plan.samples_per_s;
                Self {
                    fits: true,
                    memory_bytes: Some(plan.memory.total()),
                    available_bytes: Some(plan.memory.available),
                    memory_provenance: Some(plan.memory.provenance),
                    reserved_bytes: None,
                    samples_per_s: Some(samples_per_s),
                    samples_per_s_interval: plan.samples_per_s_interval.filter(|_| is_of_plan),
                    samples_per_s_error: plan.samples_per_s_error.filter(|_| is_of_plan),
                    samples_per_s_provenance: Some(plan.samples_per_s_provenance),
                    problem: None,
                }
            }
            Outcome::Misfit(misfit) => Self {
                memory_bytes: Some(misfit.memory.total()),
                available_bytes: Some(misfit.memory.available),
                memory_provenance: Some(misfit.memory.provenance),
                problem: Some(match misfit.remedies[..] {
                    // The only pins are of settings that the file cannot express: a note covers these.
                    [Remedy::Unpin { .. }, ..] => misfit.causes(),
                    _ => misfit.in_one_line(),
                }),
                ..Self::default()
            },
            Outcome::Unsupported(why) => Self { problem: Some(why.clone()), ..Self::default() },
        }
    }

    /// Throughput relative to another expectation, with the weaker provenance.
    pub fn ratio_to(&self, other: &Self) -> Option<(f64, Provenance)> {
        let ratio = self.samples_per_s? / other.samples_per_s?;
        Some((ratio, self.samples_per_s_provenance?.max(other.samples_per_s_provenance?)))
    }
}

/// Throughput behind the loader; without workers each sample is prepared between steps.
fn bounded(samples_per_s: f64, ranks: u64, workload: &Workload, workers: Option<u64>) -> f64 {
    let (Some(host_ms), Some(workers)) = (workload.sample.host_ms, workers) else { return samples_per_s };
    let each = samples_per_s / ranks as f64;
    let fed = if workers == 0 { 1.0 / (1.0 / each + host_ms / 1e3) } else { each.min(workers as f64 * 1e3 / host_ms) };
    fed * ranks as f64
}

/// Smallest speedup that is reported: chosen, not measured.
const MIN_SPEEDUP: f64 = 1.05;

/// Faster alternatives that change the results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Suggestions {
    /// The smallest step that fills the device, unless the data set is smaller.
    pub larger_batch: Option<Gain>,
    /// Mixed precision, where the config uses fp32 and the device has bf16.
    pub mixed_bf16: Option<Gain>,
    /// The planner's advice on small steps and slow loaders.
    pub advice: Vec<String>,
}

/// A speedup.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gain {
    /// Samples of an optimizer step over all ranks.
    pub global_batch: u64,
    /// Samples per second, relative to the plan.
    pub samples_per_s_ratio: f64,
    /// Provenance of the ratio.
    pub provenance: Provenance,
}

impl Suggestions {
    /// Alternatives to a plan with this goal.
    pub(crate) fn new(plan: &Plan, tuner: &Tuner<'_>, facts: &DeviceFacts, goal: &Goal) -> Result<Self, OptimizeError> {
        // Keeps TF32, whose gain is none of a larger batch.
        let mut unpinned = Goal { pins: Pins::default(), ..goal.clone() };
        unpinned.pins.allow_tf32 = goal.pins.allow_tf32;
        let gain = |goal: &Goal| -> Result<Option<Gain>, OptimizeError> {
            let outcome = tuner.outcome(facts, goal)?;
            let gain = outcome.plan().map(|faster| Gain {
                global_batch: faster.schedule.global_batch,
                samples_per_s_ratio: faster.samples_per_s / plan.samples_per_s,
                provenance: faster.samples_per_s_provenance.max(plan.samples_per_s_provenance),
            });
            Ok(gain.filter(|gain| gain.samples_per_s_ratio >= MIN_SPEEDUP))
        };
        let has_statistics = tuner.depends_on_micro_batch().is_some();
        let is_whole = plan.schedule.micro_steps() == 1 && !has_statistics;
        let larger = gain(&Goal { global_batch: None, ..unpinned.clone() })?;
        let now = plan.schedule.global_batch;
        let larger = larger.filter(|gain| is_whole && gain.global_batch > now);
        // No step is proposed that is larger than the data set.
        let is_large =
            |gain: &Gain| tuner.config.data_set.is_some_and(|samples| (now..gain.global_batch).contains(&samples));
        let is_small_set = larger.as_ref().is_some_and(is_large);
        let is_f32 = plan.settings.precision == Precision::F32 && facts.has_bf16 && tuner.precision.is_none();
        let mixed = Goal { precision: Some(Precision::MixedBf16.into()), ..unpinned.clone() };
        let mixed_bf16 = if is_f32 { gain(&mixed)? } else { None };
        unpinned.pins = Pins::default();
        if is_small_set {
            // With a pin the planner gives no advice on larger steps.
            unpinned.pins.num_workers = Some(plan.settings.num_workers);
        }
        let free = tuner.outcome(facts, &unpinned)?;
        let advice = free.plan().filter(|_| !has_statistics).map(|plan| plan.advice.clone());
        Ok(Self { larger_batch: larger.filter(|_| !is_small_set), mixed_bf16, advice: advice.unwrap_or_default() })
    }
}
