//! Memory that grows from step to step.

use super::{Change, Finding, Kind, Prediction, Quantity, Seen, Severity};
use crate::diagnose::picture::GpuSeen;
use crate::diagnose::picture::series::{Trend, trend};
use crate::diagnose::words::{bytes, seconds, whole};

/// Growth of less is nothing to speak of.
const LEAST_GROWTH: f64 = 1_048_576.0;
/// A run that ends within this time will not be left to itself.
const SOON_S: f64 = 86_400.0;
/// One that lasts longer than this has other worries.
const LATE_S: f64 = 30.0 * 86_400.0;
/// Without steps a trend has to be watched for so long.
const LEAST_SPAN_S: f64 = 30.0;

/// Memory of the device.
pub(super) fn of_device(seen: &Seen<'_>) -> Option<Finding> {
    by_step(seen).or_else(|| by_time(seen))
}

fn by_step(seen: &Seen<'_>) -> Option<Finding> {
    let steps = seen.picture.steps.as_ref().ok()?;
    let series = |of: fn(&crate::diagnose::picture::Memory) -> Option<u64>| -> Vec<(f64, f64)> {
        steps.memory.iter().filter_map(|memory| Some((memory.step as f64, of(memory)? as f64))).collect()
    };
    let (used, reserved) = (series(|memory| memory.in_use), series(|memory| memory.reserved));
    let grows = |points: &[(f64, f64)]| trend(points).filter(|trend| trend.growth >= LEAST_GROWTH);
    // Pools that grow while what is in use does not are fragmented.
    let (trend, series) = if used.is_empty() { (grows(&reserved)?, &reserved) } else { (grows(&used)?, &used) };
    let (first, last) = (series.first()?, series.last()?);
    let held = reserved.last().map_or(last.1, |held| held.1);
    let usual = steps.mean.seconds;
    let headline = format!("memory leaks: {} more in use after each step", bytes(trend.slope));
    let words = format!(
        "in use after a step: {} at step {}, {} at step {}, without an end in sight",
        bytes(first.1),
        whole(first.0),
        bytes(last.1),
        whole(last.0)
    );
    let room = room(seen, held);
    let left = room.map(|(room, _)| (room / trend.slope).max(0.0));
    let finding = Finding::new(Kind::MemoryLeak, severity(left.map(|left| left * usual)), headline, keep_nothing())
        .seen(words, [("bytes_per_step", trend.slope), ("in_use_first_bytes", first.1), ("in_use_last_bytes", last.1)]);
    let Some(((room, of), left)) = room.zip(left) else { return Some(finding) };
    let at = last.0 + left;
    let how = format!("{} left {of} at step {}, divided by {} a step", bytes(room), whole(last.0), bytes(trend.slope));
    let finding = finding.seen(
        format!("out of memory around step {}, in {}", whole(at), seconds(left * usual)),
        [("seconds_left", left * usual)],
    );
    Some(finding.predicting(Prediction::new(Quantity::FailsAtStep, last.0, at, how)))
}

/// Memory that can still be had, and of what. The driver knows best; what the run may take leaves some alone.
fn room(seen: &Seen<'_>, held: f64) -> Option<(f64, &'static str)> {
    let of_gpu = seen.picture.gpus.iter().filter_map(|gpu| {
        let used = gpu.samples.iter().rev().find_map(|sample| sample.memory_used_bytes)?;
        Some(gpu.gpu.memory_total_bytes? as f64 - used as f64)
    });
    let free = of_gpu.reduce(f64::min).map(|free| (free, "on the GPU"));
    free.or_else(|| {
        let budget = seen.picture.run?.memory_budget_bytes? as f64;
        Some((budget - held, "of what the run may take"))
    })
}

/// Without steps: memory that the driver sees.
fn by_time(seen: &Seen<'_>) -> Option<Finding> {
    if seen.picture.steps.is_ok() {
        return None;
    }
    let grows = |gpu: &GpuSeen<'_>| {
        let of = |sample: &&crate::recording::GpuSample| Some((sample.at, sample.memory_used_bytes? as f64));
        let points: Vec<_> = gpu.samples.iter().filter_map(of).collect();
        rise(&points)
            .map(|(trend, last)| (gpu.name(), trend, gpu.gpu.memory_total_bytes.map(|total| total as f64 - last)))
    };
    let (name, trend, room) = seen.picture.gpus.iter().find_map(grows)?;
    let headline = format!("memory of {name} grows: {} in a second", bytes(trend.slope));
    Some(over_time(Kind::MemoryLeak, headline, trend, room))
}

/// Memory of the program on the host.
pub(super) fn of_host(seen: &Seen<'_>) -> Option<Finding> {
    let points =
        seen.picture.host.iter().filter_map(|sample| Some((sample.at, sample.process.as_ref()?.memory_bytes? as f64)));
    let (trend, _) = rise(&points.collect::<Vec<_>>())?;
    let total = seen.picture.start.map(|start| start.memory_bytes as f64).filter(|total| *total > 0.0);
    let used = seen.picture.host.iter().rev().find_map(|sample| sample.memory_used_bytes);
    let room = total.zip(used).map(|(total, used)| total - used as f64);
    let headline = format!("the program's memory on the host grows: {} in a second", bytes(trend.slope));
    Some(over_time(Kind::HostMemoryLeak, headline, trend, room))
}

fn rise(points: &[(f64, f64)]) -> Option<(Trend, f64)> {
    let (first, last) = (points.first()?, points.last()?);
    let trend = trend(points).filter(|trend| trend.growth >= LEAST_GROWTH && last.0 - first.0 >= LEAST_SPAN_S)?;
    Some((trend, last.1))
}

fn over_time(kind: Kind, headline: String, trend: Trend, room: Option<f64>) -> Finding {
    let words = format!("{} more within {}, steadily", bytes(trend.growth), seconds(trend.growth / trend.slope));
    let left = room.map(|room| (room / trend.slope).max(0.0));
    let finding = Finding::new(kind, severity(left), headline, keep_nothing())
        .seen(words, [("bytes_per_s", trend.slope), ("growth_bytes", trend.growth)]);
    let Some((room, left)) = room.zip(left) else { return finding };
    let how = format!("{} left, divided by {} a second", bytes(room), bytes(trend.slope));
    finding.predicting(Prediction::new(Quantity::FailsAfterS, 0.0, left, how))
}

fn severity(seconds_left: Option<f64>) -> Severity {
    match seconds_left {
        Some(left) if left > LATE_S => Severity::Hint,
        Some(left) if left > SOON_S => Severity::Warning,
        _ => Severity::Critical,
    }
}

fn keep_nothing() -> Change {
    Change::of(
        "keep no tensors from step to step: sums of losses, outputs and lists of metrics hold their whole graph; keep \
         numbers (`into_scalar` every hundredth step), or `detach` what is kept",
    )
}
