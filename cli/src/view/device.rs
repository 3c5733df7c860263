//! Figures of a device with their origins.

use gpu_tuned_core::Provenance;
use gpu_tuned_core::device::{DeviceKind, EstimatedFigure, MemoryKind};
use gpu_tuned_core::profile::{Basis, Memory, Peak, Peaks, Profile};

use crate::project::Project;
use crate::target::Target;

/// A figure: name, value, and origin.
pub(super) type Fact = (&'static str, String, String);

/// Origin of figures that neither the driver nor a profile reports.
const ESTIMATE: &str = "estimate by compute capability and memory";

pub(super) fn facts(target: &Target) -> Vec<Fact> {
    let facts = &target.facts;
    let is_read = facts.memory_provenance == Provenance::Measured;
    let profile = target.profile.as_ref();
    let known = |figure: Option<f64>, unit: &str| {
        figure.map_or_else(|| "unknown".to_owned(), |figure| format!("{figure:.1} {unit}"))
    };
    let memory = match (profile.filter(|_| !is_read), facts.memory_kind) {
        (Some(profile), _) => memory_origin(&profile.memory),
        (None, MemoryKind::Unified) => "the host's, which the GPU shares",
        (None, MemoryKind::Dedicated) => "read from this machine",
    };
    let mut all = vec![("memory", facts.memory_total.to_string(), memory.to_owned())];
    if facts.memory_available != facts.memory_total {
        all.push(("available", facts.memory_available.to_string(), "free at this moment".to_owned()));
    }
    all.push(("fp32 peak", known(facts.fp32_tflops, "TFLOP/s"), peak(target)));
    all.extend(products(target));
    all.push(("bandwidth", known(facts.bandwidth_gb_s, "GB/s"), bandwidth(target)));
    if facts.kind == DeviceKind::Gpu {
        all.push(("SMs", facts.sm_count.to_string(), multiprocessors(target).to_owned()));
        let units = match (facts.has_bf16, facts.has_f16) {
            (true, _) => "TF32 and bf16",
            (false, true) => "fp16",
            (false, false) => "neither TF32 nor bf16",
        };
        all.push(("tensor cores for", units.to_owned(), capability(profile)));
        if let Some(last) = profile.and_then(|profile| profile.compute_capability.last_cuda()) {
            all.push(("last CUDA", last.to_owned(), capability(profile)));
        }
    }
    all
}

/// Remarks on devices, each once, after the names of the devices.
pub(crate) fn remarks(targets: &[Target]) -> Vec<String> {
    let mut named: Vec<(String, Vec<&str>)> = Vec::new();
    for target in targets {
        for remark in target.facts.remarks() {
            match named.iter_mut().find(|(known, _)| *known == remark) {
                Some((_, names)) => names.push(&target.name),
                None => named.push((remark, vec![&target.name])),
            }
        }
    }
    named.into_iter().map(|(remark, names)| format!("{}: {remark}", names.join(", "))).collect()
}

/// Profile of the figures, with its sources.
pub(super) fn profile(project: &Project, target: &Target) -> Option<String> {
    let profile = target.profile.as_ref()?;
    if project.is_own(&profile.id) {
        return Some(format!("profile `{}` of {}", profile.id, &project.config_file));
    }
    let sources = if profile.sources.is_empty() { "none".to_owned() } else { profile.sources.join(", ") };
    let id = &profile.id;
    Some(format!("profile `{id}`; general sources: {sources} (`cargo gpu-tuned targets {id}` lists them)"))
}

/// Origin of a profile's memory.
pub(crate) fn memory_origin(memory: &Memory) -> &'static str {
    match (memory.cuda_total_mib.iter().min(), memory.nvml_total_mib.iter().min()) {
        (None, None) => "as advertised",
        (Some(cuda), Some(nvml)) if nvml < cuda => "the smallest total that NVML reported",
        (None, Some(_)) => "the smallest total that NVML reported",
        (Some(_), _) => "the smallest total that CUDA reported",
    }
}

fn is_estimated(target: &Target, figure: EstimatedFigure) -> bool {
    target.facts.estimated.contains(&figure)
}

fn multiprocessors(target: &Target) -> &'static str {
    let of_profile = target.profile.as_ref().and_then(|profile| profile.compute.sm_count);
    match of_profile {
        _ if is_estimated(target, EstimatedFigure::SmCount) => ESTIMATE,
        Some(count) if count == target.facts.sm_count => "profile",
        _ => "read from this machine",
    }
}

fn peak(target: &Target) -> String {
    if is_estimated(target, EstimatedFigure::Fp32) {
        return ESTIMATE.to_owned();
    }
    match target.profile.as_ref().and_then(|profile| profile.peaks.fp32.as_ref()) {
        Some(peak) if target.facts.kind == DeviceKind::Gpu => {
            let basis = match peak.basis {
                Basis::Published => "published",
                Basis::Derived => "from units and clock",
                Basis::Borrowed => "published for the same chip",
                Basis::Estimated => "estimated",
            };
            format!("{basis} ({})", peak.source)
        }
        _ => "from cores and clock".to_owned(),
    }
}

/// Rates of matrix products, with the fraction of the peak.
fn products(target: &Target) -> Vec<Fact> {
    let facts = &target.facts;
    let peaks = target.profile.as_ref().map(|profile| &profile.peaks);
    let half = if facts.has_bf16 { facts.rates.bf16 } else { facts.rates.fp16 };
    let peak_of = |peak: fn(&Peaks) -> &Option<Peak>| peaks.and_then(|peaks| peak(peaks).as_ref());
    let half_peak = peak_of(if facts.has_bf16 { |peaks| &peaks.bf16 } else { |peaks| &peaks.fp16 });
    let all = [
        ("  fp32 products", facts.rates.fp32, peak_of(|peaks| &peaks.fp32)),
        ("  TF32 products", facts.rates.tf32.filter(|_| facts.has_tf32), peak_of(|peaks| &peaks.tf32)),
        ("  16-bit products", half.filter(|rate| Some(*rate) != facts.rates.fp32), half_peak),
    ];
    let fact = |(name, rate, peak): (&'static str, Option<f64>, Option<&Peak>)| {
        let rate = rate?;
        let source = peak.and_then(|peak| peak.reached_source.as_deref());
        let source = source.map_or_else(|| ", from similar tests".to_owned(), |source| format!(" ({source})"));
        let origin = match peak {
            Some(Peak { basis: Basis::Estimated, .. }) => ESTIMATE.to_owned(),
            Some(peak) => format!("{:.0}% of {} TFLOP/s{source}", 100.0 * rate / peak.tflops, peak.tflops),
            None if is_estimated(target, EstimatedFigure::Fp32) => ESTIMATE.to_owned(),
            None => "from similar tests".to_owned(),
        };
        Some((name, format!("{rate:.1} TFLOP/s"), origin))
    };
    all.into_iter().filter_map(fact).collect()
}

fn bandwidth(target: &Target) -> String {
    match (target.facts.kind, &target.profile) {
        _ if is_estimated(target, EstimatedFigure::Bandwidth) => ESTIMATE,
        (DeviceKind::Cpu, _) => "assumed",
        (DeviceKind::Gpu, Some(_)) => "profile",
        (DeviceKind::Gpu, None) => "from bus and clock",
    }
    .to_owned()
}

fn capability(profile: Option<&Profile>) -> String {
    profile.map_or_else(
        || "by the compute capability".to_owned(),
        |profile| format!("compute capability {}", profile.compute_capability),
    )
}
