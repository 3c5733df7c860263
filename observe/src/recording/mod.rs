//! Recordings of training runs: one JSON object per line ([`Record`]).
//!
//! The monitor records the machine, the training program records its steps. Both may append to one file: each writes
//! whole lines. A record that a killed process did not finish is skipped by the reader. Record kinds and fields of newer
//! versions are ignored; an unknown value of a setting is an error.
//!
//! # Recording a program
//!
//! With the environment variable `GPU_TUNED_RECORD=FILE`, or `gpu_tuned::Options::record`, a session appends a [`Run`] when
//! it starts. With feature `burn` it also appends a [`StepRecord`] for every optimizer step of its trainer, its strategy or
//! its ranks, with the time of each phase and the work of the loader. The program adds its own values with
//! `gpu_tuned::Session::value`. An [`Observer`] receives every record.
//!
//! The host's clock times a step; recording does not synchronize with the device. Another thread writes the records once a
//! second, and when the last recorder is dropped. If the file cannot be written, recording ends with a warning and
//! training continues.
//!
//! # Reading and writing
//!
//! ```
//! use gpu_tuned_observe::recording::{Record, Value, Writer, read};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("run.jsonl");
//! let mut writer = Writer::append(&path)?;
//! writer.write(&Record::Value(Value::new(1.0, "valid/loss", 0.25)))?;
//! writer.flush()?;
//!
//! assert_eq!(read(&path)?.records, [Record::Value(Value::new(1.0, "valid/loss", 0.25))]);
//! # Ok(())
//! # }
//! ```

mod file;
mod recorder;

use std::time::{SystemTime, UNIX_EPOCH};

use gpu_tuned_core::Settings;
pub use gpu_tuned_core::plan::Expected;
pub use gpu_tuned_core::telemetry::{Gpu, GpuProcess, GpuSample, Throttle};
use gpu_tuned_core::workload::Family;
use serde::{Deserialize, Deserializer, Serialize};

use crate::stats::median;
pub use file::{LARGEST, Recording, RecordingError, Tail, Writer, of_process, parse, read};
pub use recorder::{Observer, Observers, Recorder};

/// Seconds since 1970 (UTC): the clock of recordings.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

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

impl Start {
    /// Returns the GPU or slice with these numbers, as the samples of a GPU have them.
    pub(crate) fn gpu(&self, number: u32, mig_slot: Option<u32>) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| (gpu.gpu, gpu.mig_slot) == (number, mig_slot))
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
        /// Features of the build that choose the device: GPUs, `native`, `generic`, `cuda`. Empty in recordings of older
        /// versions.
        pub features: Vec<String>,
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
        /// Kind of the network; `None` in recordings of older versions.
        pub family: Option<Family>,
        /// Samples per second with the library's kernels over those with Burn's, as measured on this device, at the fastest
        /// micro-batch of each; `None` where not both were measured.
        pub library_speed_up: Option<f64>,
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

gpu_tuned_core::sparse! {
    /// An optimizer step of the program, by the host's clock.
    ///
    /// `seconds` is the time from the end of the last step to the end of this one: `waited_s` (for the loader), `outside_s`
    /// (in the program's own loop), and the rest in the trainer: `loss_s` in the program's loss function, `backward_s`,
    /// `update_s`, and `drain_s` waiting for the device at the end. The device works beside the host: work that the host
    /// launches quickly may take the device long, and shows in `drain_s`.
    ///
    /// In Burn's training loop, the program's training step calls `backward` itself: both are in `loss_s`, and there is
    /// no `backward_s`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct StepRecord {
        /// Time of the end.
        pub at: f64,
        /// Number of the step, from 1.
        pub step: u64,
        /// Rank that took the step.
        #[serde(skip_serializing_if = "is_zero")]
        pub rank: u64,
        /// ID of the process that took the step; `None` in recordings of older versions.
        pub pid: Option<u32>,
        /// Seconds from the end of the last step to the end of this one.
        pub seconds: f64,
        /// Samples over all ranks.
        pub samples: u64,
        /// Micro-batches of this rank.
        pub micro_batches: u64,
        /// Samples of a micro-batch; the last may have fewer.
        pub micro_batch: u64,
        /// Seconds waiting for the loader's next batch.
        pub waited_s: Option<f64>,
        /// Seconds uploading batches that the loader left on the host.
        pub upload_s: Option<f64>,
        /// Seconds in the program's loss function.
        pub loss_s: Option<f64>,
        /// CPU seconds of this thread in the loss function: far less than `loss_s` if it waits for the device.
        pub loss_cpu_s: Option<f64>,
        /// Seconds in the backward pass.
        pub backward_s: Option<f64>,
        /// Seconds in the optimizer.
        pub update_s: Option<f64>,
        /// Seconds waiting for other ranks and exchanging gradients. On GPUs, with the update on the device.
        pub exchange_s: Option<f64>,
        /// Seconds waiting for the device at the end of the step.
        pub drain_s: Option<f64>,
        /// Seconds between the trainer's return and its next call, without waiting for the loader.
        pub outside_s: Option<f64>,
        /// Batches that were ready when the trainer asked for one.
        pub queued: Option<u64>,
        /// Batches that the loader's workers prepared since the last step.
        pub prepared: Option<u64>,
        /// Seconds of all workers for these batches: fetching and batching, without waiting for room in the queue.
        pub prepared_s: Option<f64>,
        /// CPU seconds of the workers in `prepared_s`: far less if they wait for storage.
        pub prepared_cpu_s: Option<f64>,
        /// Bytes in use in Burn's pools after the step.
        pub in_use_bytes: Option<u64>,
        /// Bytes reserved by Burn's pools after the step.
        pub reserved_bytes: Option<u64>,
        /// Mean loss.
        pub loss: Option<f64>,
        /// Norm of all gradients.
        pub gradient_norm: Option<f64>,
        /// Factor of the loss for fp16.
        pub loss_scale: Option<f64>,
        /// The parameters were updated.
        pub applied: bool,
        /// Number of times that the step ran out of memory and recovered.
        #[serde(skip_serializing_if = "is_zero")]
        pub rescues: u64,
        /// Slowest of several ranks, in steps of the first one.
        pub slowest_rank: Option<SlowestRank>,
    }
}

/// Slowest of several ranks, by the last steps that they reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowestRank {
    /// Rank.
    pub rank: u64,
    /// Host of the rank.
    pub host: String,
    /// Seconds from the end of a step to the exchange of the next one, with all that the program does between.
    pub seconds: f64,
    /// Median seconds of the other ranks.
    pub others_s: f64,
}

impl SlowestRank {
    /// Seconds of a rank over those of the others. For a rank that is not the slowest, as if it was as fast as the others.
    pub(crate) fn slowness_of(&self, rank: u64) -> f64 {
        if rank == self.rank { self.seconds / self.others_s } else { self.others_s / self.seconds }
    }

    /// Finds the slowest of ranks, given with host and seconds; `None` for less than two.
    pub fn of<'a>(ranks: impl IntoIterator<Item = (u64, &'a str, f64)>) -> Option<Self> {
        let mut ranks: Vec<_> = ranks.into_iter().collect();
        ranks.sort_by(|one, other| one.2.total_cmp(&other.2));
        let (rank, host, seconds) = ranks.pop()?;
        let others_s = median(ranks.into_iter().map(|(_, _, seconds)| seconds))?;
        Some(Self { rank, host: host.to_owned(), seconds, others_s })
    }
}

impl StepRecord {
    /// Creates a step without figures.
    pub fn new(at: f64, step: u64) -> Self {
        Self { at, step, applied: true, ..Self::default() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
