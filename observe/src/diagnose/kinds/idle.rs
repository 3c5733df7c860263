//! A GPU that idles, where the program recorded nothing of its steps.

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::words::percent;
use crate::stats::mean;

/// Busier than this it is not idle.
const BUSY: f64 = 0.7;
/// Less than this is mostly idle.
const MOSTLY_IDLE: f64 = 0.4;
/// A thread that is as busy as this is what everything waits for, in percent.
const FULL_THREAD: f64 = 90.0;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let stats = &input.stats;
    if stats.steps.is_ok() || stats.run.is_some_and(|run| !run.device.is_gpu) {
        return None;
    }
    let busy = stats.busy().filter(|busy| *busy < BUSY)?;
    let thread = mean(stats.host.iter().filter_map(|sample| sample.process.as_ref()?.busiest_thread_percent));
    let cores = stats.busy_cores().zip(stats.cores());
    let why = match (thread, cores) {
        (_, Some((busy, cores))) if busy >= 0.9 * cores => {
            "all processors are busy: the loader, most likely; prepare samples once and keep them"
        }
        (Some(thread), _) if thread >= FULL_THREAD => {
            "one thread is busy all the time: it launches kernels, or prepares batches without workers; larger batches, more \
             workers"
        }
        (Some(_), _) => "no thread is busy: something waits, for the storage, a lock or the device",
        _ => "nothing says what it waits for",
    };
    let severity = if busy < MOSTLY_IDLE { Severity::Critical } else { Severity::Warning };
    let headline = format!("the GPU idles {} of the time", percent(1.0 - busy));
    let change = Change::new(format!(
        "{why}; record the program's steps to know: with `gpu-tuned`, run it with GPU_TUNED_RECORD=run.jsonl"
    ));
    let mut finding = Finding::new(Kind::GpuIdle, severity, headline, change)
        .with_evidence(format!("busy {} of the time, {}", percent(busy), input.over()), [("gpu_busy_share", busy)]);
    if let Some((busy, cores)) = cores {
        let words = format!("the program keeps {busy:.1} of {cores:.0} processors busy");
        finding = finding.with_evidence(words, [("busy_cores", busy), ("cores", cores)]);
    }
    if let Some(thread) = thread {
        let words = format!("its busiest thread works {} of the time", percent(thread / 100.0));
        finding = finding.with_evidence(words, [("busiest_thread_share", thread / 100.0)]);
    }
    Some(finding)
}
