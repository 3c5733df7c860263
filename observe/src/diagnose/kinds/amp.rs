//! f32 on a GPU with tensor cores for 16 bits.

use gpu_tuned_core::{Precision, Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::words::{percent, times};

/// How much faster the device is in `mixed_bf16`: between the 1.09 and the 1.49 that were measured of a transformer and a
/// convolutional network on an H200.
const FASTER: f64 = 1.27;
/// The device works for so much of a step, or its speed does not matter.
const MATTERS: f64 = 0.5;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    let settings = run.settings.as_ref()?;
    let device = model.device?;
    let share = model.parts.share(device);
    if !run.device.has_bf16 || !run.device.is_gpu || settings.precision != Precision::F32 || share < MATTERS {
        return None;
    }
    let prediction = input.predict(
        model.with_faster_device(FASTER),
        format!(
            "the device's part {} as fast: measured 1.09 (transformer) to 1.49 (convolutions) on an H200",
            times(FASTER)
        ),
    )?;
    let headline = "f32 on a GPU with bf16 tensor cores".to_owned();
    let change = Change::new(
        "precision = \"mixed_bf16\": weights stay f32, the step computes in bf16; it changes the arithmetic of the run, so \
         that a run is not switched midway",
    )
    .set(input.change(Setting::Precision, SettingValue::Precision(Precision::MixedBf16)));
    let words = format!(
        "precision is {}, and the device works for {} of a step, {}",
        settings.precision,
        percent(share),
        input.over()
    );
    let finding =
        Finding::new(Kind::NoAmp, Severity::Hint, headline, change).with_evidence(words, [("gpu_busy_share", share)]);
    Some(finding.with_prediction(prediction))
}
