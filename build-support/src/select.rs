//! The target of a build: named GPUs, or the one in the build machine.

use std::collections::BTreeSet;

use gpu_tuned_core::profile::{ProfileId, ProfileNames};

use crate::BuildError;
use crate::package::Package;

/// The target of a build, before `native` is resolved.
#[derive(Debug, PartialEq)]
pub(crate) enum Choice {
    /// No GPU is named.
    Generic,
    /// Profiles, at least one, sorted.
    Targets(Vec<ProfileId>),
    /// The GPU in the build machine.
    Native,
}

/// Parses `GPU_TUNED_TARGET`.
pub(crate) fn by_name(asked: &str, known: &ProfileNames) -> Result<Choice, BuildError> {
    let words: BTreeSet<&str> = asked.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let generic = Choice::Targets(vec![ProfileId::GENERIC.parse().expect("BUG: it is an identifier")]);
    let alone = [(ProfileId::GENERIC, generic), (ProfileId::NATIVE, Choice::Native)];
    for (word, choice) in alone {
        if words.contains(word) {
            return if words.len() == 1 { Ok(choice) } else { Err(BuildError::NotAlone { word: word.to_owned() }) };
        }
    }
    let targets: Vec<ProfileId> = words.iter().filter_map(|word| known.get(word)).collect();
    let strangers = words.iter().filter(|word| known.get(word).is_none());
    let unknown: Vec<String> =
        strangers.map(|word| format!("there is no profile `{word}`{}", known.suggest_or_advise(word))).collect();
    match (unknown.is_empty(), targets.is_empty()) {
        (false, _) => Err(BuildError::UnknownTargets { unknown }),
        (true, true) => Err(BuildError::NoTarget { value: asked.to_owned() }),
        (true, false) => Ok(Choice::Targets(targets)),
    }
}

/// Returns the choice of the enabled features, and a warning if a feature is ignored.
pub(crate) fn by_features(package: &Package, known: &ProfileNames) -> (Choice, Option<String>) {
    let targets = known.among(&package.enabled);
    let native = is_native(package);
    match (targets.is_empty(), native) {
        (true, true) => (Choice::Native, None),
        (true, false) => (Choice::Generic, None),
        (false, false) => (Choice::Targets(targets), None),
        (false, true) => {
            let names: Vec<&str> = targets.iter().map(ProfileId::as_str).collect();
            let warning = format!("the feature `native` has no say, because others name a GPU: {}", names.join(", "));
            (Choice::Targets(targets), Some(warning))
        }
    }
}

/// Returns true if a feature selects the GPU in the build machine: one that enables this crate's `native`, under any name. Without
/// such a feature, one with that name.
fn is_native(package: &Package) -> bool {
    let is_ours = |enables: &&String| {
        let feature = enables.strip_prefix(&package.build).map(|rest| rest.trim_start_matches('?'));
        feature == Some("/native")
    };
    let mut ours = package.features.iter().filter(|(_, enables)| enables.iter().any(|it| is_ours(&it))).peekable();
    if ours.peek().is_none() {
        return package.enabled.contains(ProfileId::NATIVE);
    }
    ours.any(|(feature, _)| package.enabled.contains(feature))
}

/// Warns about each declared feature that looks like a GPU's name and selects no GPU.
pub(crate) fn lookalikes(package: &Package, known: &ProfileNames) -> Vec<String> {
    let strangers = package.features.iter().filter(|(feature, enables)| {
        let reads_like_one = is_gpu_name(feature) || known.is_similar(feature);
        // A short name for a profile, such as `h100 = ["h100-pcie"]`, does select one.
        reads_like_one && known.get(feature).is_none() && known.among(*enables).is_empty()
    });
    let warning = |feature: &String| {
        format!(
            "the feature `{feature}` reads like a GPU, but no profile has this name{}",
            known.suggest_or_advise(feature)
        )
    };
    strangers.map(|(feature, _)| warning(feature)).collect()
}

/// Returns true for names in the style of NVIDIA's products.
fn is_gpu_name(feature: &str) -> bool {
    let name = feature.to_ascii_lowercase();
    let letters = name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len());
    let (series, rest) = name.split_at(letters);
    let rest = rest.trim_start_matches(['-', '_']);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(digits);
    let Ok(number) = number.parse::<u32>() else { return false };
    match series {
        "gtx" | "rtx" | "titan" | "quadro" | "tesla" => true,
        // `h264`, `v4` and `a11y` are no GPUs: these series have round numbers.
        "a" | "b" | "h" | "l" | "p" | "t" | "v" | "gb" | "gh" => {
            let plain = suffix.len() <= 1 || suffix.starts_with(['-', '_']);
            plain && number % 10 == 0 && number >= if series == "v" { 100 } else { 10 }
        }
        _ => false,
    }
}

/// Without the feature `native`, no driver is read.
#[cfg(not(feature = "native"))]
pub(crate) mod native {
    pub(crate) fn select<W: std::io::Write>(
        _: &impl crate::Environment,
        _: &[gpu_tuned_core::profile::Profile],
        _: &mut crate::package::Directives<W>,
    ) -> Result<crate::Selected, crate::BuildError> {
        Err(crate::BuildError::NativeMissing)
    }
}

/// The GPU in the build machine, read from the driver.
#[cfg(feature = "native")]
pub(crate) mod native {
    use std::io::Write;
    use std::path::Path;

    use gpu_tuned_core::device::{DeviceFacts, GpuReading};
    use gpu_tuned_core::matching::identify;
    use gpu_tuned_core::profile::{Profile, ProfileTable};
    use gpu_tuned_nvml::{CudaEnvironment, LIBRARY_VARIABLE};
    use gpu_tuned_project::resolved::Selected;

    use crate::package::{Directives, setting};
    use crate::{BuildError, Environment};

    /// Returns the GPU in the build machine, or `generic` with a warning. `own` are the package's profiles.
    pub(crate) fn select<W: Write>(
        environment: &impl Environment,
        own: &[Profile],
        directives: &mut Directives<W>,
    ) -> Result<Selected, BuildError> {
        let library = setting(environment, LIBRARY_VARIABLE, directives)?;
        let own: ProfileTable = own.iter().cloned().collect();
        let (gpu, warnings) = match gpu_tuned_nvml::read(library.as_deref().map(Path::new)) {
            Ok(reading) => {
                let cuda = cuda_environment(environment, directives)?;
                let mut visible = cuda.select(&reading);
                let limits = cuda.limit(&mut visible.gpus);
                let warnings = visible.missing.into_iter().chain(visible.notes).chain(limits);
                choose(visible.gpus, &own, warnings.collect())
            }
            Err(error) => (None, vec![error.to_string()]),
        };
        for warning in &warnings {
            directives.warning(&format!("native: {warning}"))?;
        }
        let Some(gpu) = gpu else {
            directives.warning("native: found no usable GPU; the constants are those of the `generic` profile")?;
            return Ok(Selected::Generic);
        };
        Ok(Selected::Native(Box::new(lasting(gpu))))
    }

    /// Reads the variables that select, order and limit GPUs. Cargo runs the script again when one changes.
    fn cuda_environment<W: Write>(
        environment: &impl Environment,
        directives: &mut Directives<W>,
    ) -> Result<CudaEnvironment, BuildError> {
        let mut cuda = CudaEnvironment::default();
        for (name, value) in [
            (CudaEnvironment::VISIBLE_DEVICES, &mut cuda.visible_devices),
            (CudaEnvironment::DEVICE_ORDER, &mut cuda.device_order),
            (CudaEnvironment::MPS_MEMORY_LIMIT, &mut cuda.mps_memory_limit),
            (CudaEnvironment::MPS_THREAD_PERCENTAGE, &mut cuda.mps_thread_percentage),
        ] {
            directives.rerun_if_env_changed(name)?;
            // An empty list hides every GPU.
            *value = environment.variable(name).map(|value| value.to_string_lossy().into_owned());
        }
        Ok(cuda)
    }

    /// Returns one GPU: the first, or of different models the one with the least memory.
    fn choose(
        gpus: Vec<GpuReading>,
        own: &ProfileTable,
        mut warnings: Vec<String>,
    ) -> (Option<GpuReading>, Vec<String>) {
        let mut usable = Vec::new();
        for (number, gpu) in gpus.into_iter().enumerate() {
            match DeviceFacts::from_reading(&gpu, identify(&gpu, own).profile(), None) {
                None => warnings.push(gpu.explain_missing_memory(number)),
                Some(DeviceFacts { name, refusal: Some(reason), .. }) => warnings.push(format!("{name}: {reason}")),
                Some(_) => usable.push(gpu),
            }
        }
        let gpus = usable;
        let model = |gpu: &GpuReading| (gpu.name.clone(), gpu.memory_total);
        let differ = gpus.windows(2).any(|pair| model(&pair[0]) != model(&pair[1]));
        let names: Vec<String> = gpus.iter().map(name).collect();
        // A GPU that reports no memory has that of its profile, and is the last choice.
        let least = gpus.into_iter().min_by_key(|gpu| (gpu.memory_total.is_none(), gpu.memory_total));
        if let Some(least) = least.as_ref().filter(|_| differ) {
            warnings.push(format!(
                "this machine has different GPUs ({}); the constants are for the one with the least memory, {}",
                names.join(", "),
                name(least)
            ));
        }
        (least, warnings)
    }

    fn name(gpu: &GpuReading) -> String {
        gpu.name.clone().unwrap_or_else(|| format!("GPU {}", gpu.index))
    }

    /// Removes values of the moment and of the single board, so that a build on the same machine gives the same table.
    fn lasting(mut gpu: GpuReading) -> GpuReading {
        gpu.uuid = None;
        gpu.gpu_uuid = None;
        gpu.pci_address = None;
        gpu.memory_free = None;
        gpu.other_processes = None;
        gpu
    }
}

#[cfg(test)]
mod tests {
    use super::is_gpu_name;

    #[test]
    fn only_names_of_gpus_read_like_one() {
        for gpu in ["rtx4095", "gtx-970", "RTX_5090", "h300", "a10g", "l40s", "v100", "gb300", "a100-80gb"] {
            assert!(is_gpu_name(gpu), "{gpu}");
        }
        for other in ["default", "h264", "h2", "v1", "v10", "a11y", "b64", "t5", "l2", "cuda", "std", "native"] {
            assert!(!is_gpu_name(other), "{other}");
        }
    }
}
