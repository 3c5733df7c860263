//! Figures of a device with their origins.

use gpu_tuned_core::Provenance;
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::profile::{Basis, Memory, Profile};

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
    all.push(("f32 peak", known(facts.fp32_tflops, "TFLOP/s"), peak(target)));
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
