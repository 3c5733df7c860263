//! Power holds the clocks down.

use crate::recording::Throttle;

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::run_stats::GpuStats;
use crate::diagnose::words::percent;

/// Held down for so much of the time.
const OFTEN: f64 = 0.2;
/// A limit below so much of what the card was sold with was set by somebody.
const LOWERED: f64 = 0.95;
/// Clocks rise with this power of the watts: power goes with about the cube of the clock.
const CLOCK_BY_POWER: f64 = 1.0 / 3.0;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    input.stats.gpus.iter().find_map(|gpu| brake(input, gpu).or_else(|| cap(input, gpu)))
}

/// The limit is lower than it was sold with, and reached.
fn cap(input: &DiagnosisInput<'_>, gpu: &GpuStats<'_>) -> Option<Finding> {
    let held = gpu.throttled(&[Throttle::PowerCap]);
    let sold = f64::from(gpu.gpu.default_power_limit_mw?);
    let limit = gpu.mean(|sample| sample.power_limit_mw.map(f64::from))?;
    if held < OFTEN || limit >= LOWERED * sold {
        return None;
    }
    let drawn = gpu.mean(|sample| sample.power_mw.map(f64::from));
    let (clock, _) = gpu.clocks(&[Throttle::PowerCap]);
    let most = clock.zip(gpu.gpu.max_sm_clock_mhz).map_or(f64::INFINITY, |(clock, max)| f64::from(max) / clock);
    // Where it is not held down all the time the higher clock comes for that part of it.
    let faster = 1.0 + ((sold / limit).powf(CLOCK_BY_POWER).min(most) - 1.0) * held;
    let watts = |milliwatts: f64| format!("{:.0} W", milliwatts / 1e3);
    let headline =
        format!("a power limit of {} holds {} down: it was sold with {}", watts(limit), gpu.name(), watts(sold));
    let change = Change::new(format!("raise the limit to {}, if power and cooling allow it", watts(sold))).by(format!(
        "sudo nvidia-smi -i {} -pl {:.0}",
        gpu.gpu.gpu,
        sold / 1e3
    ));
    let how = format!("the device's part {faster:.2} times as fast: clocks go with the cube root of the power");
    let prediction = input.model.as_ref().and_then(|model| input.predict(model.with_faster_device(faster), how));
    let words = format!(
        "held down {} of the time{}, {}",
        percent(held),
        drawn.map_or_else(String::new, |drawn| format!(", drawing {}", watts(drawn))),
        input.over()
    );
    let mut finding = Finding::new(Kind::PowerCap, Severity::Warning, headline, change).with_evidence(
        words,
        [("throttled_share", held), ("power_limit_w", limit / 1e3), ("default_power_limit_w", sold / 1e3)],
    );
    finding.prediction = prediction;
    Some(finding)
}

/// The board slows down because power fails.
fn brake(input: &DiagnosisInput<'_>, gpu: &GpuStats<'_>) -> Option<Finding> {
    let by = [Throttle::PowerBrake, Throttle::Hardware];
    let held = gpu.throttled(&by);
    if held < OFTEN {
        return None;
    }
    let headline = format!("the hardware slows {} down for want of power", gpu.name());
    let change =
        Change::new("look at the power supply, its cables and the server's power budget: no setting mends this");
    let words = format!("held down {} of the time, {}", percent(held), input.over());
    let mut finding = Finding::new(Kind::PowerCap, Severity::Critical, headline, change)
        .with_evidence(words, [("throttled_share", held)]);
    finding.prediction = super::thermal::at_full_clock(input, gpu, &by, held);
    Some(finding)
}
