//! GPUs with little to do: one that idles for reasons that are not recorded, and one that the model does not fill.

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity};
use crate::diagnose::words::percent;
use crate::stats::mean;

/// Part of the time in which a GPU that does not idle is busy.
const BUSY: f64 = 0.7;
/// Part of the time in which a GPU that mostly idles is busy.
const MOSTLY_IDLE: f64 = 0.4;
/// CPU time in percent of a thread that all else waits for.
const FULL_THREAD: f64 = 90.0;
/// Part of the cores that are busy when all are.
const ALL_CORES: f64 = 0.9;
/// SM activity below which a GPU is mostly empty.
const MOSTLY_EMPTY: f64 = 0.35;
/// Power over the limit below which a GPU is mostly empty while kernels run.
const LITTLE_POWER: f64 = 0.4;
/// Part of the time in which kernels run, for the power to count.
const RUNS: f64 = 0.8;

/// A GPU that idles, where the program recorded no steps.
pub(super) fn idle(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let stats = &input.stats;
    if stats.steps.is_ok() || stats.run.is_some_and(|run| !run.device.is_gpu) {
        return None;
    }
    let busy = stats.busy().filter(|busy| *busy < BUSY)?;
    let thread = mean(stats.host.iter().filter_map(|sample| sample.process.as_ref()?.busiest_thread_percent));
    let cores = stats.busy_cores().zip(stats.cores());
    let why = match (thread, cores) {
        (_, Some((busy, cores))) if busy >= ALL_CORES * cores => {
            "all CPU cores are busy, most likely with the loader: prepare samples once and keep them"
        }
        (Some(thread), _) if thread >= FULL_THREAD => {
            "one thread is busy all the time: it launches kernels, or prepares batches without workers; try larger batches, \
             or more workers"
        }
        (Some(_), _) => "no thread is busy: the program waits for storage, a lock or the device",
        _ => "the recording does not show what the program waits for",
    };
    let severity = if busy < MOSTLY_IDLE { Severity::Critical } else { Severity::Warning };
    let headline = format!("the GPU idles {} of the time", percent(1.0 - busy));
    let change = Change::new(format!(
        "{why}; record the program's steps to find out: with `gpu-tuned`, run it with GPU_TUNED_RECORD=run.jsonl"
    ));
    let mut finding = Finding::new(Kind::GpuIdle, severity, headline, change)
        .with_evidence(format!("busy {} of the time, {}", percent(busy), input.range()), [("gpu_busy_share", busy)]);
    if let Some((busy, cores)) = cores {
        let words = format!("the program keeps {busy:.1} of {cores:.0} CPU cores busy");
        finding = finding.with_evidence(words, [("busy_cores", busy), ("cores", cores)]);
    }
    if let Some(thread) = thread {
        let words = format!("its busiest thread works {} of the time", percent(thread / 100.0));
        finding = finding.with_evidence(words, [("busiest_thread_share", thread / 100.0)]);
    }
    Some(finding)
}

/// Work that does not fill the GPU.
pub(super) fn model_too_small(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref().filter(|_| input.stats.is_on_gpu())?;
    let busy = input.stats.busy()?;
    let (name, share, most, of_what) = if let Some(activity) = input.stats.sm_activity() {
        ("sm_activity_share", activity, MOSTLY_EMPTY, "of its SMs work")
    } else {
        let power = power_share(input).filter(|_| busy >= RUNS)?;
        ("power_share", power, LITTLE_POWER, "of its power is drawn while kernels run")
    };
    if share >= most {
        return None;
    }
    let headline = format!("the model is too small for this GPU: {} {of_what}", percent(share));
    let room = (0.8 / share).floor().clamp(1.0, 16.0);
    let change = Change::new(
        "nothing is wrong; a larger model (wider, deeper, longer sequences, larger patches) or several runs side by side \
         would take little more time",
    );
    let how =
        format!("about {room:.0} times the work in each kernel fits beside the present work, at about the same speed");
    let prediction = Prediction::new(Quantity::SamplesPerS, model.rate_now(), model.rate_now(), how);
    let words =
        format!("kernels run {} of the time, and {} {of_what}, {}", percent(busy), percent(share), input.range());
    let finding = Finding::new(Kind::ModelTooSmall, Severity::Hint, headline, change);
    let figures = [("gpu_busy_share", busy), (name, share), ("room_times", room)];
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

fn power_share(input: &DiagnosisInput<'_>) -> Option<f64> {
    let gpu = input.stats.gpus.first()?;
    gpu.mean(|sample| Some(f64::from(sample.power_mw?) / f64::from(sample.power_limit_mw?.max(1))))
}
