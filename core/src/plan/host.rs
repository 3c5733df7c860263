//! Settings of the host: loader workers, prefetched batches, evaluation batches, and a CPU's threads.

use super::candidates::Candidate;
use super::prefetch::PREFETCH_DEPTH;
use super::reason::Reason;
use super::{speed_interval, with_interval};
use crate::device::{DeviceFacts, DeviceKind};
use crate::workload::Workload;
use crate::{Bytes, Goal, Provenance, Setting, Settings, three_digits};

/// More workers than this rarely help, and each holds a batch in host memory.
const MOST_WORKERS: u64 = 4;

/// The same where it is known how long a sample takes.
const MOST_NEEDED_WORKERS: u64 = 64;

/// Ratio of the batches that workers can deliver to those that the device takes. Above 1, as single batches may be slow.
const WORKER_MARGIN: f64 = 1.25;

/// Cores of a host that is not known.
pub const ASSUMED_CORES: u64 = 8;

/// Largest live tensors of a forward pass that keeps nothing: input, output and two branches.
const LIVE_TENSORS: u64 = 4;

/// Largest evaluation batch, as a multiple of the micro-batch.
const EVAL_FACTORS: [u64; 2] = [4, 2];

/// Loader workers, and what to tell the user of them.
pub(super) struct Workers {
    pub count: u64,
    pub reason: Reason,
    pub advice: Option<String>,
}

/// Workers for a device that takes `samples_per_s`.
pub(super) fn workers(
    device: &DeviceFacts,
    workload: &Workload,
    (samples_per_s, of_speed): (f64, Provenance),
) -> Workers {
    let known = device.host_cores;
    let cores = known.unwrap_or(ASSUMED_CORES);
    // A GPU leaves all cores but the one that launches kernels; a CPU trains with most of them.
    let spare = match device.kind {
        DeviceKind::Gpu => cores.saturating_sub(1),
        DeviceKind::Cpu => cores / 4,
    }
    .max(1);
    let unknown = if known.is_none() { "; the host is not known at compile time" } else { "" };
    let Some(host_ms) = workload.sample.host_ms else {
        let (count, why) = match device.kind {
            DeviceKind::Gpu => {
                ((cores / 2).clamp(1, MOST_WORKERS), format!("half of {cores} cores, at most {MOST_WORKERS}{unknown}"))
            }
            DeviceKind::Cpu => {
                ((cores / 8).clamp(1, MOST_WORKERS), "an eighth of the cores: the others train".to_owned())
            }
        };
        return Workers { count, reason: because(Setting::NumWorkers, Provenance::Derived, why), advice: None };
    };
    let is_measured = workload.measured.host_ms_per_sample == Some(host_ms);
    let provenance = if is_measured { Provenance::Measured } else { Provenance::Declared };
    let busy = samples_per_s * host_ms / 1e3;
    let needed = ((busy * WORKER_MARGIN).ceil() as u64).max(1);
    let count = needed.min(spare).min(MOST_NEEDED_WORKERS);
    let speed = with_interval(samples_per_s, speed_interval(device, samples_per_s, of_speed));
    let why = format!("{speed} samples/s at {host_ms} ms each keep {busy:.1} cores busy{unknown}");
    let fed = count as f64 * 1e3 / host_ms;
    let advice = (fed < samples_per_s).then(|| {
        format!(
            "the loader limits training: {count} workers at {host_ms} ms a sample prepare {} samples/s, and the \
             device is predicted to take {speed}; prepare samples once and keep them, or use a host with more cores",
            three_digits(fed)
        )
    });
    Workers { count, reason: because(Setting::NumWorkers, provenance, why), advice }
}

pub(super) fn prefetch_reason(workload: &Workload, goal: &Goal, settings: &Settings) -> Reason {
    let why = if settings.prefetch_depth == PREFETCH_DEPTH {
        "one batch is uploaded while one waits".to_owned()
    } else {
        let bytes = workload.sample.input.unwrap_or_default().times(settings.batch_size);
        format!("a batch has {bytes}, and prepared ones may take {}", Bytes::from_mib(goal.prefetch_mib))
    };
    because(Setting::PrefetchDepth, Provenance::Derived, why)
}

/// The largest multiple of the micro-batch whose live tensors take no more than training's kept ones.
pub(super) fn eval_batch(best: &Candidate, workload: &Workload) -> u64 {
    let live = workload.sample.largest_tensor.map(|tensor| tensor.times(LIVE_TENSORS));
    let fits = |factor: &u64| {
        let needed = live.map(|live| live.times(best.batch).times(*factor));
        needed.is_some_and(|needed: Bytes| needed <= best.memory.activations)
    };
    best.batch * EVAL_FACTORS.iter().find(|factor| fits(factor)).unwrap_or(&1)
}

pub(super) fn eval_reason(settings: &Settings) -> Reason {
    let factor = settings.eval_batch_size / settings.batch_size;
    let why = match factor {
        1 => "the micro-batch: nothing is known of the largest tensor, or it fills the memory".to_owned(),
        _ => format!("{factor} x the micro-batch: evaluation keeps nothing for a backward pass"),
    };
    because(Setting::EvalBatchSize, Provenance::Derived, why)
}

/// Threads that train on a CPU: all cores but those of the workers, where there are enough; `None` for a GPU.
pub(super) fn cpu_threads(device: &DeviceFacts, settings: &Settings) -> Option<u64> {
    let cores = device.host_cores.filter(|_| device.kind == DeviceKind::Cpu)?;
    Some(if cores > 2 * settings.num_workers { cores - settings.num_workers } else { cores })
}

fn because(setting: Setting, provenance: Provenance, why: String) -> Reason {
    Reason { setting, provenance, why }
}
