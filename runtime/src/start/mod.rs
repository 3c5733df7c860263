mod error;
#[cfg(feature = "cuda")]
mod full_f32;
mod opening;
mod run_record;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use gpu_tuned_core::Pins;
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_observe::recording::{Observer, Observers, Record, Recorder};

pub use error::StartError;

use crate::decide::{Decision, DecisionContext, DeviceRequest, FailedGpu, decide};
use crate::detect::{Machine, first_look};
use crate::resume::ResumeError;
use crate::saved::SavedRun;
use crate::session::Session;
use crate::tuned::Tuned;

/// Looks at the machine, confirms the constants of the build or plans anew, and opens the device.
///
/// The same as [`Options::start`] with default options.
///
/// # Errors
///
/// See [`StartError`].
pub fn start<C: Tuned>(config: C) -> Result<Session<C>, StartError> {
    Options::default().start(config)
}

/// How to start.
#[derive(Clone, Debug, Default)]
pub struct Options {
    strict: bool,
    wanted: DeviceRequest,
    cpu: bool,
    machine: Option<Machine>,
    resume: Option<PathBuf>,
    set: Pins,
    record: Option<PathBuf>,
    observers: Observers,
    #[cfg(feature = "burn")]
    trace: Option<(PathBuf, crate::trace::Steps)>,
}

impl Options {
    /// The environment variable that switches strict mode on, with the value `1`.
    pub const STRICT_VARIABLE: &'static str = "GPU_TUNED_STRICT";

    /// The environment variable that fixes settings for one start: `batch_size=64,num_workers=4`.
    pub const SET_VARIABLE: &'static str = "GPU_TUNED_SET";

    /// The environment variable that names a file to record to: see [`recording`](crate::recording).
    pub const RECORD_VARIABLE: &'static str = "GPU_TUNED_RECORD";

    /// Whether any fallback is an error. Off, unless [`STRICT_VARIABLE`](Self::STRICT_VARIABLE) is `1` or `true`.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Which GPU to take, counting from 0 in CUDA's order. Without this, the first that is of the kind the build is for;
    /// if there is none, the first.
    #[must_use]
    pub fn gpu(mut self, index: usize) -> Self {
        self.wanted = DeviceRequest::These(vec![index]);
        self
    }

    /// Which GPUs this process trains on, counting from 0 in CUDA's order; one that is named twice counts once.
    ///
    /// There is one plan for all of them, made for the weakest: the least free memory, the lowest rates, what all can do.
    /// Each is a rank and gets the same number of samples. When the goal says nothing of ranks, these are all; a
    /// `world_size` above their number means that other processes train along with as many each, so their number must
    /// divide it.
    ///
    /// Where some of them are missing, as many of the others are taken as divide the global batch, which is a
    /// [`Fallback`](crate::Fallback); when other processes count on them, it is an error. When all are there and do not divide the global
    /// batch, [`PlanError::WorldSize`](crate::PlanError::WorldSize) names the numbers that would do.
    #[must_use]
    pub fn gpus(mut self, positions: impl IntoIterator<Item = usize>) -> Self {
        let positions: BTreeSet<usize> = positions.into_iter().collect();
        self.wanted = DeviceRequest::These(positions.into_iter().collect());
        self
    }

    /// Trains on every GPU of the machine: see [`gpus`](Self::gpus).
    #[must_use]
    pub fn all_gpus(mut self) -> Self {
        self.wanted = DeviceRequest::All;
        self
    }

    /// Takes the CPU, whatever GPUs there are.
    #[must_use]
    pub fn cpu(mut self) -> Self {
        self.cpu = true;
        self
    }

    /// Goes on with the run that [`Session::save`] left in `directory`.
    ///
    /// The global batch, the precision and the model are those of the saved run, or there is no session: a
    /// [`ResumeError`] says what was, what is now, and what to do. The micro-batch is kept when it fits the device, and so
    /// are the other settings then, except for what belongs to the machine: TF32, and no more loader workers than its
    /// host feeds. When it does not fit, the run is planned anew with the same global batch, and a [`Fallback`](crate::Fallback) says so;
    /// for a model that computes statistics over the micro-batch (`batch_statistics`), where another one would change
    /// the results, that is an error as well. The run may go on with another number of ranks that divides the global
    /// batch. A field of the config that was set to something that contradicts the saved schedule is an error.
    ///
    /// Saved is the plan alone. Weights, optimizer, and how far the data was read are the program's own checkpoints.
    #[must_use]
    pub fn resume(mut self, directory: impl Into<PathBuf>) -> Self {
        self.resume = Some(directory.into());
        self
    }

    /// Fixes settings for this start, over what the config's fields say, as if they were set there: they are checked, and
    /// reported as set. The samples of an optimizer step stay as they are, so that a larger micro-batch is one of fewer.
    ///
    /// What [`SET_VARIABLE`](Self::SET_VARIABLE) fixes counts before it: that is how a run is tried with other settings
    /// without a build. A variable that is empty fixes nothing.
    #[must_use]
    pub fn set(mut self, settings: Pins) -> Self {
        self.set = settings;
        self
    }

    /// Records what the session does, to the end of a file: see [`recording`](crate::recording). A file that cannot be
    /// written is a warning.
    ///
    /// A file that [`RECORD_VARIABLE`](Self::RECORD_VARIABLE) names is taken in place of this one.
    #[must_use]
    pub fn record(mut self, file: impl Into<PathBuf>) -> Self {
        self.record = Some(file.into());
        self
    }

    /// Shows what the session does to an observer as it comes, whether it is recorded to a file or not.
    #[must_use]
    pub fn observe(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }

    /// Traces some steps to a file, phase by phase: see [`trace`](crate::trace). A file that cannot be written is a
    /// warning.
    ///
    /// What [`trace::VARIABLE`](crate::trace::VARIABLE) names is taken in place of it.
    #[cfg(feature = "burn")]
    #[must_use]
    pub fn trace(mut self, file: impl Into<PathBuf>, steps: crate::trace::Steps) -> Self {
        self.trace = Some((file.into(), steps));
        self
    }

    /// Decides for this machine instead of the one of the process's first look.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Self {
        self.machine = Some(machine);
        self
    }

    /// Decides what [`start`](Self::start) would do if Burn could open the device, and opens nothing.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn decide<C: Tuned>(&self, config: &C) -> Result<Decision, StartError> {
        self.decide_without(&[], &self.wanted(), self.saved()?.as_ref(), config, None)
    }

    /// Looks at the machine, confirms the constants of the build or plans anew, and opens the device.
    ///
    /// The machine is looked at once in a process: what this process holds itself is not somebody else's later on.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start<C: Tuned>(&self, mut config: C) -> Result<Session<C>, StartError> {
        let (decision, opened) = self.open(&config)?;
        let selection = &decision.selection;
        for fallback in &selection.fallbacks {
            match selection.built_for.as_str() {
                ProfileId::GENERIC => warn_user(&fallback.to_string()),
                target => warn_user(&format!("built for {target}, but {fallback}")),
            }
        }
        tracing::info!("{selection}");
        config.apply(&decision.plan.settings);
        let recorder = self.recorder();
        if let Some(recorder) = &recorder {
            recorder.record(Record::Run(Box::new(run_record::run_record::<C>(&decision))));
        }
        Ok(Session {
            config,
            decision,
            opened,
            #[cfg(feature = "burn")]
            instrumentation: gpu_tuned_train::timing::StepInstrumentation::new(
                recorder.clone(),
                gpu_tuned_observe::trace::Tracer::from_env_or(self.trace.clone()),
            ),
            recorder,
            machine: self.seen().clone(),
            #[cfg(feature = "train")]
            step_history: gpu_tuned_train::train::metrics::StepHistory::default(),
        })
    }

    fn seen(&self) -> &Machine {
        self.machine.as_ref().unwrap_or_else(|| first_look())
    }

    /// What records the session, if anything does.
    fn recorder(&self) -> Option<Recorder> {
        let named = std::env::var_os(Self::RECORD_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        Recorder::open(named.or_else(|| self.record.clone()), &self.observers)
    }

    /// The run to go on with, if one is wanted.
    fn saved(&self) -> Result<Option<SavedRun>, ResumeError> {
        let Some(directory) = &self.resume else { return Ok(None) };
        let saved = SavedRun::load(directory)?;
        saved.map(Some).ok_or_else(|| ResumeError::Nothing { directory: directory.clone() })
    }

    /// The GPUs that are asked for, or the CPU and why.
    fn wanted(&self) -> DeviceRequest {
        let cpu = |because: &str| DeviceRequest::Cpu { because: vec![because.to_owned()] };
        match &self.wanted {
            _ if self.cpu => cpu("the CPU was asked for"),
            DeviceRequest::These(none) if none.is_empty() => cpu("no GPUs were asked for"),
            wanted => wanted.clone(),
        }
    }

    /// What is fixed for this start.
    fn fixed(&self) -> Result<Pins, StartError> {
        let Some(text) = std::env::var_os(Self::SET_VARIABLE) else { return Ok(self.set.clone()) };
        let set: Pins = text.to_string_lossy().parse().map_err(|cause| StartError::Set { cause })?;
        Ok(set.or(&self.set))
    }

    /// Decides without the GPUs that turned out to be broken, and with TF32 as it is where nothing can be done about it.
    fn decide_without<C: Tuned>(
        &self,
        broken: &[FailedGpu],
        wanted: &DeviceRequest,
        saved: Option<&SavedRun>,
        config: &C,
        allow_tf32: Option<bool>,
    ) -> Result<Decision, StartError> {
        let machine = self.seen();
        let begin = Instant::now();
        let fixed = self.fixed()?;
        let mut set = fixed.clone();
        set.allow_tf32 = allow_tf32.or(set.allow_tf32);
        let decision = decide(config, DecisionContext { machine, wanted, broken, saved, set: &set });
        let decision = decision.map_err(|error| StartError::of(error, fixed))?;
        tracing::debug!(elapsed = ?begin.elapsed(), "decided");
        self.refuse_fallbacks(&decision)?;
        Ok(decision)
    }

    fn refuse_fallbacks(&self, decision: &Decision) -> Result<(), StartError> {
        let strict = self.strict || is_strict()?;
        let selection = &decision.selection;
        if !strict || selection.fallbacks.is_empty() {
            return Ok(());
        }
        Err(StartError::Strict { built_for: selection.built_for.clone(), fallbacks: selection.fallbacks.clone() })
    }
}

/// What [`Options::STRICT_VARIABLE`] says.
fn is_strict() -> Result<bool, StartError> {
    let Some(said) = std::env::var_os(Options::STRICT_VARIABLE) else { return Ok(false) };
    match said.to_string_lossy().to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "" | "0" | "false" => Ok(false),
        _ => Err(StartError::StrictVariable { said: said.to_string_lossy().into_owned() }),
    }
}
