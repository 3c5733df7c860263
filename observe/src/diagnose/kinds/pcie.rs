//! A PCIe link that is narrower or slower than GPU and slot could have.

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::run_stats::GpuStats;
use crate::diagnose::words::seconds;
use crate::stats::median;

/// Gigabytes per second of a lane of generations 1 to 6, by the PCIe specification.
const LANE_GB_S: [f64; 6] = [0.25, 0.5, 0.985, 1.969, 3.938, 7.563];
/// Bandwidth that copies reach, over that of the link.
const REACHED: f64 = 0.8;
/// Bandwidth over the possible one, below which a link is reduced.
const REDUCED: f64 = 0.9;
/// Samples under load, at least: fewer may show the link on its way up.
const MIN_SAMPLES: usize = 5;

/// A link's generation and lanes.
type Link = (u32, u32);

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (gpu, now, possible) = input.stats.gpus.iter().find_map(reduced)?;
    let (rate, best) = (gb_per_s(now)?, gb_per_s(possible)?);
    let headline = format!(
        "the link to {} is reduced: PCIe {} x{} where {} x{} is possible",
        gpu.name(),
        now.0,
        now.1,
        possible.0,
        possible.1
    );
    let change = Change::new(
        "reseat the card or use another slot, check risers and the firmware's settings for the slot (lanes, generation); \
         `nvidia-smi -q -d PCIE` shows the link",
    )
    .by("nvidia-smi -q -d PCIE");
    let words = format!("under load, {}: {rate:.1} GB/s of {best:.1} GB/s", input.range());
    let figures = [
        ("pcie_generation", f64::from(now.0)),
        ("pcie_lanes", f64::from(now.1)),
        ("link_gb_s", rate),
        ("possible_link_gb_s", best),
    ];
    let finding = |severity| Finding::new(Kind::PcieReduced, severity, headline, change).with_evidence(words, figures);
    let traffic = gpu.mean(|sample| sample.pcie_to_gpu_bytes_per_s.map(|bytes| bytes as f64));
    let Some((model, bytes_per_s)) = input.model.as_ref().zip(traffic) else {
        return Some(finding(Severity::Warning));
    };
    let was = model.as_is();
    let transfer = (bytes_per_s * model.parts.seconds / (rate * 1e9 * REACHED)).min(model.parts.seconds);
    let faster = rate / best;
    // Copies overlap with the step unless the training thread makes them, or the loader waits for them.
    let loader = if transfer >= 0.5 * was.loader { was.loader * faster } else { was.loader };
    let serial = was.serial - model.parts.upload * (1.0 - faster);
    let how = format!(
        "copies take {} of a step of {}, and {faster:.2} of that on the full link",
        seconds(transfer),
        seconds(model.parts.seconds)
    );
    let prediction = input.predict(WhatIf { loader, serial, ..was }, how)?;
    Some(finding(prediction.severity()).with_prediction(prediction))
}

/// Returns the links, now and possible, of a GPU whose link is reduced under load. Idle links slow down by themselves.
fn reduced<'a>(gpu: &'a GpuStats<'a>) -> Option<(&'a GpuStats<'a>, Link, Link)> {
    let possible = (gpu.gpu.max_pcie_generation?, gpu.gpu.max_pcie_lanes?);
    let links: Vec<Link> =
        gpu.loaded().filter_map(|sample| Some((sample.pcie_generation?, sample.pcie_lanes?))).collect();
    let of = |part: fn(&Link) -> u32| median(links.iter().map(|link| f64::from(part(link)))).map(|part| part as u32);
    let now = (of(|link| link.0)?, of(|link| link.1)?);
    let is_reduced = links.len() >= MIN_SAMPLES && gb_per_s(now)? < REDUCED * gb_per_s(possible)?;
    is_reduced.then_some((gpu, now, possible))
}

fn gb_per_s((generation, lanes): Link) -> Option<f64> {
    let lane = LANE_GB_S.get(generation.checked_sub(1)? as usize)?;
    Some(lane * f64::from(lanes))
}
