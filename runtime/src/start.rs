#[cfg(feature = "distributed")]
mod distributed;
mod error;
#[cfg(feature = "cuda")]
mod full_f32;
#[cfg(feature = "burn")]
mod kernels;
mod opening;

use std::path::PathBuf;
use std::process;
use std::sync::OnceLock;
use std::time::Instant;

use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::plan::curve;
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, Kernels, Pins, Provenance};
use gpu_tuned_nvml::{Machine, UnusableGpu, detect};
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_observe::recording::{Device, Observer, Observers, Record, Recorder, Run, now};
use gpu_tuned_ranks::Launched;

pub use error::StartError;

use crate::decide::{Decision, DecisionContext, DeviceRequest, RanksHere, decide};
#[cfg(feature = "distributed")]
use crate::ranks::Connection;
use crate::restart;
use crate::resume::ResumeError;
use crate::saved::SavedRun;
#[cfg(not(feature = "distributed"))]
use crate::session::Connection;
use crate::session::Session;
use crate::tuned::{Built, Tuned};

/// Reads the machine, confirms the constants of the build or plans again, and opens the device.
///
/// The same as [`Options::start`] with default options.
///
/// # Errors
///
/// See [`StartError`].
pub fn start<C: Tuned>(config: C) -> Result<Session<C>, StartError> {
    Options::default().start(config)
}

/// Options of a start.
#[allow(clippy::struct_excessive_bools, reason = "switches, each set by a method of its own")]
#[derive(Clone, Debug, Default)]
pub struct Options {
    strict: bool,
    wanted: DeviceRequest,
    cpu: bool,
    machine: Option<Machine>,
    resume: Option<PathBuf>,
    /// Folder of checkpoints to resume from, if there is one.
    #[cfg(feature = "burn")]
    checkpoints: Option<PathBuf>,
    set: Pins,
    record: Option<PathBuf>,
    #[cfg(feature = "burn")]
    hides_progress: bool,
    observers: Observers,
    /// True if a model that is not ready for 16 bits is an error.
    stays: bool,
    #[cfg(feature = "burn")]
    trace: Option<(PathBuf, crate::trace::Steps)>,
    ranks: LaunchedAs,
    #[cfg(feature = "distributed")]
    rank_limits: crate::ranks::Limits,
}

impl Options {
    /// The environment variable that switches strict mode on, with the value `1`.
    pub const STRICT_VARIABLE: &'static str = "GPU_TUNED_STRICT";

    /// The environment variable that makes the processes of a launch [independent](Self::independent), with the value `1`.
    pub const INDEPENDENT_VARIABLE: &'static str = "GPU_TUNED_INDEPENDENT";

    /// The environment variable that fixes settings for one start: `batch_size=64,num_workers=4`.
    pub const SET_VARIABLE: &'static str = Pins::VARIABLE;

    /// The environment variable that names a file to record to: see [`recording`](crate::recording).
    pub const RECORD_VARIABLE: &'static str = "GPU_TUNED_RECORD";

    /// The environment variable that switches progress lines off, with the value `0`.
    #[cfg(feature = "burn")]
    pub const PROGRESS_VARIABLE: &'static str = "GPU_TUNED_PROGRESS";

    /// Makes any fallback an error. Off, unless [`STRICT_VARIABLE`](Self::STRICT_VARIABLE) is `1` or `true`.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Selects a GPU by its index in CUDA's order. By default, the first one on which the plan fits: see
    /// [`Machine::preference`].
    #[must_use]
    pub fn gpu(mut self, index: usize) -> Self {
        self.wanted = DeviceRequest::This(index);
        self
    }

    /// Lets each process of a launch train on its own, as in a search over hyperparameters.
    ///
    /// By default, a launcher that started several processes is an [error](StartError::Copies) for a program that trains in
    /// one: each process would train a copy of the model. [`INDEPENDENT_VARIABLE`](Self::INDEPENDENT_VARIABLE) allows that
    /// without a change of the program. A later `distributed` undoes this option.
    #[must_use]
    pub fn independent(mut self) -> Self {
        self.ranks = LaunchedAs::Independent;
        self
    }

    /// Takes the CPU, whatever GPUs there are.
    #[must_use]
    pub fn cpu(mut self) -> Self {
        self.cpu = true;
        self
    }

    /// Resumes the run that [`Session::save`] saved in `directory`.
    ///
    /// Global batch, precision and model must be those of the saved run, else a [`ResumeError`] has both values and the remedy.
    /// If the saved micro-batch fits the device, it stays with the other settings, except for TF32 and the number of loader
    /// workers, which depend on the machine. If it does not fit, the run is planned again with the same global batch, and a
    /// [`Fallback`](crate::Fallback) reports it. For a model with `batch_statistics`, where another micro-batch changes the
    /// results, that is an error. The number of ranks may change if it divides the global batch. A config field that
    /// contradicts the saved schedule is an error.
    ///
    /// The saved run is the plan alone: `resume_or_start` and `Session::checkpoints` also have weights, optimizer and position.
    #[must_use]
    pub fn resume(mut self, directory: impl Into<PathBuf>) -> Self {
        self.resume = Some(directory.into());
        self
    }

    /// Resumes the newest whole checkpoint in `folder`, as [`resume`](Self::resume) does, or starts a new run if there is none.
    /// `Session::checkpoints` saves there, and loads the rest of the run. The first start and later ones have the same command.
    #[cfg(feature = "burn")]
    #[must_use]
    pub fn resume_or_start(mut self, folder: impl Into<PathBuf>) -> Self {
        self.checkpoints = Some(folder.into());
        self
    }

    /// Pins settings for this start, over the config's fields. They are checked and reported like fields. The samples
    /// of an optimizer step stay the same, so a larger micro-batch means fewer of them.
    ///
    /// [`SET_VARIABLE`](Self::SET_VARIABLE) takes precedence: it tries a run with other settings without a build. An
    /// empty variable pins nothing.
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

    /// Shows the lines of [`Session::progress`], which is the default, or hides them.
    ///
    /// [`PROGRESS_VARIABLE`](Self::PROGRESS_VARIABLE) takes precedence.
    #[cfg(feature = "burn")]
    #[must_use]
    pub fn progress(mut self, is_shown: bool) -> Self {
        self.hides_progress = !is_shown;
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
    /// [`trace::VARIABLE`](crate::trace::VARIABLE) takes precedence.
    #[cfg(feature = "burn")]
    #[must_use]
    pub fn trace(mut self, file: impl Into<PathBuf>, steps: crate::trace::Steps) -> Self {
        self.trace = Some((file.into(), steps));
        self
    }

    /// False makes a model that is not ready for planned 16 bits an error. By default the program starts again before its
    /// first step, with the same process ID and arguments, and trains in f32. Strict mode and a precision by name make it an
    /// error, too.
    #[must_use]
    pub fn restarts(mut self, restarts: bool) -> Self {
        self.stays = !restarts;
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
        let request = self.request(self.wanted(), config)?;
        request.or_fail(self.decide_without(Unusable::default(), &request, config, None))
    }

    /// Reads the machine, confirms the constants of the build or plans again, and opens the device.
    ///
    /// The machine is read once in a process, because later readings would include this process's own memory.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start<C: Tuned>(&self, config: C) -> Result<Session<C>, StartError> {
        let request = self.request(opening::without_cuda(self.seen()).unwrap_or_else(|| self.wanted()), &config)?;
        request.or_fail(self.start_as(&request, config))
    }

    fn start_as<C: Tuned>(&self, request: &Request, mut config: C) -> Result<Session<C>, StartError> {
        let (decision, opened) = self.open(request, &config)?;
        let selection = &decision.selection;
        for fallback in &selection.fallbacks {
            match selection.built_for.as_str() {
                ProfileId::GENERIC => warn_user(&fallback.to_string()),
                target => warn_user(&format!("built for {target}, but {fallback}")),
            }
        }
        tracing::info!("{selection}");
        config.apply(&decision.plan.settings);
        #[cfg(feature = "burn")]
        restart::keep_folder();
        let recorder = self.recorder(request);
        if let Some(recorder) = &recorder {
            recorder.record(Record::Run(Box::new(run_record::<C>(&decision))));
        }
        Ok(Session {
            config,
            decision,
            opened,
            #[cfg(feature = "burn")]
            shows_progress: switch(Self::PROGRESS_VARIABLE)?.unwrap_or(!self.hides_progress),
            #[cfg(feature = "burn")]
            restarts: !(self.stays || self.strict || request.ranks.is_some() || is_on(Self::STRICT_VARIABLE)?),
            #[cfg(feature = "burn")]
            instrumentation: gpu_tuned_train::timing::StepInstrumentation::new(
                request.rank(),
                recorder.clone(),
                gpu_tuned_observe::trace::Tracer::from_env_or(self.trace.clone()),
            ),
            recorder,
            machine: self.seen().clone(),
            ranks: request.connection.clone(),
            #[cfg(feature = "train")]
            step_history: gpu_tuned_train::train::metrics::StepHistory::default(),
        })
    }

    fn seen(&self) -> &Machine {
        self.machine.as_ref().unwrap_or_else(|| first_look())
    }

    /// Recorder of the session, if requested. Ranks other than the first write to files of their own.
    fn recorder(&self, request: &Request) -> Option<Recorder> {
        let named = std::env::var_os(Self::RECORD_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let file = named.or_else(|| self.record.clone());
        Recorder::open(file.map(|file| recording_of_rank(file, request.rank())), &self.observers)
    }

    /// Saved run to resume, if requested.
    fn saved(&self) -> Result<Option<SavedRun>, ResumeError> {
        #[cfg(feature = "burn")]
        if let Some(folder) = &self.checkpoints {
            let newest = crate::checkpoints::newest(folder, false).map_err(Box::new)?;
            return Ok(newest.map(|checkpoint| SavedRun::load(checkpoint.path())).transpose()?.flatten());
        }
        let Some(directory) = &self.resume else { return Ok(None) };
        let saved = SavedRun::load(directory)?;
        saved.map(Some).ok_or_else(|| ResumeError::Nothing { directory: directory.clone() })
    }

    /// The GPU that is asked for, or the CPU and why.
    fn wanted(&self) -> DeviceRequest {
        if !self.cpu {
            return self.wanted.clone();
        }
        DeviceRequest::Cpu { because: vec!["the CPU was asked for".to_owned()] }
    }

    /// Pins of this start.
    fn fixed(&self) -> Result<Pins, StartError> {
        let Some(text) = std::env::var_os(Self::SET_VARIABLE) else { return Ok(self.set.clone()) };
        let set: Pins = text.to_string_lossy().parse().map_err(|cause| StartError::Set { cause })?;
        Ok(set.or(&self.set))
    }

    /// Decides without what turned out to be unusable, and with TF32 as it is where nothing can be done about it.
    fn decide_without<C: Tuned>(
        &self,
        Unusable { broken, no_library }: Unusable<'_>,
        request: &Request,
        config: &C,
        allow_tf32: Option<bool>,
    ) -> Result<Decision, StartError> {
        let machine = self.seen();
        let begin = Instant::now();
        let fixed = self.fixed()?;
        let mut set = fixed.clone();
        set.allow_tf32 = allow_tf32.or(set.allow_tf32);
        let not_ready = restart::reason();
        let not_ready = not_ready.as_deref();
        let (wanted, saved, ranks) = (&request.wanted, request.saved.as_ref(), request.ranks.as_ref());
        let context = DecisionContext { machine, wanted, broken, saved, set: &set, not_ready, no_library, ranks };
        #[cfg(feature = "burn")]
        let pinned = fixed.kernels;
        let decision = decide(config, context).map_err(|error| error.with_pins(fixed))?;
        tracing::debug!(elapsed = ?begin.elapsed(), "decided");
        #[cfg(feature = "burn")]
        kernels::refuse_other_measurement(pinned, &decision)?;
        self.refuse_fallbacks(&decision)?;
        Ok(decision)
    }

    fn refuse_fallbacks(&self, decision: &Decision) -> Result<(), StartError> {
        let strict = self.strict || is_on(Self::STRICT_VARIABLE)?;
        let selection = &decision.selection;
        if !strict || selection.fallbacks.is_empty() {
            return Ok(());
        }
        Err(StartError::Strict { built_for: selection.built_for.clone(), fallbacks: selection.fallbacks.clone() })
    }
}

/// Other processes that a process trains with.
#[derive(Clone, Debug, Default)]
enum LaunchedAs {
    /// None; several processes of a launcher would train copies.
    #[default]
    None,
    /// None, and the processes of a launcher train on their own.
    Independent,
    /// Ranks of the launcher, which has to be there.
    #[cfg(feature = "distributed")]
    Launched,
    /// Ranks of the launcher, if there is one.
    #[cfg(feature = "distributed")]
    IfLaunched,
    /// Ranks of a launch that the program passes.
    #[cfg(feature = "distributed")]
    As(Box<crate::ranks::Launch>),
}

/// Parts of the machine that turned out to be unusable once they were opened.
#[derive(Clone, Copy, Default)]
struct Unusable<'a> {
    /// GPUs that failed to open.
    broken: &'a [UnusableGpu],
    /// Why the library's kernels cannot be used, and what to do.
    no_library: Option<&'a str>,
}

/// Request of a start.
struct Request {
    pub wanted: DeviceRequest,
    pub saved: Option<SavedRun>,
    /// Facts of the other ranks, if there are any.
    pub ranks: Option<RanksHere>,
    /// Connection to them.
    pub connection: Option<Connection>,
}

impl Request {
    /// Number of this process, 0 for the only one.
    fn rank(&self) -> usize {
        self.connection.as_ref().map_or(0, Connection::number)
    }

    /// Ends the other ranks with the error of this one, if there is one.
    fn or_fail<T>(&self, result: Result<T, StartError>) -> Result<T, StartError> {
        if let (Err(error), Some(connection)) = (&result, &self.connection) {
            connection.fail(error);
        }
        result
    }
}

/// Recording of a rank: `run.rank3.jsonl` beside the first rank's `run.jsonl`.
fn recording_of_rank(file: PathBuf, rank: usize) -> PathBuf {
    if rank == 0 {
        return file;
    }
    let extension = file.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    file.with_extension(format!("rank{rank}{extension}"))
}

impl Options {
    /// Device, saved run and other ranks of a start. Joins the ranks, if there are any.
    fn request<C: Tuned>(&self, wanted: DeviceRequest, config: &C) -> Result<Request, StartError> {
        self.refuse_copies()?;
        let request = Request { wanted, saved: self.saved()?, ranks: None, connection: None };
        #[cfg(feature = "distributed")]
        return self.with_ranks(request, config);
        #[cfg(not(feature = "distributed"))]
        {
            let _ = config;
            Ok(request)
        }
    }

    /// Refuses to train one of several copies that a launcher started.
    fn refuse_copies(&self) -> Result<(), StartError> {
        if !matches!(self.ranks, LaunchedAs::None) {
            return Ok(());
        }
        // A measurement trains nothing.
        #[cfg(feature = "burn")]
        if gpu_tuned_measure::measure::is_requested() {
            return Ok(());
        }
        match Launched::from_env() {
            Some(Launched { world_size, variable }) if world_size > 1 && !is_on(Self::INDEPENDENT_VARIABLE)? => {
                Err(StartError::Copies { world_size, variable })
            }
            _ => Ok(()),
        }
    }
}

/// Value of a switch that is off by default.
fn is_on(variable: &'static str) -> Result<bool, StartError> {
    Ok(switch(variable)?.unwrap_or(false))
}

/// The switch of an environment variable; `None` if the variable is empty or not set.
fn switch(variable: &'static str) -> Result<Option<bool>, StartError> {
    let value = std::env::var_os(variable).unwrap_or_default();
    match value.to_string_lossy().to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(Some(true)),
        "" => Ok(None),
        "0" | "false" => Ok(Some(false)),
        _ => Err(StartError::Switch { variable, value: value.to_string_lossy().into_owned() }),
    }
}

/// Builds the record that a session writes when it starts.
fn run_record<C: Tuned>(decision: &Decision) -> Run {
    let Decision { selection, plan, workload, inputs } = decision;
    let memory = &plan.memory;
    let mut goal = inputs.goal.clone();
    goal.precision = Some(plan.settings.precision.into());
    goal.kernels = Some(plan.settings.kernels);
    // Headroom that the plan leaves, for a nominal or a probed device.
    goal.memory_headroom = memory.headroom_share();
    let reason = |reason: &gpu_tuned_core::plan::Reason| {
        let value = plan.settings.get(reason.setting);
        format!("{} = {value}: {} ({})", reason.setting, reason.why, reason.provenance)
    };
    let mut run = Run::new(now(), process::id());
    C::BUILT.config.clone_into(&mut run.workload);
    run.target = Some(C::BUILT.target.to_owned());
    run.features = features(&C::BUILT);
    run.device = device(decision);
    run.fallbacks = selection.fallbacks.iter().map(ToString::to_string).collect();
    run.settings = Some(plan.settings);
    run.global_batch = Some(plan.schedule.global_batch);
    run.world_size = plan.schedule.world_size;
    run.batch_statistics = workload.batch_statistics;
    run.partly_frozen = workload.is_partly_frozen();
    run.family = Some(workload.family);
    run.library_speed_up = library_speed_up(&inputs.facts, workload, &goal);
    run.memory_budget_bytes = Some(memory.budget().0);
    run.memory_planned_bytes = Some(memory.total().0);
    run.expected = curve(&inputs.facts, workload, &goal).unwrap_or_default();
    run.reasons = plan.reasons.iter().map(reason).collect();
    run
}

/// Features of the build that choose the device. A target that no feature names is that of `native`.
fn features(built: &Built) -> Vec<String> {
    let targets = match (built.targets, built.target) {
        ([], ProfileId::GENERIC) => &[ProfileId::GENERIC][..],
        ([], _) => &[ProfileId::NATIVE],
        (targets, _) => targets,
    };
    // Without Burn, the program has CUDA of its own.
    let has_cuda = cfg!(any(not(feature = "burn"), feature = "cuda"));
    targets.iter().copied().chain(has_cuda.then_some("cuda")).map(str::to_owned).collect()
}

/// Samples per second with the library's kernels over those with Burn's, where both were measured on the device.
fn library_speed_up(facts: &DeviceFacts, workload: &Workload, goal: &Goal) -> Option<f64> {
    let fastest = |kernels: Kernels| {
        let mut goal = goal.clone();
        goal.pins.kernels = Some(kernels);
        let expected = curve(facts, workload, &goal).ok()?;
        let measured = expected.iter().filter(|point| point.fits && point.provenance == Some(Provenance::Measured));
        measured.map(|point| point.samples_per_s).max_by(f64::total_cmp)
    };
    let is_gpu = facts.kind == DeviceKind::Gpu;
    is_gpu.then(|| Some(fastest(Kernels::Library)? / fastest(Kernels::Burn)?)).flatten()
}

fn device(decision: &Decision) -> Device {
    let facts = &decision.inputs.facts;
    let mut device = Device::default();
    device.name.clone_from(&decision.plan.device);
    device.is_gpu = facts.kind == DeviceKind::Gpu;
    device.profile.clone_from(&facts.profile);
    device.gpu_uuids = decision.selection.gpu.iter().filter_map(|gpu| gpu.reading.uuid.clone()).collect();
    device.has_bf16 = facts.has_bf16;
    device.has_tf32 = facts.has_tf32;
    device
}

/// Machine at the first call in this process. Later, memory of this process would count as used.
pub(crate) fn first_look() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(detect)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::device::DeviceFacts;
    use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
    use gpu_tuned_core::profile::ProfileTable;
    use gpu_tuned_core::workload::WorkloadSpec;
    use gpu_tuned_core::{Bytes, Goal, Precision};

    use super::library_speed_up;

    /// Speed-up on an H200 where a micro-batch of 8 took so long with the library's kernels or without.
    fn speed_up(measured: &[(bool, f64)]) -> Option<f64> {
        let facts = DeviceFacts::nominal(ProfileTable::builtin().get("h200").expect("a shipped profile"));
        let spec: WorkloadSpec = serde_json::from_str(r#"{"model": {"mlp": {"widths": [4, 4]}}}"#).expect("a workload");
        let mode = |&(library, ms): &(bool, f64)| {
            let figures = MeasuredBatch {
                reserved_bytes: Some(Bytes::from_mib(900)),
                micro_step_ms: Some(ms),
                optimizer_ms: Some(0.0),
                ..MeasuredBatch::default()
            };
            let method = MeasurementMethod::DryRun;
            let mode = MeasuredMode { method, is_partial: false, batch: [(8, figures)].into() };
            (Mode::new(Precision::F32, false).with_library(library), mode)
        };
        let on = MeasuredOn { mode: measured.iter().map(mode).collect(), ..facts.measured_on("0.22.1") };
        let workload = spec.workload();
        let parameters = workload.parameters.trained();
        let measured = Measured { parameters, on: [("h200".to_owned(), on)].into(), ..Measured::default() };
        let goal = Goal { global_batch: Some(8), ..Goal::default() };
        library_speed_up(&facts, &workload.with_measured(measured), &goal)
    }

    #[test]
    fn the_speed_up_is_that_of_two_measurements() {
        let both = speed_up(&[(false, 30.0), (true, 10.0)]).expect("both are measured");
        assert!((both - 3.0).abs() < 0.01, "{both}");
        assert_eq!([&[(false, 30.0)][..], &[(true, 10.0)], &[]].map(speed_up), [None; 3]);
    }
}
