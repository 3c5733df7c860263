//! Lines of a recording, and the last of several runs.

use gpu_tuned_core::Settings;
use gpu_tuned_core::plan::Expected;
use gpu_tuned_core::telemetry::{Gpu, GpuSample};
use serde::{Deserialize, Deserializer, Serialize};

use super::StepRecord;

/// The version of the format that is written.
pub const VERSION: u32 = 1;

/// One line of a recording. Times are seconds since 1970 (UTC); unknown figures are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// A monitor starts.
    Start(Start),
    /// A sample of a GPU.
    Gpu(GpuSample),
    /// A sample of the host.
    Host(HostSample),
    /// A training program starts.
    Run(Box<Run>),
    /// An optimizer step of the program.
    Step(Box<StepRecord>),
    /// A value of the program.
    Value(Value),
    /// A kind of a newer version.
    #[serde(other)]
    Unknown,
}

/// The start of a monitor, with the devices that it samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Start {
    /// Time of the start.
    pub at: f64,
    /// The version of the format: [`VERSION`].
    pub version: u32,
    /// CPU cores of the host that may be used.
    pub cores: u64,
    /// Memory of the host in bytes.
    pub memory_bytes: u64,
    /// Version of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// The GPUs that are sampled.
    pub gpus: Vec<Gpu>,
    /// Reasons why no GPU is sampled, or some are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
}

gpu_tuned_core::sparse! {
    /// A value that the program recorded.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct Value {
        /// Time of the value.
        pub at: f64,
        /// The name, such as `valid/loss`.
        pub name: String,
        /// The value; NaN and infinities are written as `null`.
        #[serde(deserialize_with = "number_or_nan")]
        pub value: f64,
        /// The optimizer step of the value.
        pub step: Option<u64>,
    }
}

/// Reads `null`, which JSON has in place of NaN and infinities, as NaN.
fn number_or_nan<'de, D: Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Option::deserialize(number).map(|number| number.unwrap_or(f64::NAN))
}

impl Record {
    /// The training program that starts.
    pub fn run(&self) -> Option<&Run> {
        if let Self::Run(run) = self { Some(run) } else { None }
    }

    /// The optimizer step.
    pub fn step(&self) -> Option<&StepRecord> {
        if let Self::Step(step) = self { Some(step) } else { None }
    }

    /// Time of the record in seconds since 1970; `None` for an unknown kind.
    pub const fn at(&self) -> Option<f64> {
        match self {
            Self::Start(start) => Some(start.at),
            Self::Gpu(sample) => Some(sample.at),
            Self::Host(sample) => Some(sample.at),
            Self::Run(run) => Some(run.at),
            Self::Step(step) => Some(step.at),
            Self::Value(value) => Some(value.at),
            Self::Unknown => None,
        }
    }
}

impl Value {
    /// Creates a value without a step.
    pub fn new(at: f64, name: impl Into<String>, value: f64) -> Self {
        Self { at, name: name.into(), value, step: None }
    }
}

gpu_tuned_core::sparse! {
    /// A sample of the host.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct HostSample {
        /// Time of the sample.
        pub at: f64,
        /// CPU time of all processes since the last sample, in percent of all cores.
        pub cpu_percent: Option<f64>,
        /// Memory in use, in bytes.
        pub memory_used_bytes: Option<u64>,
        /// The monitored program and its children.
        pub process: Option<ProcessSample>,
    }

    /// A sample of a program.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct ProcessSample {
        /// Process ID.
        pub pid: u32,
        /// CPU time since the last sample, in percent of one core: 400 is four busy cores.
        pub cpu_percent: Option<f64>,
        /// Resident memory in bytes.
        pub memory_bytes: Option<u64>,
        /// CPU time of its busiest thread since the last sample, in percent of one core.
        pub busiest_thread_percent: Option<f64>,
    }
}

impl HostSample {
    /// Creates a sample without figures.
    pub fn new(at: f64) -> Self {
        Self { at, ..Self::default() }
    }
}

impl ProcessSample {
    /// Creates a sample without figures.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }
}

/// Returns the run that began last, wherever it stands in the file.
pub(crate) fn last_run(records: &[Record]) -> Option<&Run> {
    let runs = records.iter().filter_map(Record::run);
    runs.max_by(|a, b| a.at.total_cmp(&b.at))
}

/// Returns whether the run's process took the step. Steps and runs of older versions name no process and always match.
pub(crate) fn is_of_process(run: &Run, step: &StepRecord) -> bool {
    run.pid == 0 || step.pid.is_none_or(|pid| pid == run.pid)
}

/// Returns whether the run took the step. Without a recorded run every step matches.
pub(crate) fn belongs_to(run: Option<&Run>, step: &StepRecord) -> bool {
    run.is_none_or(|run| step.at >= run.at && is_of_process(run, step))
}

/// Returns steps of the run's process that ended before the run began, and whose numbers go on from its others: the clock was
/// set back.
pub(crate) fn set_back<'a>(run: Option<&Run>, records: &'a [Record]) -> Vec<&'a StepRecord> {
    let is_own = |step: &&StepRecord| run.is_some_and(|run| run.pid != 0 && step.pid == Some(run.pid));
    let own = records.iter().filter_map(Record::step).filter(is_own);
    let (steps, before): (Vec<_>, Vec<_>) = own.partition(|step| belongs_to(run, step));
    let last = steps.iter().map(|step| step.step).max();
    let goes_on = before.iter().map(|step| step.step).min().is_some_and(|first| last == Some(first.saturating_sub(1)));
    if goes_on { before } else { Vec::new() }
}

gpu_tuned_core::sparse! {
    /// The start of a training program: the build's target, the device, and the settings.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct Run {
        /// Time of the start.
        pub at: f64,
        /// Process ID.
        pub pid: u32,
        /// Name of the workload.
        pub workload: String,
        /// Target of the build, such as `h200`.
        pub target: Option<String>,
        /// The device.
        pub device: Device,
        /// Fallbacks, in words.
        pub fallbacks: Vec<String>,
        /// The settings.
        pub settings: Option<Settings>,
        /// Requested samples of an optimizer step over all ranks.
        pub global_batch: Option<u64>,
        /// Ranks that train together.
        pub world_size: u64,
        /// The model has batch statistics, which depend on the micro-batch.
        pub batch_statistics: bool,
        /// Parts of the model are frozen, which makes the backward pass shorter.
        #[serde(skip_serializing_if = "core::ops::Not::not")]
        pub partly_frozen: bool,
        /// Memory budget after headroom, in bytes.
        pub memory_budget_bytes: Option<u64>,
        /// Memory that the plan predicts, in bytes.
        pub memory_planned_bytes: Option<u64>,
        /// The planner's predictions for micro-batches on this device in this precision, smallest first.
        pub expected: Vec<Expected>,
        /// Reason and provenance of each setting, one line each.
        pub reasons: Vec<String>,
    }

    /// The device of a training program.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct Device {
        /// Name of the device.
        pub name: String,
        /// The device is a GPU; else it is the CPU.
        pub is_gpu: bool,
        /// Profile of the device; `None` for a CPU or an unknown GPU.
        pub profile: Option<String>,
        /// UUIDs of the GPUs, one for each rank of this process.
        pub gpu_uuids: Vec<String>,
        /// The device has bf16 tensor cores.
        pub has_bf16: bool,
        /// The device has TF32.
        pub has_tf32: bool,
    }
}

impl Run {
    /// Creates a start without figures.
    pub fn new(at: f64, pid: u32) -> Self {
        Self { at, pid, world_size: 1, ..Self::default() }
    }
}
