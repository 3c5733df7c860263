//! The GPUs of this machine.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::profile::{Profile, ProfileId};
use gpu_tuned_project::profile_text::{DescribedGpu, describe};
use serde::Serialize;

use super::catalogue::{Catalogue, Limits};
use super::library::Library;
use crate::args::Common;
use crate::output::{Answer, BOLD, Code, Form, GOOD, MARKED, PLAIN, Table, section, styled, wrapped};
use crate::target::{Here, is_describable};
use crate::targets;
use crate::view::memory_origin;

/// The way to a profile for a GPU that matches none exactly.
const DESCRIBE: &str =
    "for a feature of its own, `cargo gpu-tuned targets --here --toml` prints a profile for gpu-tuned.toml";

#[derive(Serialize)]
struct Report<'a> {
    driver_version: Option<&'a str>,
    gpus: Vec<Gpu<'a>>,
    /// Reasons why GPUs are missing, one sentence each.
    trouble: &'a [String],
    cublaslt: Library,
    cudnn: Library,
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
    let [cublaslt, cudnn] = Library::both();
    let report = Report {
        driver_version: here.machine.driver_version.as_deref(),
        gpus: read.map(|(number, (reading, found))| gpu(here, number, reading, found)).collect(),
        trouble: &here.machine.trouble,
        cublaslt,
        cudnn,
    };
    notes.extend(trouble(here));
    let code = if here.usable.is_empty() { Code::No } else { Code::Ok };
    Answer::new(("targets --here", common.json), &report, || text(&report, catalogue), notes, code)
}

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
        why: describe_match(reading, found),
        power_cap_share: power_cap(reading),
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
    let libraries = here.cublaslt.text() + &here.cudnn.text();
    let libraries = section("libraries for `kernels = \"library\"`", &libraries);
    heading + &sections + &libraries + &section("to build for this machine", &building(here, catalogue))
}

fn gpu_section(gpu: &Gpu, is_one_of_several: bool) -> String {
    let style = if matches!(gpu.found, Match::Exact { .. }) { GOOD } else { MARKED };
    let why = wrapped(&gpu.why, 2);
    let (sure, because) = why.split_once(':').unwrap_or((&why, ""));
    let choice = if gpu.is_first_choice && is_one_of_several { ", which a program takes" } else { "" };
    let mut text = format!("\n{}{choice}\n  {}:{because}\n", heading(gpu), styled(style, sure));
    text.extend(comparison_table(gpu.reading, gpu.found).map(|table| format!("\n{table}")));
    text + "\n"
        + &gpu.limits.as_ref().map_or_else(
            || format!("  {}\n", wrapped(gpu.unusable.unwrap_or_default(), 2)),
            |limits| targets::limits(limits, available(gpu)),
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
    targets::features(&ids, |id| catalogue.declares(id)) + &help.unwrap_or_default()
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

const COLUMNS: [&str; 3] = ["", ">here", ">profile"];

/// A line for each figure of the driver, with the profile's; `None` without any.
fn comparison_table(reading: &GpuReading, found: &Match) -> Option<String> {
    let lines: Vec<_> = lines(reading, found).into_iter().flatten().collect();
    if lines.is_empty() {
        return None;
    }
    let mut table = Table::new(2, COLUMNS);
    for Line { name, here, profile, remark } in lines {
        let remark = if remark.is_empty() { remark } else { styled(MARKED, remark) };
        table.row(PLAIN, [name.to_owned(), here, profile.unwrap_or_default()], remark);
    }
    Some(table.print())
}

/// Power limit as a fraction of the board's default, where it is lower.
fn power_cap(reading: &GpuReading) -> Option<f64> {
    let (limit, shipped) = (reading.power_limit_mw?, reading.default_power_limit_mw?);
    (limit < shipped).then(|| f64::from(limit) / f64::from(shipped))
}

struct Line {
    name: &'static str,
    here: String,
    profile: Option<String>,
    remark: String,
}

fn lines(reading: &GpuReading, found: &Match) -> [Option<Line>; 8] {
    let profile = found.profile();
    let differences = match found {
        Match::Variant { differences, .. } => differences.as_slice(),
        _ => &[],
    };
    let differs = |what: &str| differences.iter().any(|difference| is_in(difference, what));
    let count = |count: u32| count.to_string();
    let bits = |bits: u32| format!("{bits} bit");
    let capability = profile.map(|profile| profile.compute_capability.to_string());
    let sms = profile.and_then(|profile| profile.compute.sm_count);
    let bus = profile.and_then(|profile| profile.memory.bus_bits);
    let other_bus = reading.memory_bus_bits.is_some() && bus.is_some() && reading.memory_bus_bits != bus;
    [
        line("memory", reading.memory_total.map(exact), profile.map(memory), differs("memory")),
        line("reserved by driver", reading.memory_reserved.filter(|kept| kept.0 > 0).map(exact), None, false),
        line("free now", reading.memory_free.map(exact), None, false),
        line("memory bus", reading.memory_bus_bits.map(bits), bus.map(bits), other_bus),
        line("SMs", reading.sm_count.map(count), sms.map(count), differs("SMs")),
        line(
            "capability",
            reading.compute_capability.map(|it| it.to_string()),
            capability,
            differs("compute capability"),
        ),
        power(reading, profile),
        line("other processes", reading.other_processes.filter(|count| *count > 0).map(count), None, false),
    ]
}

fn line(name: &'static str, here: Option<String>, profile: Option<String>, differs: bool) -> Option<Line> {
    let remark = if differs { "differs".to_owned() } else { String::new() };
    here.map(|here| Line { name, here, profile, remark })
}

fn power(reading: &GpuReading, profile: Option<&Profile>) -> Option<Line> {
    let watts = f64::from(reading.power_limit_mw?) / 1e3;
    let published = profile.and_then(|profile| profile.board.tdp_w);
    let shipped = reading.default_power_limit_mw.map(|limit| f64::from(limit) / 1e3);
    let remark = match (power_cap(reading), shipped) {
        (Some(share), Some(shipped)) => format!("capped to {:.0}% of {shipped:.0} W", share * 100.0),
        _ if published.is_some_and(|published| (watts - published).abs() >= 1.0) => "differs".to_owned(),
        _ => String::new(),
    };
    let (here, profile) = (format!("{watts:.0} W"), published.map(|watts| format!("{watts:.0} W")));
    let name = if reading.is_mig_slice() { "board power limit" } else { "power limit" };
    Some(Line { name, here, profile, remark })
}

/// Memory as NVML reports it, else as advertised.
fn memory(profile: &Profile) -> String {
    let memory = &profile.memory;
    exact(Bytes::from_mib(*memory.nvml_total_mib.first().unwrap_or(&memory.nominal_mib)))
}

fn exact(bytes: Bytes) -> String {
    format!("{:.0} MiB", bytes.mib())
}

/// Certainty, a colon, and the reason.
fn describe_match(reading: &GpuReading, found: &Match) -> String {
    match found {
        Match::Exact { profile } => {
            let (agree, unreported) = compared(reading, profile, &[]);
            let (agree, are) = (listed(&agree, "and"), are(&agree));
            if unreported.is_empty() {
                format!("exactly `{}`: {agree} {are} the profile's", profile.id)
            } else {
                let unreported = listed(&unreported, "or");
                format!(
                    "probably `{}`: {agree} {are} the profile's, the driver does not report {unreported}",
                    profile.id
                )
            }
        }
        Match::Variant { profile, differences } => {
            let (agree, _) = compared(reading, profile, differences);
            let agree = if agree.is_empty() {
                String::new()
            } else {
                format!(" {} {} the profile's, but", listed(&agree, "and"), are(&agree))
            };
            let differ: Vec<_> = differences.iter().map(ToString::to_string).collect();
            format!("nearest to `{}`:{agree} {}", profile.id, differ.join("; "))
        }
        Match::Class { compute_capability } => {
            let family = compute_capability.architecture().map_or_else(String::new, |family| format!(" ({family})"));
            format!(
                "no profile: none has its name or PCI id; planned by compute capability {compute_capability}{family} \
                 and the driver's figures"
            )
        }
        Match::Unknown => "unknown: the driver does not identify it".to_owned(),
    }
}

/// Properties that agree with the profile, and those that the driver does not report.
fn compared(
    reading: &GpuReading,
    profile: &Profile,
    differences: &[Difference],
) -> (Vec<&'static str>, Vec<&'static str>) {
    let differs = |what: &str| differences.iter().any(|difference| is_in(difference, what));
    let asked = [
        ("name", true, reading.name.is_some()),
        ("PCI id", !profile.pci_ids.is_empty(), reading.pci_id.is_some()),
        ("memory", true, reading.memory_total.is_some()),
        ("compute capability", true, reading.compute_capability.is_some()),
        ("SMs", profile.compute.sm_count.is_some(), reading.sm_count.is_some()),
    ];
    let asked = asked.into_iter().filter(|(what, is_known, _)| *is_known && !differs(what));
    let (said, unreported): (Vec<_>, Vec<_>) = asked.partition(|(_, _, is_said)| *is_said);
    let names = |all: Vec<(&'static str, bool, bool)>| all.into_iter().map(|(what, ..)| what).collect();
    (names(said), names(unreported))
}

fn is_in(difference: &Difference, what: &str) -> bool {
    let of = match difference {
        Difference::Name { .. } => "name",
        Difference::PciId { .. } => "PCI id",
        Difference::Memory { .. } => "memory",
        Difference::ComputeCapability { .. } => "compute capability",
        Difference::SmCount { .. } => "SMs",
        _ => return false,
    };
    of == what
}

fn listed(items: &[&str], and: &str) -> String {
    match items {
        [] => "nothing".to_owned(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} {and} {last}", first.join(", ")),
    }
}

fn are(items: &[&str]) -> &'static str {
    if items.len() == 1 && items != ["SMs"] { "is" } else { "are" }
}

const HEADING: &str = "\
# Printed by `cargo gpu-tuned targets --here --toml`. Figures without a comment are reported by NVML and CUDA.
# Correct the estimated ones by the data sheet, then append the text to gpu-tuned.toml.
";

/// Profiles of the machine's GPUs, each model once, and reasons why others have none. Without a profile, the answer is no.
pub(super) fn profiles(catalogue: &Catalogue, mut notes: Vec<String>) -> Answer {
    notes.extend(trouble(&catalogue.here));
    let mut readings = catalogue.here.machine.gpus.clone();
    gpu_tuned_nvml::add_cuda_figures(&mut readings);
    let mut described: Vec<DescribedGpu> = Vec::new();
    let mut models = Vec::new();
    for (number, (reading, found)) in readings.iter().zip(&catalogue.recognised).enumerate() {
        let exact = if let Match::Exact { profile } = found { Some(&**profile) } else { None };
        if let Some(profile) = exact {
            notes.push(format!(
                "GPU {number} is exactly `{0}`: feature `{0}` builds for it without this text",
                profile.id
            ));
        }
        match describe(reading, exact, |_| false) {
            Ok(model) if models.contains(&model) => {}
            Ok(model) => {
                let is_printed = |id: &str| described.iter().any(|profile| profile.id.as_str() == id);
                let is_taken = |id: &str| is_printed(id) || catalogue.table.get(id).is_some();
                let profile = describe(reading, exact, is_taken).ok();
                described.extend(profile.filter(|profile| !is_printed(profile.id.as_str())));
                models.push(model);
            }
            Err(because) => {
                notes.push(format!("{} gets no profile: {because}", reading.numbered_name(number)));
            }
        }
    }
    let text = described.iter().map(|profile| format!("\n{}", profile.text)).collect::<String>();
    let (text, code) = if described.is_empty() { (text, Code::No) } else { (HEADING.to_owned() + &text, Code::Ok) };
    Answer { text, form: Form::Data, notes, code }
}
