//! Memory that grows, pools that reserve much more than the step needs, and memory of other processes.

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity};
use crate::diagnose::finding::{bytes, rate, seconds, times, whole};
use crate::diagnose::run_stats::GpuStats;
use crate::leak::Growth;
use crate::recording::{GpuSample, StepRecord};
use crate::stats::median;

/// Seconds until memory runs out below which a leak is critical: within a day nobody may look at the run.
const SOON_S: f64 = 86_400.0;
/// Seconds until memory runs out above which a leak is a hint: few runs last for a month.
const LATE_S: f64 = 30.0 * 86_400.0;
/// Seconds that growth is sampled for, at least, where no steps are recorded.
const MIN_SPAN_S: f64 = 30.0;

pub(super) fn device_leak(input: &DiagnosisInput<'_>) -> Option<Finding> {
    by_step(input).or_else(|| by_time(input))
}

fn by_step(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let steps = input.stats.steps.as_ref().ok()?;
    let series = |of: fn(&StepRecord) -> Option<u64>| -> Vec<(f64, f64)> {
        steps.settled.iter().filter_map(|step| Some((step.step as f64, of(step)? as f64))).collect()
    };
    let (used, reserved) = (series(|step| step.in_use_bytes), series(|step| step.reserved_bytes));
    // Pools that grow while the memory in use does not are fragmented.
    let series = if used.is_empty() { &reserved } else { &used };
    let (first, last) = (series.first()?, series.last()?);
    let room = room(input, reserved.last().map_or(last.1, |reserved| reserved.1));
    let slope = Growth::leak(series, room.map(|(room, _)| room))?.slope.value;
    let words = format!(
        "in use after a step: {} at step {}, {} at step {}, still growing",
        bytes(first.1),
        whole(first.0),
        bytes(last.1),
        whole(last.0)
    );
    let left = room.map(|(room, _)| (room / slope).max(0.0));
    let left_s = left.map(|left| left * steps.mean.seconds);
    let headline = format!("memory leaks: {} more in use after each step", bytes(slope));
    let finding = Finding::new(Kind::MemoryLeak, severity(left_s), headline, keep_nothing()).with_evidence(
        words,
        [("bytes_per_step", slope), ("in_use_first_bytes", first.1), ("in_use_last_bytes", last.1)],
    );
    let Some((((room, of), left), left_s)) = room.zip(left).zip(left_s) else { return Some(finding) };
    let at = last.0 + left;
    let how = format!("{} left {of} at step {}, divided by {} a step", bytes(room), whole(last.0), bytes(slope));
    let finding = finding.with_evidence(
        format!("out of memory around step {}, in {}", whole(at), seconds(left_s)),
        [("seconds_left", left_s)],
    );
    Some(finding.with_prediction(Prediction::new(Quantity::FailsAtStep, last.0, at, how)))
}

/// Bytes that are left, and of what: of the GPU's memory where the driver reports it, else of the run's budget.
fn room(input: &DiagnosisInput<'_>, reserved: f64) -> Option<(f64, &'static str)> {
    let of_gpu = input.stats.gpus.iter().filter_map(|gpu| {
        let used = gpu.samples.iter().rev().find_map(|sample| sample.memory_used_bytes)?;
        Some(gpu.gpu.memory_total_bytes? as f64 - used as f64)
    });
    let free = of_gpu.reduce(f64::min).map(|free| (free, "on the GPU"));
    free.or_else(|| {
        let budget = input.stats.run?.memory_budget_bytes? as f64;
        Some((budget - reserved, "of the run's budget"))
    })
}

/// Memory of the device as the driver reports it, where no steps are recorded.
fn by_time(input: &DiagnosisInput<'_>) -> Option<Finding> {
    if input.stats.steps.is_ok() {
        return None;
    }
    let grows = |gpu: &GpuStats<'_>| {
        if gpu.has_unified_memory() {
            // Its growth is that of all programs of the host.
            return None;
        }
        let of = |sample: &&GpuSample| Some((sample.at, sample.memory_used_bytes? as f64));
        let points: Vec<_> = gpu.samples.iter().filter_map(of).collect();
        let left = gpu.gpu.memory_total_bytes.zip(points.last()).map(|(total, last)| total as f64 - last.1);
        Some((gpu.name(), leak_over_time(&points, left)?, left))
    };
    let (name, growth, left) = input.stats.gpus.iter().find_map(grows)?;
    let headline = format!("memory of {name} grows: {} in a second", bytes(growth.slope.value));
    Some(over_time(Kind::MemoryLeak, headline, growth, left))
}

pub(super) fn host_leak(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let host = || input.stats.host.iter();
    let points = host().filter_map(|sample| Some((sample.at, sample.process.as_ref()?.memory_bytes? as f64)));
    let total = input.stats.start.map(|start| start.memory_bytes as f64).filter(|total| *total > 0.0);
    let used = host().rev().find_map(|sample| sample.memory_used_bytes);
    let left = total.zip(used).map(|(total, used)| total - used as f64);
    let growth = leak_over_time(&points.collect::<Vec<_>>(), left)?;
    let headline = format!("the program's memory on the host grows: {} in a second", bytes(growth.slope.value));
    Some(over_time(Kind::HostMemoryLeak, headline, growth, left))
}

fn leak_over_time(points: &[(f64, f64)], left: Option<f64>) -> Option<Growth> {
    let span = points.last()?.0 - points.first()?.0;
    Growth::leak(points, left).filter(|_| span >= MIN_SPAN_S)
}

fn over_time(kind: Kind, headline: String, growth: Growth, left_bytes: Option<f64>) -> Finding {
    let (slope, added) = (growth.slope.value, growth.added());
    let words = format!("{} more within {}, steadily", bytes(added), seconds(added / slope));
    let left = left_bytes.map(|bytes| (bytes / slope).max(0.0));
    let finding = Finding::new(kind, severity(left), headline, keep_nothing())
        .with_evidence(words, [("bytes_per_s", slope), ("growth_bytes", added)]);
    let Some((left_bytes, left)) = left_bytes.zip(left) else { return finding };
    let how = format!("{} left, divided by {} a second", bytes(left_bytes), bytes(slope));
    finding.with_prediction(Prediction::new(Quantity::FailsAfterS, 0.0, left, how))
}

fn severity(seconds_left: Option<f64>) -> Severity {
    match seconds_left {
        Some(left) if left > LATE_S => Severity::Hint,
        Some(left) if left > SOON_S => Severity::Warning,
        _ => Severity::Critical,
    }
}

fn keep_nothing() -> Change {
    Change::new(
        "keep no tensors from step to step: sums of losses, outputs and lists of metrics hold their whole graph; keep \
         numbers (`into_scalar` every hundredth step), or `detach` what is kept",
    )
}

/// Reserved bytes over the planned ones, or over those at first, that are worth a finding.
const FRAGMENTED: f64 = 1.5;
/// Excess in bytes that is worth a finding: less is the usual cost of pools.
const MIN_EXCESS: f64 = 256.0 * 1_048_576.0;
/// Part of the budget above which other programs run short.
const NEARLY_ALL: f64 = 0.9;

pub(super) fn fragmentation(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (steps, run) = (input.stats.steps.as_ref().ok()?, input.stats.run?);
    let used: Vec<_> =
        steps.settled.iter().filter_map(|step| Some((step.step as f64, step.in_use_bytes? as f64))).collect();
    // Memory in use that grows is a leak.
    if Growth::measure(&used).is_some_and(|growth| growth.added() >= MIN_EXCESS / 4.0) {
        return None;
    }
    let reserved: Vec<f64> = steps.settled.iter().filter_map(|step| Some(step.reserved_bytes? as f64)).collect();
    let last = *reserved.last()?;
    let first = median(reserved.iter().take(reserved.len().div_ceil(10)).copied())?;
    let planned = run.memory_planned_bytes.map(|planned| planned as f64);
    let is_above = |base: f64| last >= FRAGMENTED * base && last - base >= MIN_EXCESS;
    let (base, of_what) = match planned.filter(|planned| is_above(*planned)) {
        Some(planned) => (planned, "planned"),
        None if is_above(first) => (first, "reserved at first"),
        None => return None,
    };
    let budget = run.memory_budget_bytes.map(|budget| budget as f64);
    let severity =
        if budget.is_some_and(|budget| last >= NEARLY_ALL * budget) { Severity::Warning } else { Severity::Hint };
    let headline = format!("memory is fragmented: the pools reserve {} the memory {of_what}", times(last / base));
    let change = Change::new(
        "give all batches the same shape (drop the last, or pad sequences to few lengths), and call `memory_cleanup` where \
         shapes change for good, such as after validation",
    );
    let words = format!("the pools reserve {}, and {} were {of_what}, {}", bytes(last), bytes(base), input.range());
    let how = format!("the memory {of_what}, since the memory in use does not grow");
    let finding = Finding::new(Kind::Fragmentation, severity, headline, change);
    Some(
        finding
            .with_evidence(words, [("reserved_bytes", last), ("expected_bytes", base)])
            .with_prediction(Prediction::new(Quantity::MemoryBytes, last, base, how)),
    )
}

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

pub(super) fn other_process(input: &DiagnosisInput<'_>) -> Option<Finding> {
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
