//! The GPUs of this machine.

mod compared;
mod profiles;

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::Match;
use gpu_tuned_core::profile::ProfileId;
use serde::Serialize;

use super::catalogue::{Catalogue, Limits};
use super::details;
use crate::args::Common;
use crate::output::{Answer, BOLD, Code, GOOD, MARKED, section, styled, wrapped};
use crate::target::{Here, is_describable};
use crate::view::memory_origin;
pub(super) use profiles::profiles;

/// The way to a profile for a GPU that matches none exactly.
const DESCRIBE: &str =
    "for a feature of its own, `cargo gpu-tuned targets --here --toml` prints a profile for gpu-tuned.toml";

#[derive(Serialize)]
struct Report<'a> {
    driver_version: Option<&'a str>,
    gpus: Vec<Gpu<'a>>,
    /// Reasons why GPUs are missing, one sentence each.
    trouble: &'a [String],
}

#[derive(Serialize)]
struct Gpu<'a> {
    /// Number in CUDA's order.
    number: usize,
    /// True for the GPU that a program takes, if the plan fits.
    is_first_choice: bool,
    name: String,
    #[serde(rename = "device")]
    found: &'a Match,
    why: String,
    /// Power limit as a fraction of the board's default, where it is lower.
    power_cap_share: Option<f64>,
    /// Limits of plans; `None` for a GPU that cannot be planned for.
    limits: Option<Limits>,
    /// The reason why the GPU cannot be planned for.
    unusable: Option<&'a str>,
    reading: &'a GpuReading,
}

/// GPUs, and reasons for missing ones. Without a usable GPU the answer is no.
pub(super) fn answer(common: &Common, catalogue: &Catalogue, mut notes: Vec<String>) -> Answer {
    let here = &catalogue.here;
    let read = here.machine.gpus.iter().zip(&catalogue.recognised).enumerate();
    let report = Report {
        driver_version: here.machine.driver_version.as_deref(),
        gpus: read.map(|(number, (reading, found))| gpu(here, number, reading, found)).collect(),
        trouble: &here.machine.trouble,
    };
    notes.extend(trouble(here));
    let code = if here.usable.is_empty() { Code::No } else { Code::Ok };
    Answer::new(("targets --here", common.json), &report, || text(&report, catalogue), notes, code)
}

/// Reasons why GPUs are missing.
fn trouble(here: &Here) -> Vec<String> {
    let machine = &here.machine;
    if machine.gpus.is_empty() && machine.trouble.is_empty() {
        return vec!["the driver works and shows no GPU".to_owned()];
    }
    let remarks = here.usable.iter().filter_map(|gpu| gpu.memory_remark.clone());
    machine.trouble.iter().cloned().chain(remarks).collect()
}

fn gpu<'a>(here: &'a Here, number: usize, reading: &'a GpuReading, found: &'a Match) -> Gpu<'a> {
    let usable = here.usable.iter().find(|gpu| gpu.position == number);
    Gpu {
        number,
        is_first_choice: here.usable.first().is_some_and(|first| first.position == number),
        name: reading.name.clone().unwrap_or_else(|| "a GPU without a name".to_owned()),
        found,
        why: compared::describe(reading, found),
        power_cap_share: compared::power_cap(reading),
        limits: usable.map(|gpu| Limits::of(&gpu.facts)),
        unusable: here.reason_against(number),
        reading,
    }
}

fn text(here: &Report, catalogue: &Catalogue) -> String {
    let driver = here.driver_version.map_or_else(String::new, |version| format!(", driver {version}"));
    let heading = match here.gpus.len() {
        0 => return "this machine has no usable GPU\n".to_owned(),
        1 => format!("1 GPU{driver}\n"),
        count => format!("{count} GPUs{driver}\n"),
    };
    let sections: String = here.gpus.iter().map(|gpu| gpu_section(gpu, here.gpus.len() > 1)).collect();
    heading + &sections + &section("to build for this machine", &building(here, catalogue))
}

fn gpu_section(gpu: &Gpu, is_one_of_several: bool) -> String {
    let style = if matches!(gpu.found, Match::Exact { .. }) { GOOD } else { MARKED };
    let why = wrapped(&gpu.why, 2);
    let (sure, because) = why.split_once(':').unwrap_or((&why, ""));
    let choice = if gpu.is_first_choice && is_one_of_several { ", which a program takes" } else { "" };
    let mut text = format!("\n{}{choice}\n  {}:{because}\n", heading(gpu), styled(style, sure));
    text.extend(compared::table(gpu.reading, gpu.found).map(|table| format!("\n{table}")));
    text + "\n"
        + &gpu.limits.as_ref().map_or_else(
            || format!("  {}\n", wrapped(gpu.unusable.unwrap_or_default(), 2)),
            |limits| details::limits(limits, available(gpu)),
        )
}

fn available(gpu: &Gpu) -> &'static str {
    match (gpu.reading.memory_free, gpu.reading.memory_total, gpu.found.profile()) {
        (Some(_), ..) => "what a new process can take now",
        (None, None, Some(profile)) => memory_origin(&profile.memory),
        (None, ..) => "all of it: the driver does not report free memory",
    }
}

/// Features to build with: the profile that a GPU matches exactly, else `native`.
fn building(here: &Report, catalogue: &Catalogue) -> String {
    let is_exact = |gpu: &&Gpu| matches!(gpu.found, Match::Exact { .. });
    let usable = here.gpus.iter().filter(|gpu| gpu.unusable.is_none());
    let (exact, others): (Vec<&Gpu>, Vec<&Gpu>) = usable.partition(is_exact);
    let profiles = exact.iter().filter_map(|gpu| gpu.found.profile());
    let mut ids: Vec<&str> = profiles.map(|profile| profile.id.as_str()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.extend((!others.is_empty()).then_some(ProfileId::NATIVE));
    if ids.is_empty() {
        return "  no GPU of this machine can train: programs run on its CPU\n".to_owned();
    }
    let can_be_described = others.iter().any(|gpu| is_describable(gpu.reading));
    let help = can_be_described.then(|| format!("\n  {}\n", wrapped(DESCRIBE, 2)));
    details::features(&ids, |id| catalogue.declares(id)) + &help.unwrap_or_default()
}

/// Numbers of the GPU, in CUDA's order and in the driver's, and of its MIG slice.
fn heading(gpu: &Gpu) -> String {
    let (number, index) = (gpu.number, gpu.reading.index);
    let other = if number == index as usize { String::new() } else { format!(" ({index} in nvidia-smi)") };
    let slice = gpu.reading.mig.map_or_else(String::new, |slice| {
        format!(", MIG slice {}/{} (GPU/compute instance)", slice.gpu_instance, slice.compute_instance)
    });
    format!("{}{other}{slice}: {}", styled(BOLD, format!("GPU {number}")), styled(BOLD, &gpu.name))
}
