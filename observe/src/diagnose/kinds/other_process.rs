//! Memory of the GPU that another process uses.

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity};
use crate::diagnose::run_stats::GpuStats;
use crate::diagnose::words::{bytes, rate};
use crate::stats::median;

/// Part of the memory that is worth a finding: a desktop takes less.
const MUCH: f64 = 0.03;
/// Bytes of a CUDA context and of libraries beside the pools.
const BESIDE_POOLS: f64 = 1.5 * 1_073_741_824.0;

/// Memory of other processes, and the evidence for it.
struct OtherMemory {
    bytes: f64,
    words: String,
    pids: Vec<u32>,
}

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let others = |gpu: &GpuStats<'_>| {
        let total = gpu.gpu.memory_total_bytes? as f64;
        if is_alone(input, gpu) {
            return None;
        }
        let is_much = |other: &OtherMemory| other.bytes >= MUCH * total;
        let mut other = listed(input, gpu).filter(is_much);
        // Of unified memory, programs without the GPU use a part, too.
        if !gpu.has_unified_memory() {
            other = other.or_else(|| in_use_before(gpu).filter(is_much));
            other = other.or_else(|| unaccounted(input, gpu).filter(is_much));
        }
        let other = other?;
        Some((gpu.name(), other, total))
    };
    let (name, other, total) = input.stats.gpus.iter().find_map(others)?;
    let headline = format!("another process uses {} of {name}", bytes(other.bytes));
    let change = match other.pids.as_slice() {
        [] => Change::new("end it, or train on another GPU; `nvidia-smi` on the host lists the processes"),
        [pid, ..] => Change::new("end it if it is yours, or train on another GPU")
            .by(format!("ps -o pid,user,etime,args -p {pid}")),
    };
    let finding = |severity| {
        Finding::new(Kind::OtherProcess, severity, headline, change).with_evidence(
            format!("{}: {} of {}", other.words, bytes(other.bytes), bytes(total)),
            [("other_bytes", other.bytes), ("memory_total_bytes", total)],
        )
    };
    let Some((batch, prediction)) = regained(input, other.bytes) else { return Some(finding(Severity::Warning)) };
    let finding = finding(prediction.severity().min(Severity::Warning)).with_prediction(prediction);
    let Some(batch) = batch else { return Some(finding) };
    let now = input.model.as_ref()?.parts.micro_batch;
    let words = format!("for lack of memory, micro-batches have {now:.0} samples and not {batch:.0}");
    Some(finding.with_evidence(words, [("regained_micro_batch", batch)]))
}

/// Returns the larger micro-batch that would fit, if there is one, and the speed with it.
fn regained(input: &DiagnosisInput<'_>, other_bytes: f64) -> Option<(Option<f64>, Prediction)> {
    let (model, run, curve) = (input.model.as_ref()?, input.stats.run?, input.curve()?);
    let budget = run.memory_budget_bytes? as f64;
    let now = model.parts.micro_batch;
    let most = run.global_batch.map_or(model.share_of_rank(), |global| global as f64 / run.world_size.max(1) as f64);
    let most = if run.batch_statistics { now } else { most };
    let then = curve.smallest_near_best(most as u64, |point| {
        !point.in_no_piece && point.memory_bytes as f64 <= budget + other_bytes
    })?;
    let is_larger = then.batch as f64 > now && then.memory_bytes as f64 > budget;
    if !is_larger {
        let how =
            format!("micro-batches stay at {now:.0}, which fit; the other process's use of the SMs is not recorded");
        return Some((None, Prediction::new(Quantity::SamplesPerS, model.rate_now(), model.rate_now(), how)));
    }
    let step = model.regrouped(&curve, then.batch as f64);
    let how = format!(
        "with {} more, micro-batches of {} fit, of which the planner expects {} a rank in place of {}",
        bytes(other_bytes),
        then.batch,
        rate(then.samples_per_s),
        rate(1.0 / curve.seconds(now))
    );
    Some((Some(then.batch as f64), input.predict(step, how)?))
}

/// Returns whether the driver lists the run's own process and no other.
fn is_alone(input: &DiagnosisInput<'_>, gpu: &GpuStats<'_>) -> bool {
    let listed = gpu.processes();
    listed.is_some_and(|all| !all.is_empty() && all.iter().all(|process| Some(process.pid) == input.stats.pid))
}

/// Memory of the processes that the driver lists beside the run's own.
fn listed(input: &DiagnosisInput<'_>, gpu: &GpuStats<'_>) -> Option<OtherMemory> {
    let processes = gpu.processes()?;
    let pid = input.stats.pid;
    // In a container, the driver lists the host's process IDs: the run's own is one that was not there before.
    let was_before = |pid: u32| {
        let before = gpu.before.iter().filter_map(|sample| sample.processes.as_ref());
        before.flatten().any(|process| process.pid == pid)
    };
    let own = processes
        .iter()
        .find(|process| Some(process.pid) == pid)
        .or_else(|| processes.iter().find(|process| !gpu.before.is_empty() && !was_before(process.pid)))
        .or_else(|| processes.iter().min_by_key(|process| distance(input, process.memory_bytes)));
    let others: Vec<_> = processes.iter().filter(|process| Some(process.pid) != own.map(|own| own.pid)).collect();
    let largest = others.iter().max_by_key(|process| process.memory_bytes)?;
    let name = largest.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    Some(OtherMemory {
        bytes: others.iter().filter_map(|process| process.memory_bytes).map(|bytes| bytes as f64).sum(),
        words: format!("process {}{name}", largest.pid),
        pids: others.iter().map(|process| process.pid).collect(),
    })
}

/// Difference in bytes between a process's memory and the run's pools.
fn distance(input: &DiagnosisInput<'_>, bytes: Option<u64>) -> u64 {
    input.stats.reserved().map_or(u64::MAX - bytes.unwrap_or(0), |own| bytes.unwrap_or(0).abs_diff(own))
}

/// Memory that was in use before the run began, and still is.
fn in_use_before(gpu: &GpuStats<'_>) -> Option<OtherMemory> {
    let before = median(gpu.before.iter().filter_map(|sample| sample.memory_used_bytes).map(|used| used as f64))?;
    Some(OtherMemory { bytes: before, words: "in use before the run began".to_owned(), pids: Vec::new() })
}

/// Memory in use that the run's pools do not explain. Pools of other streams are at most as large.
fn unaccounted(input: &DiagnosisInput<'_>, gpu: &GpuStats<'_>) -> Option<OtherMemory> {
    let used = median(gpu.samples.iter().filter_map(|sample| sample.memory_used_bytes).map(|used| used as f64))?;
    let own = input.stats.reserved()? as f64;
    let bytes = if used > 2.0 * own + BESIDE_POOLS { used - own - BESIDE_POOLS } else { 0.0 };
    Some(OtherMemory { bytes, words: "in use beside the run's pools".to_owned(), pids: Vec::new() })
}
