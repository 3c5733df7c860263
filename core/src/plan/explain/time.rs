//! The time of an optimizer step, term by term.

use serde::Serialize;

use super::Asked;
use crate::plan::calibration;
use crate::plan::choice::Candidate;
use crate::plan::time::StepTime;
use crate::{Provenance, grouped};

/// A part of the predicted time of an optimizer step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeTerm {
    /// What takes it.
    pub name: &'static str,
    /// How its seconds come about.
    pub formula: String,
    /// Seconds of one optimizer step on one rank.
    pub seconds: f64,
    /// What stands behind the figures.
    pub provenance: Provenance,
}

/// The terms that add up to a step of `samples` on one rank, taken in this way.
pub(super) fn terms(asked: &Asked<'_>, candidate: &Candidate, samples: u64) -> Vec<TimeTerm> {
    let Asked { device, workload, precision, .. } = asked;
    let step = StepTime::of(device, workload, *precision, candidate.checkpointing);
    let steps = candidate.micro_steps;
    let slower =
        if candidate.checkpointing { format!(" x {}", calibration::CHECKPOINTING_SLOWDOWN) } else { String::new() };
    let launch = format!(
        "{steps} x {} kernels x {:.0} us{slower}",
        grouped(workload.kernels),
        calibration::launch_s(device.kind) * 1e6
    );
    let trained = workload.parameters.trained();
    let state = workload.parameters.state(workload.optimizer);
    let optimizer = format!(
        "(3 x {} + 2 x {}) x {} B / {}",
        grouped(trained),
        grouped(state),
        precision.parameter_bytes(),
        bandwidth(asked)
    );
    let term = |name, formula, seconds| TimeTerm { name, formula, seconds, provenance: Provenance::Derived };
    vec![
        term("launches", launch, steps as f64 * step.launch),
        term("samples", of_samples(asked, samples, &slower), samples as f64 * step.sample),
        term("optimizer", optimizer, step.optimizer),
    ]
}

/// What bounds the samples: arithmetic, or moving what is kept.
fn of_samples(asked: &Asked<'_>, samples: u64, slower: &str) -> String {
    let Asked { device, workload, precision, .. } = asked;
    let rate = calibration::flops_per_s(device, workload.family, *precision);
    let moved = workload.sample.activations.0 as f64 * precision.activation_scale() * calibration::ACTIVATION_TRIPS;
    let samples = grouped(samples);
    if workload.sample.flops / rate >= moved / calibration::bandwidth(device) {
        let share = device
            .fp32_tflops
            .map_or_else(String::new, |peak| format!(" ({:.0}% of the f32 peak)", rate / peak / 1e10));
        format!("{samples} x {:.3e} FLOP{slower} / {:.1} GFLOP/s{share}", workload.sample.flops, rate / 1e9)
    } else {
        format!("{samples} x {moved:.3e} B moved{slower} / {}", bandwidth(asked))
    }
}

fn bandwidth(asked: &Asked<'_>) -> String {
    format!("{:.0} GB/s", calibration::bandwidth(asked.device) / 1e9)
}
