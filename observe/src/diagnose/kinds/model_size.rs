//! What there is to compute does not fill the GPU.

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity};
use crate::diagnose::words::percent;

/// A GPU whose multiprocessors work less than this is mostly empty.
const MOSTLY_EMPTY: f64 = 0.35;
/// A GPU that draws less than this of its power while kernels run is mostly empty.
const LITTLE_POWER: f64 = 0.4;
/// Kernels run for so much of the time.
const RUNS: f64 = 0.8;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref().filter(|_| input.stats.is_on_gpu())?;
    let busy = input.stats.busy()?;
    let figure = match input.stats.sm_activity() {
        Some(activity) => ("sm_activity_share", activity),
        None => ("power_share", power_share(input).filter(|_| busy >= RUNS)?),
    };
    let most = if figure.0 == "power_share" { LITTLE_POWER } else { MOSTLY_EMPTY };
    if figure.1 >= most {
        return None;
    }
    let of_what = if figure.0 == "power_share" {
        "of its power is drawn while kernels run"
    } else {
        "of its multiprocessors work"
    };
    let headline = format!("the model is too small for this GPU: {} {of_what}", percent(figure.1));
    let room = (0.8 / figure.1).floor().clamp(1.0, 16.0);
    let change = Change::new(
        "nothing is wrong; a larger model (wider, deeper, longer sequences, larger patches) or several runs side by side \
         would cost little more time",
    );
    let how = format!(
        "up to about {room:.0} times the work in each kernel fits beside what runs now, at about the same samples/s"
    );
    let prediction = Prediction::new(Quantity::SamplesPerS, model.rate_now(), model.rate_now(), how);
    let words =
        format!("kernels run {} of the time, and {} {of_what}, {}", percent(busy), percent(figure.1), input.over());
    let finding = Finding::new(Kind::ModelTooSmall, Severity::Hint, headline, change)
        .with_evidence(words, [("gpu_busy_share", busy), figure, ("room_times", room)]);
    Some(finding.with_prediction(prediction))
}

fn power_share(input: &DiagnosisInput<'_>) -> Option<f64> {
    let gpu = input.stats.gpus.first()?;
    gpu.mean(|sample| Some(f64::from(sample.power_mw?) / f64::from(sample.power_limit_mw?.max(1))))
}
