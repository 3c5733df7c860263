//! The time of an optimizer step, term by term.

use serde::Serialize;

use super::Asked;
use crate::measured::Mode;
use crate::plan::calibration;
use crate::plan::candidates::Candidate;
use crate::plan::time::{MeasuredTime, StepTime};
use crate::{Provenance, grouped};

/// A part of the predicted time of an optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeTerm {
    /// Name of the term.
    pub name: &'static str,
    /// Formula of the seconds.
    pub formula: String,
    /// Seconds of one optimizer step on one rank.
    pub seconds: f64,
    /// Provenance of the figures.
    pub provenance: Provenance,
}

/// Returns the terms that add up to a step of `samples` on one rank.
pub(super) fn terms(asked: &Asked<'_>, candidate: &Candidate, samples: u64) -> Vec<TimeTerm> {
    let mode = candidate.mode;
    let step = StepTime::new(asked.device, asked.workload, mode);
    match &step.measured {
        Some(measured) => by_measurements(&step, measured, mode, candidate, samples),
        None => by_rates(asked, &step, mode, candidate, samples),
    }
}

fn by_measurements(
    step: &StepTime<'_>,
    measured: &MeasuredTime<'_>,
    mode: Mode,
    candidate: &Candidate,
    samples: u64,
) -> Vec<TimeTerm> {
    let name = measured.baseline.name;
    let by_roofline = |is_at_it: bool, there: f64, here: f64| match measured.baseline.is_exact(mode) {
        true if is_at_it => String::new(),
        true => format!(" x {:.4} by the roofline", here / there),
        false => format!(" x {:.4} by published rates", here / there),
    };
    let micro_steps = |name_of_term, count: u64, batch: u64| {
        let known = batch.max(measured.micro_step.first());
        let (there, here) = (measured.micro_step.at(known), step.micro_step(batch));
        let on = if measured.baseline.mode == mode {
            name.to_owned()
        } else {
            format!("{name} in {}", measured.baseline.mode)
        };
        TimeTerm {
            name: name_of_term,
            formula: format!(
                "{count} x {:.3} ms at {known} on {on}{}",
                there * 1e3,
                by_roofline(known == batch, there, here)
            ),
            seconds: count as f64 * here,
            provenance: step.provenance(batch),
        }
    };
    let (full, rest) = (samples / candidate.batch, samples % candidate.batch);
    let optimizer = TimeTerm {
        name: "optimizer",
        formula: format!(
            "{:.3} ms on {name}{}",
            measured.optimizer * 1e3,
            by_roofline(true, measured.optimizer, step.optimizer())
        ),
        seconds: step.optimizer(),
        provenance: step.provenance(candidate.batch),
    };
    let rest = (rest > 0).then(|| micro_steps("the rest", 1, rest));
    [micro_steps("micro-batches", full, candidate.batch)].into_iter().chain(rest).chain([optimizer]).collect()
}

fn by_rates(asked: &Asked<'_>, step: &StepTime<'_>, mode: Mode, candidate: &Candidate, samples: u64) -> Vec<TimeTerm> {
    let Asked { device, workload, precision, .. } = asked;
    let slower = if mode.checkpointing { format!(" x {}", calibration::CHECKPOINTING_SLOWDOWN) } else { String::new() };
    let kernel_us = calibration::launch_s(device.kind) * 1e6;
    let kernels = grouped(workload.kernels);
    let launches = format!("{} x {kernels} kernels x {kernel_us:.0} us{slower}", candidate.micro_steps);
    let trained = workload.parameters.trained();
    let state = workload.parameters.state(workload.optimizer);
    let optimizer = format!(
        "(3 x {} + 2 x {}) x {} B / {}",
        grouped(trained),
        grouped(state),
        precision.parameter_bytes(),
        gb_per_s(calibration::optimizer_bandwidth(device))
    );
    let term = |name, formula, seconds| TimeTerm { name, formula, seconds, provenance: Provenance::Derived };
    vec![
        term("launches", launches, candidate.micro_steps as f64 * step.roofline.launch),
        term("samples", samples_formula(asked, mode, samples, &slower), samples as f64 * step.roofline.sample),
        term("optimizer", optimizer, step.roofline.optimizer),
    ]
}

/// Formula of the samples: arithmetic or memory traffic, whichever takes longer; for a GPU on the H200, and the ratio of the
/// two GPUs' speeds.
fn samples_formula(asked: &Asked<'_>, mode: Mode, samples: u64, slower: &str) -> String {
    let Asked { device, workload, precision, .. } = asked;
    let rate = calibration::flops_per_s(device, workload, *precision);
    let moved = workload.sample.activations.0 as f64 * precision.activation_scale() * calibration::ACTIVATION_TRIPS;
    let samples = grouped(samples);
    let bandwidth = calibration::sample_bandwidth(device);
    let cost = if workload.sample.flops / rate >= moved / bandwidth {
        format!("{samples} x {:.3e} FLOP{slower} / {:.1} GFLOP/s", workload.sample.flops, rate / 1e9)
    } else {
        format!("{samples} x {moved:.3e} B moved{slower} / {}", gb_per_s(bandwidth))
    };
    let slowdown = calibration::slowdown(device, mode);
    let is_reference = (slowdown - 1.0).abs() < 1e-4;
    if is_reference { cost } else { format!("{cost} on h200 x {slowdown:.4} by published rates") }
}

fn gb_per_s(bytes_per_s: f64) -> String {
    format!("{:.0} GB/s", bytes_per_s / 1e9)
}
