//! Usual names of precisions in configs of other programs.

use super::Precision;

/// Names without separators, in lower case.
const NAMES: [(Precision, &[&str]); 4] = [
    (Precision::F32, &["f32", "fp32", "float32", "32", "32true", "full", "no"]),
    (Precision::MixedBf16, &["mixedbf16", "bf16mixed", "ampbf16", "bf16", "bfloat16"]),
    (
        Precision::MixedF16,
        &[
            "mixedf16",
            "mixedfp16",
            "f16mixed",
            "fp16mixed",
            "16mixed",
            "ampf16",
            "ampfp16",
            "f16",
            "fp16",
            "float16",
            "half",
            "16",
        ],
    ),
    (Precision::Bf16Params, &["bf16params", "bf16true", "purebf16"]),
];

impl Precision {
    /// Finds the precision with this usual name: `bf16-mixed`, `float16`, `MixedBf16`. Ignores case and separators.
    pub fn spelled(text: &str) -> Option<Self> {
        let is_letter = |letter: &char| letter.is_ascii_alphanumeric();
        let name: String = text.chars().filter(is_letter).map(|letter| letter.to_ascii_lowercase()).collect();
        let found = NAMES.into_iter().find(|(_, names)| names.contains(&name.as_str()));
        found.map(|(precision, _)| precision)
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, Precision};

    #[test]
    fn a_name_is_that_of_one_precision() {
        let all: Vec<_> = NAMES.iter().flat_map(|(_, names)| *names).collect();
        for (index, name) in all.iter().enumerate() {
            assert!(!all[..index].contains(name), "{name} is there twice");
        }
        for precision in Precision::ALL {
            assert_eq!(Precision::spelled(precision.name()), Some(precision));
        }
    }

    #[test]
    fn case_and_separators_do_not_matter() {
        for (text, precision) in [
            ("FP32", Precision::F32),
            ("bf16-mixed", Precision::MixedBf16),
            ("BFloat16", Precision::MixedBf16),
            ("16-mixed", Precision::MixedF16),
            ("MixedF16", Precision::MixedF16),
            ("bf16-true", Precision::Bf16Params),
        ] {
            assert_eq!(Precision::spelled(text), Some(precision), "{text}");
        }
        assert_eq!(Precision::spelled("int8"), None);
    }
}
