//! Ranks that take longer for a step than the others, which wait for them.

use super::{Change, DiagnosisInput, Finding, Kind};
use crate::diagnose::words::{percent, seconds};

/// Time over that of the other ranks that is worth a finding.
const SLOWER: f64 = 1.1;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, steps) = (input.model.as_ref()?, input.stats.steps.as_ref().ok()?);
    let slow = steps.slowest_rank.as_ref()?;
    if slow.slowness < SLOWER {
        return None;
    }
    let headline = format!(
        "rank {} on {} takes {:.2} times as long as the others for its part of a step, and they wait for it",
        slow.rank, slow.host, slow.slowness
    );
    let change = Change::new(
        "compare its GPU with the others': clocks, temperature, PCIe link, other processes, and its loader; unequal GPUs share a \
         step by their speed with `unequal = true`",
    )
    .by("cargo gpu-tuned monitor");
    let saved = (slow.share_of_steps * (slow.seconds - slow.others_s)).min(model.parts.seconds);
    let was = model.as_is();
    // The wait is part of the exchange, or of training on the slow rank itself.
    let serial = (was.serial - saved).max(0.0);
    let training = was.training - (saved - (was.serial - serial));
    let prediction = input.predict(
        super::WhatIf { serial, training, ..was },
        format!("a step without {} of waiting: all ranks as fast as the median of the others", seconds(saved)),
    )?;
    let words = format!(
        "{} instead of {}, and the slowest rank in {} of {}",
        seconds(slow.seconds),
        seconds(slow.others_s),
        percent(slow.share_of_steps),
        input.range()
    );
    let figures = [
        ("rank", slow.rank as f64),
        ("rank_s_per_step", slow.seconds),
        ("other_ranks_s_per_step", slow.others_s),
        ("slowest_share_of_steps", slow.share_of_steps),
    ];
    let finding = Finding::new(Kind::SlowRank, prediction.severity(), headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(Some(prediction)))
}
