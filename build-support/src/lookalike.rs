use gpu_tuned_core::profile::ProfileNames;

use crate::package::Package;

/// Warns about each declared feature that looks like a GPU's name and selects no GPU.
pub(crate) fn warnings(package: &Package, known: &ProfileNames) -> Vec<String> {
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
