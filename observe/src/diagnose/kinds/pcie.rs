//! A link that is narrower or slower than GPU and slot could have.

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::run_stats::GpuStats;
use crate::diagnose::words::seconds;
use crate::stats::median;

/// Gigabytes per second that a lane of generations 1 to 6 carries.
const LANE_GB_S: [f64; 6] = [0.25, 0.5, 0.985, 1.969, 3.938, 7.563];
/// Copies reach so much of it.
const REACHED: f64 = 0.8;
/// Fewer looks under load may have met the link on its way up.
const LEAST_LOOKS: usize = 5;

/// A link's generation and lanes.
type Link = (u32, u32);

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (gpu, now, could) = input.stats.gpus.iter().find_map(reduced)?;
    let (rate, best) = (gb_per_s(now)?, gb_per_s(could)?);
    let headline = format!(
        "the link to {} is reduced: PCIe {} x{} where {} x{} is possible",
        gpu.name(),
        now.0,
        now.1,
        could.0,
        could.1
    );
    let change = Change::new(
        "seat the card anew or in another slot, look at risers and at the firmware's settings for the slot (lanes, \
         generation); `nvidia-smi -q -d PCIE` shows the link",
    )
    .by("nvidia-smi -q -d PCIE");
    let words = format!("under load, {}: {rate:.1} GB/s of {best:.1} GB/s", input.over());
    let figures = [
        ("pcie_generation", f64::from(now.0)),
        ("pcie_lanes", f64::from(now.1)),
        ("link_gb_s", rate),
        ("possible_link_gb_s", best),
    ];
    let finding = |severity| Finding::new(Kind::PcieReduced, severity, headline, change).with_evidence(words, figures);
    let Some((model, bytes_per_s)) =
        input.model.as_ref().zip(gpu.mean(|sample| sample.pcie_to_gpu_bytes_per_s.map(|bytes| bytes as f64)))
    else {
        return Some(finding(Severity::Warning));
    };
    let was = model.as_is();
    let transfer = bytes_per_s * model.parts.seconds / (rate * 1e9 * REACHED);
    let faster = rate / best;
    // Copies go on beside the step unless the training thread makes them, or the loader waits for them.
    let transfer = transfer.min(model.parts.seconds);
    let loader = if transfer >= 0.5 * was.loader { was.loader * faster } else { was.loader };
    let serial = was.serial - model.parts.upload * (1.0 - faster);
    let how = format!(
        "copies take {} of a step of {}, and {faster:.2} of that on the full link",
        seconds(transfer),
        seconds(model.parts.seconds)
    );
    let prediction = input.predict(WhatIf { loader, serial, ..was }, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now);
    Some(finding(severity).with_prediction(prediction))
}

/// A GPU whose link is reduced whenever it works; idle links slow down by themselves.
fn reduced<'a>(gpu: &'a GpuStats<'a>) -> Option<(&'a GpuStats<'a>, Link, Link)> {
    let could = (gpu.gpu.max_pcie_generation?, gpu.gpu.max_pcie_lanes?);
    let looks: Vec<Link> =
        gpu.loaded().filter_map(|sample| Some((sample.pcie_generation?, sample.pcie_lanes?))).collect();
    let of = |part: fn(&Link) -> u32| median(looks.iter().map(|link| f64::from(part(link)))).map(|part| part as u32);
    let now = (of(|link| link.0)?, of(|link| link.1)?);
    (looks.len() >= LEAST_LOOKS && gb_per_s(now)? < 0.9 * gb_per_s(could)?).then_some((gpu, now, could))
}

fn gb_per_s((generation, lanes): Link) -> Option<f64> {
    let lane = LANE_GB_S.get(generation.checked_sub(1)? as usize)?;
    Some(lane * f64::from(lanes))
}
