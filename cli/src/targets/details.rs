//! One profile in full.

use gpu_tuned_core::profile::{Basis, Peak, Profile};

use super::catalogue::{Entry, Limits, Nearness};
use crate::output::{BOLD, FAINT, GOOD, MARKED, PLAIN, Table, section, styled, wrapped};
use crate::view::memory_origin;

/// Usual feature for training on GPUs.
pub(super) const CUDA: &str = "cuda";

const FIGURES: [&str; 2] = ["", ""];
const AMOUNTS: [&str; 2] = ["", ">"];

pub(super) fn text(entry: &Entry) -> String {
    let profile = entry.profile;
    let mut text = heading(entry) + &figures(profile);
    for unknown in &profile.unknown {
        text += &remark("unknown", unknown);
    }
    text.extend(profile.notes.as_deref().map(|notes| remark("note", notes)));
    text += &section("limits of a plan", &limits(&entry.limits, memory_origin(&profile.memory)));
    if !entry.is_generic() {
        text += &section(
            "to build for it",
            &features(&[entry.target], |name| if name == CUDA { entry.trains } else { entry.declared }),
        );
    }
    if !entry.sources.is_empty() {
        text += &section("sources", &sources(entry));
    }
    text
}

fn heading(entry: &Entry) -> String {
    let mut text = styled(BOLD, entry.target);
    text.extend(match entry.here {
        Some(Nearness::Exact) => Some(", ".to_owned() + &styled(GOOD, "in this machine")),
        Some(Nearness::Variant) => Some(", ".to_owned() + &styled(MARKED, "nearest to a GPU of this machine")),
        None => None,
    });
    text.push('\n');
    if entry.own {
        text += "  a profile of gpu-tuned.toml; sources and missing figures are those of its base\n";
    }
    text
}

fn figures(profile: &Profile) -> String {
    let mut table = Table::new(2, FIGURES);
    identity(profile, &mut table);
    let general = profile.sources.join(" ");
    let mut figure = |name: &str, value: Option<String>, source: &str| {
        if let Some(value) = value {
            table.row(PLAIN, [name.to_owned(), value], styled(FAINT, source));
        }
    };
    let source = |source: &Option<String>| source.clone().unwrap_or_else(|| general.clone());
    let chip = profile.chip.as_ref().map_or_else(String::new, |chip| format!(", {chip}"));
    let laptop = if profile.mobile { ", for laptops" } else { "" };
    figure("family", Some(format!("{}{chip}{laptop}", profile.architecture)), &general);
    figure("capability", Some(profile.compute_capability.to_string()), &general);
    of_memory(profile, &mut |name, value| figure(name, value, &general));
    let compute = &profile.compute;
    figure("SMs", compute.sm_count.map(|count| count.to_string()), &general);
    figure("f32 lanes", compute.cuda_cores.map(|count| count.to_string()), &general);
    figure("boost clock", compute.boost_mhz.map(|clock| format!("{clock} MHz")), &general);
    figure("tensor clock", compute.tensor_clock_mhz.map(|clock| format!("{clock} MHz")), &general);
    figure("L2 cache", compute.l2_mib.map(|size| format!("{size} MiB")), &source(&compute.l2_source));
    for (name, peak) in peaks(profile) {
        figure(name, Some(describe(peak)), &peak.source);
    }
    let board = &profile.board;
    figure("power", board.tdp_w.map(|watts| format!("{watts} W")), &general);
    let lanes = board.pcie_lanes.map_or_else(String::new, |lanes| format!(" x{lanes}"));
    figure("PCI Express", board.pcie_gen.map(|generation| format!("{generation}.0{lanes}")), &general);
    let nvlink = board.nvlink_gb_s.map(|rate| if rate > 0.0 { format!("{rate} GB/s") } else { "none".to_owned() });
    figure("NVLink", nvlink, &source(&board.nvlink_source));
    table.print()
}

/// Names and PCI ids that identify the GPU; their sources are not aligned, as names are long.
fn identity(profile: &Profile, table: &mut Table) {
    let said = |text: &str, source: &Option<String>| match source {
        Some(source) => format!("{text}  {}", styled(FAINT, source)),
        None => text.to_owned(),
    };
    for (index, name) in profile.names.iter().enumerate() {
        let label = if index == 0 { "called" } else { "" };
        table.row(PLAIN, [label.to_owned()], said(name, &profile.names_source));
    }
    if let Some(ids) = listed(profile.pci_ids.iter().map(ToString::to_string)) {
        table.row(PLAIN, ["PCI ids".to_owned()], said(&ids, &profile.pci_ids_source));
    }
}

fn of_memory(profile: &Profile, figure: &mut dyn FnMut(&str, Option<String>)) {
    let memory = &profile.memory;
    let totals = |totals: &[u64]| listed(totals.iter().map(u64::to_string)).map(|totals| totals + " MiB");
    let kind = memory.kind.as_ref().map_or_else(String::new, |kind| format!(" {kind}"));
    figure("memory", Some(format!("{} MiB{kind}", memory.nominal_mib)));
    figure("  by NVML", totals(&memory.nvml_total_mib));
    figure("  by CUDA", totals(&memory.cuda_total_mib));
    figure("  as shipped", memory.ecc_default_on.map(|on| format!("ECC {}", if on { "on" } else { "off" })));
    figure("bandwidth", memory.bandwidth_gb_s.map(|rate| format!("{rate} GB/s")));
    figure("bus", memory.bus_bits.map(|bits| format!("{bits} bit")));
}

fn peaks(profile: &Profile) -> impl Iterator<Item = (&'static str, &Peak)> {
    let peaks = &profile.peaks;
    let all = [
        ("peak f32", &peaks.fp32),
        ("peak TF32", &peaks.tf32),
        ("peak bf16", &peaks.bf16),
        ("peak f16", &peaks.fp16),
        ("f16, no tensor", &peaks.fp16_native),
        ("peak fp8", &peaks.fp8),
    ];
    all.into_iter().filter_map(|(name, peak)| Some((name, peak.as_ref()?)))
}

fn describe(peak: &Peak) -> String {
    let basis = match peak.basis {
        Basis::Published => "published",
        Basis::Derived => "units x clock",
    };
    format!("{} TFLOP/s, {basis}", peak.tflops)
}

fn listed(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<_> = items.collect();
    (!items.is_empty()).then(|| items.join(", "))
}

fn remark(label: &str, text: &str) -> String {
    format!("  {} {}\n", styled(MARKED, format!("{label}:")), wrapped(text, label.len() + 4))
}

/// Figures that limit plans, with their origins.
pub(super) fn limits(limits: &Limits, available: &str) -> String {
    let headroom = format!("{}% of it, unless memory_headroom says otherwise", limits.headroom_share * 100.0);
    let mut table = Table::new(2, AMOUNTS);
    let figures = [
        ("memory", Some(limits.available), available),
        ("headroom", Some(limits.headroom), headroom.as_str()),
        ("context", Some(limits.context), "estimated from the SMs"),
        ("for training", Some(limits.training), ""),
        ("largest tensor", limits.largest_allocation, "CubeCL allocates no more in one piece"),
    ];
    for (name, bytes, why) in figures {
        if let Some(bytes) = bytes {
            let why = if why.is_empty() { String::new() } else { styled(FAINT, why) };
            table.row(PLAIN, [name.to_owned(), bytes.to_string()], why);
        }
    }
    table.print()
}

/// Features to add to `Cargo.toml`, and the command that trains with them.
pub(super) fn features(ids: &[&str], is_declared: impl Fn(&str) -> bool) -> String {
    let lines = ids.iter().map(|id| (*id, "[]")).chain([(CUDA, "[\"gpu-tuned/cuda\"]")]);
    let missing = lines.filter(|(name, _)| !is_declared(name));
    let missing = missing.fold(String::new(), |text, (name, enables)| text + &format!("  {name} = {enables}\n"));
    let declare = if missing.is_empty() {
        "  # Cargo.toml declares it\n".to_owned()
    } else {
        format!("  # Cargo.toml\n  [features]\n{missing}\n")
    };
    ids.iter().fold(declare, |text, id| text + &format!("  cargo run --release --features {id},{CUDA}\n"))
}

fn sources(entry: &Entry) -> String {
    let width = entry.sources.keys().map(|code| code.len()).max().unwrap_or_default();
    let line = |(code, words): (&&str, &&str)| format!("  {code:<width$}  {}\n", wrapped(words, width + 4));
    entry.sources.iter().map(line).collect()
}
