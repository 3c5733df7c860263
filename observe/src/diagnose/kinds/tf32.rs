//! f32 without TF32 on a GPU that has it.

use gpu_tuned_core::{Precision, Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::words::percent;

/// Tensor cores that work less than this do not work.
const UNUSED: f64 = 0.01;
/// Multiprocessors that work so much have something to do.
const AT_WORK: f64 = 0.5;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let run = input.stats.run.filter(|run| run.device.is_gpu && run.device.has_tf32)?;
    let settings = run.settings.as_ref().filter(|settings| settings.precision == Precision::F32)?;
    let tensor = input.stats.gpus.first().and_then(|gpu| gpu.mean(|sample| sample.tensor_activity_percent));
    let unused = tensor.map(|percent| percent / 100.0).filter(|share| *share < UNUSED);
    let unused = unused.filter(|_| input.stats.sm_activity().is_some_and(|share| share >= AT_WORK));
    if settings.allow_tf32 && unused.is_none() {
        return None;
    }
    let change = Change::new(
        "allow_tf32 = true, and products whose sides are multiples of 8; Burn's autotuning takes TF32 where it is faster",
    )
    .set(input.change(Setting::AllowTf32, SettingValue::Flag(true)));
    let headline = "f32 products without the TF32 that this GPU has";
    let said = if settings.allow_tf32 { "allow_tf32 is true" } else { "allow_tf32 is false" };
    let finding = Finding::new(Kind::NoTf32, Severity::Hint, headline, change);
    Some(match unused {
        Some(share) => finding.with_evidence(
            format!("{said}, and tensor cores work {} of the time, {}", percent(share), input.over()),
            [("tensor_activity_share", share)],
        ),
        None => finding.with_evidence(format!("{said}, and precision is f32"), []),
    })
}
