use super::Reason;
use super::choice::Candidate;
use crate::device::{DeviceFacts, DeviceKind};
use crate::workload::Workload;
use crate::{Bytes, Provenance, Setting, Settings};

/// Batches prepared ahead: one being uploaded while one waits.
pub(super) const PREFETCH_DEPTH: u64 = 2;

/// More workers than this rarely help, and each holds a batch in host memory.
const MOST_WORKERS: u64 = 4;

/// Cores taken for granted where the host is not known.
const CORES_UNKNOWN: u64 = 8;

/// Largest live tensors of a forward pass that keeps nothing: input, output and two branches.
const LIVE_TENSORS: u64 = 4;

/// How much larger than the micro-batch an evaluation batch may be.
const EVAL_FACTORS: [u64; 2] = [4, 2];

pub(super) fn workers(device: &DeviceFacts) -> u64 {
    let cores = device.host_cores.unwrap_or(CORES_UNKNOWN);
    match device.kind {
        DeviceKind::Gpu => (cores / 2).clamp(1, MOST_WORKERS),
        DeviceKind::Cpu => (cores / 8).clamp(1, MOST_WORKERS),
    }
}

pub(super) fn workers_reason(device: &DeviceFacts) -> Reason {
    let why = match (device.kind, device.host_cores) {
        (DeviceKind::Gpu, Some(cores)) => format!("half of {cores} cores, at most {MOST_WORKERS}"),
        (DeviceKind::Gpu, None) => {
            format!("half of {CORES_UNKNOWN} cores, at most {MOST_WORKERS}; the host is not known at compile time")
        }
        (DeviceKind::Cpu, _) => "an eighth of the cores: the others train".to_owned(),
    };
    Reason { setting: Setting::NumWorkers, provenance: Provenance::Derived, why }
}

pub(super) fn prefetch_reason() -> Reason {
    Reason {
        setting: Setting::PrefetchDepth,
        provenance: Provenance::Derived,
        why: "one batch is uploaded while one waits".to_owned(),
    }
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
    Reason { setting: Setting::EvalBatchSize, provenance: Provenance::Derived, why }
}
