//! Figures of a device with their origins.

use gpu_tuned_core::Provenance;
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::profile::{Basis, Memory, Peak, Peaks, Profile};

use crate::project::Project;
use crate::target::Target;

/// A figure: name, value, and origin.
pub(super) type Fact = (&'static str, String, String);

pub(super) fn facts(target: &Target) -> Vec<Fact> {
    let facts = &target.facts;
    let is_read = facts.memory_provenance == Provenance::Measured;
    let profile = target.profile.as_ref();
    let known = |figure: Option<f64>, unit: &str| {
        figure.map_or_else(|| "unknown".to_owned(), |figure| format!("{figure:.1} {unit}"))
    };
    let memory = match profile.filter(|_| !is_read) {
        Some(profile) => memory_origin(&profile.memory).to_owned(),
        None => "read from this machine".to_owned(),
    };
    let mut all = vec![("memory", facts.memory_total.to_string(), memory)];
    if facts.memory_available != facts.memory_total {
        all.push(("available", facts.memory_available.to_string(), "free at this moment".to_owned()));
    }
    all.push(("fp32 peak", known(facts.fp32_tflops, "TFLOP/s"), peak(target)));
    all.extend(products(target));
    all.push(("bandwidth", known(facts.bandwidth_gb_s, "GB/s"), bandwidth(target)));
    if facts.kind == DeviceKind::Gpu {
        let from = if is_read { "read from this machine" } else { "profile" };
        all.push(("multiprocessors", facts.sm_count.to_string(), from.to_owned()));
        let units = match (facts.has_bf16, facts.has_f16) {
            (true, _) => "TF32 and bf16",
            (false, true) => "fp16",
            (false, false) => "neither TF32 nor bf16",
        };
        all.push(("tensor cores for", units.to_owned(), capability(profile)));
    }
    all
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

fn peak(target: &Target) -> String {
    match target.profile.as_ref().and_then(|profile| profile.peaks.fp32.as_ref()) {
        Some(peak) if target.facts.kind == DeviceKind::Gpu => {
            let basis = match peak.basis {
                Basis::Published => "published",
                Basis::Derived => "from units and clock",
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
            Some(peak) => format!("{:.0}% of {} TFLOP/s{source}", 100.0 * rate / peak.tflops, peak.tflops),
            None => "from similar tests".to_owned(),
        };
        Some((name, format!("{rate:.1} TFLOP/s"), origin))
    };
    all.into_iter().filter_map(fact).collect()
}

fn bandwidth(target: &Target) -> String {
    match (target.facts.kind, &target.profile) {
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
