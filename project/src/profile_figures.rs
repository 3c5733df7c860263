//! Figures of a profile as text.

use gpu_tuned_core::device::EstimatedFigure;
use gpu_tuned_core::profile::{Basis, Peak, Profile};

/// A figure as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The name, indented by two spaces for a variant of the figure before.
    pub name: &'static str,
    /// The value with its unit.
    pub value: String,
    /// Codes of the sources.
    pub source: String,
}

/// Returns all known figures of a profile as text, with their units and sources.
pub fn profile_figures(profile: &Profile) -> Vec<Figure> {
    let Profile { memory, compute, peaks, board, .. } = profile;
    let general = profile.sources.join(" ");
    let unit = |value: Option<f64>, unit: &str| value.map(|value| format!("{value} {unit}"));
    let totals = |all: &[u64]| {
        let all: Vec<_> = all.iter().map(u64::to_string).collect();
        (!all.is_empty()).then(|| all.join(", ") + " MiB")
    };
    let chip = profile.chip.as_ref().map_or_else(String::new, |chip| format!(", {chip}"));
    let origin = |figure| if profile.estimated.contains(&figure) { ", estimated" } else { "" };
    let bandwidth = unit(memory.bandwidth_gb_s, "GB/s").map(|rate| rate + origin(EstimatedFigure::Bandwidth));
    let sms = compute.sm_count.map(|count| format!("{count}{}", origin(EstimatedFigure::SmCount)));
    let laptop = if profile.mobile { ", for laptops" } else { "" };
    let kind = memory.kind.as_ref().map_or_else(String::new, |kind| format!(" {kind}"));
    let lanes = board.pcie_lanes.map_or_else(String::new, |lanes| format!(" x{lanes}"));
    let nvlink = board.nvlink_gb_s.map(|rate| if rate > 0.0 { format!("{rate} GB/s") } else { "none".to_owned() });
    let source = |peak: &Option<Peak>| {
        let peak = peak.as_ref()?;
        let tests = peak.reached_source.as_ref().map_or_else(String::new, |tests| format!(" {tests}"));
        Some(peak.source.clone() + &tests)
    };
    let figures = [
        ("family", Some(format!("{}{chip}{laptop}", profile.architecture)), None),
        ("capability", Some(profile.compute_capability.to_string()), None),
        ("last CUDA", profile.compute_capability.last_cuda().map(str::to_owned), None),
        ("unsupported", profile.compute_capability.refusal().map(|_| "by Burn and by CUDA 13".to_owned()), None),
        ("memory", Some(format!("{} MiB{kind}", memory.nominal_mib)), None),
        ("  by NVML", totals(&memory.nvml_total_mib), None),
        ("  by CUDA", totals(&memory.cuda_total_mib), None),
        ("  as shipped", memory.ecc_default_on.map(|on| format!("ECC {}", if on { "on" } else { "off" })), None),
        ("bandwidth", bandwidth, memory.bandwidth_source.clone()),
        ("bus", unit(memory.bus_bits.map(f64::from), "bit"), None),
        ("SMs", sms, None),
        ("f32 lanes", compute.cuda_cores.map(|count| count.to_string()), None),
        ("boost clock", unit(compute.boost_mhz, "MHz"), None),
        ("tensor clock", unit(compute.tensor_clock_mhz, "MHz"), None),
        ("L2 cache", unit(compute.l2_mib, "MiB"), compute.l2_source.clone()),
        ("peak f32", describe(peaks.fp32.as_ref()), source(&peaks.fp32)),
        ("peak TF32", describe(peaks.tf32.as_ref()), source(&peaks.tf32)),
        ("peak bf16", describe(peaks.bf16.as_ref()), source(&peaks.bf16)),
        ("peak f16", describe(peaks.fp16.as_ref()), source(&peaks.fp16)),
        ("f16, no tensor", describe(peaks.fp16_native.as_ref()), source(&peaks.fp16_native)),
        ("peak fp8", describe(peaks.fp8.as_ref()), source(&peaks.fp8)),
        ("power", unit(board.tdp_w, "W"), None),
        ("PCI Express", board.pcie_gen.map(|generation| format!("{generation}.0{lanes}")), None),
        ("NVLink", nvlink, board.nvlink_source.clone()),
    ];
    let figure = |(name, value, source): (_, Option<String>, Option<String>)| {
        Some(Figure { name, value: value?, source: source.unwrap_or_else(|| general.clone()) })
    };
    figures.into_iter().filter_map(figure).collect()
}

fn describe(peak: Option<&Peak>) -> Option<String> {
    let peak = peak?;
    let basis = match peak.basis {
        Basis::Published => "published",
        Basis::Derived => "units x clock",
        Basis::Borrowed => "borrowed",
        Basis::Estimated => "estimated",
    };
    let reached = peak.reached.map_or_else(String::new, |reached| format!(", {:.0}% reached", reached * 100.0));
    Some(format!("{} TFLOP/s, {basis}{reached}", peak.tflops))
}
