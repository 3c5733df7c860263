//! A program that was built for another device.

use super::{Change, DiagnosisInput, Finding, Kind, Severity};

/// Targets that are for no GPU in particular.
const ANY: [&str; 2] = ["generic", "native"];

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let run = input.stats.run?;
    let target = run.target.as_deref().filter(|target| !ANY.contains(target))?;
    let device = &run.device;
    if device.profile.as_deref() == Some(target) {
        return None;
    }
    let (severity, change) = match &device.profile {
        _ if !device.is_gpu => {
            let what = "train on the GPU that it was built for: is the driver there, is the feature `cuda` enabled, is the GPU visible \
                 (CUDA_VISIBLE_DEVICES)?";
            (Severity::Critical, Change::new(what).by("cargo gpu-tuned targets --here"))
        }
        Some(profile) => {
            let what = format!(
                "build for it: the feature `{profile}` in place of `{target}`; settings were planned anew at the start, those \
                 that were pinned for {target} were not"
            );
            (Severity::Warning, Change::new(what).by(format!("cargo run --release --features {profile},cuda")))
        }
        None => {
            let what = "describe it in gpu-tuned.toml ([profile.NAME]) and build for it";
            (Severity::Warning, Change::new(what).by("cargo gpu-tuned targets --here"))
        }
    };
    let headline = format!("built for {target}, and runs on {}", device.name);
    let finding = Finding::new(Kind::WrongTarget, severity, headline, change);
    let finding = finding.with_evidence(
        format!(
            "target {target}; device {}, known as {}",
            device.name,
            device.profile.as_deref().unwrap_or("none of the profiles")
        ),
        [],
    );
    Some(run.fallbacks.iter().take(2).fold(finding, |finding, fallback| finding.with_evidence(fallback.clone(), [])))
}
