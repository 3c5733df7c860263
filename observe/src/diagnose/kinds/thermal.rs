//! Temperature holds the clocks down.

use crate::recording::Throttle;

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Severity};
use crate::diagnose::run_stats::GpuStats;
use crate::diagnose::words::percent;

/// Held down for so much of the time.
const OFTEN: f64 = 0.05;
/// Hot cards that are not held down reach so much of their highest clock.
const SUSTAINED: f64 = 0.9;

const BY: [Throttle; 2] = [Throttle::ThermalSoftware, Throttle::ThermalHardware];

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let held = |gpu: &&GpuStats<'_>| gpu.throttled(&BY) >= OFTEN;
    let gpu = input.stats.gpus.iter().find(held)?;
    let held = gpu.throttled(&BY);
    let prediction = at_full_clock(input, gpu, &BY, held);
    let by_gain =
        prediction.as_ref().map_or(Severity::Warning, |prediction| Severity::of_gain(prediction.then / prediction.now));
    let headline = format!("{} is too hot: its clocks are held down {} of the time", gpu.name(), percent(held));
    let change = Change::new(
        "cool it: fans, dust, airflow between cards, the room; until then a lower power limit keeps clocks steadier",
    );
    let (clock, _) = gpu.clocks(&BY);
    let hottest = gpu.samples.iter().filter_map(|sample| sample.temperature_c).max();
    let at = hottest.map_or_else(String::new, |hottest| format!(", at up to {hottest} degrees Celsius"));
    let of = clock.zip(gpu.gpu.max_sm_clock_mhz);
    let of = of.map_or_else(String::new, |(clock, max)| format!(", at {clock:.0} of {max} MHz"));
    let words = format!("held down {} of the time, {}{at}{of}", percent(held), input.over());
    let mut finding = Finding::new(Kind::ThermalThrottle, by_gain.min(Severity::Warning), headline, change)
        .with_evidence(
            words,
            [
                ("throttled_share", held),
                ("temperature_c", hottest.map_or(f64::NAN, f64::from)),
                ("sm_clock_mhz", clock.unwrap_or(f64::NAN)),
            ],
        );
    finding.prediction = prediction;
    Some(finding)
}

/// The step at the clock that the GPU has when nothing holds it down; else at what such cards sustain.
pub(super) fn at_full_clock(
    input: &DiagnosisInput<'_>,
    gpu: &GpuStats<'_>,
    by: &[Throttle],
    held: f64,
) -> Option<Prediction> {
    let model = input.model.as_ref()?;
    let (low, free) = gpu.clocks(by);
    let sustained = gpu.gpu.max_sm_clock_mhz.map(|max| SUSTAINED * f64::from(max));
    let (low, full) = (low?, free.or(sustained)?);
    // The device did its work at two clocks; all of it is done at the higher one.
    let faster = full / (held * low + (1.0 - held) * full);
    let how = format!(
        "the device's part {:.2} times as fast: {full:.0} MHz in place of {low:.0} MHz for {} of the time",
        faster.max(1.0),
        percent(held)
    );
    input.predict(model.with_faster_device(faster.max(1.0)), how)
}
