//! Rates of a GPU, from its profile or its class.

use std::sync::OnceLock;

use serde::Deserialize;

use super::{Peak, Profile};
use crate::device::{ComputeCapability, Rates};

impl Rates {
    /// Rates of a profile, for its fp32 peak in 10^12 operations per second. A peak without a test of its own has the
    /// fraction of the GPU's other tensor formats, else that of GPUs of the same compute capability and product line.
    pub(super) fn from_peaks(profile: &Profile, fp32_tflops: f64, has_f16: bool) -> Self {
        let peaks = &profile.peaks;
        let class = Class::find(profile.compute_capability, profile.compute.half_rate_fp32_accumulate);
        let own: Vec<f64> =
            [&peaks.tf32, &peaks.fp16, &peaks.bf16].into_iter().flatten().filter_map(|peak| peak.reached).collect();
        let own = (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64);
        let tensor = |peak: &Option<Peak>, of_fp16: f64| {
            let published = peak.as_ref().map(|peak| peak.tflops);
            let tflops = published.or_else(|| Some(fp32_tflops * class?.fp16_per_fp32? * of_fp16))?;
            let reached = peak.as_ref().and_then(|peak| peak.reached).or(own).or_else(|| class?.tensor)?;
            Some(tflops * reached)
        };
        let reached = peaks.fp32.as_ref().and_then(|peak| peak.reached).or_else(|| Some(class?.fp32));
        Self {
            fp32: reached.map(|reached| fp32_tflops * reached),
            tf32: tensor(&peaks.tf32, 0.5),
            fp16: tensor(&peaks.fp16, 1.0),
            bf16: tensor(&peaks.bf16, 1.0),
        }
        .available(profile.compute_capability, has_f16)
    }

    /// Rates of a GPU without a profile, by its fp32 peak in 10^12 operations per second.
    pub(super) fn estimate(fp32_tflops: f64, capability: ComputeCapability, is_half_rate: bool, has_f16: bool) -> Self {
        let Some(class) = Class::find(capability, is_half_rate) else { return Self::default() };
        let fp16 = class.fp16_per_fp32.zip(class.tensor).map(|(ratio, reached)| fp32_tflops * ratio * reached);
        Self { fp32: Some(fp32_tflops * class.fp32), tf32: fp16.map(|rate| rate / 2.0), fp16, bf16: fp16 }
            .available(capability, has_f16)
    }

    /// Replaces the rates of formats that have no tensor cores by the fp32 rate.
    fn available(self, capability: ComputeCapability, has_f16: bool) -> Self {
        let tensor = |is_there: bool, rate: Option<f64>| if is_there { rate } else { self.fp32 };
        Self {
            fp32: self.fp32,
            tf32: tensor(capability.has_tf32(), self.tf32),
            fp16: tensor(has_f16, self.fp16),
            bf16: tensor(capability.has_tensor_bf16(), self.bf16),
        }
    }
}

/// Peak of fp16 over the peak of fp32, for GPUs of this capability and product line; `None` without tensor cores.
pub(super) fn fp16_per_fp32(capability: ComputeCapability, is_half_rate: bool) -> Option<f64> {
    Class::find(capability, is_half_rate)?.fp16_per_fp32
}

/// Fractions of the peaks that tested GPUs of one compute capability and product line reach.
#[derive(Debug, Deserialize)]
struct Class {
    compute_capability: ComputeCapability,
    /// The product halves tensor rates with fp32 accumulation.
    half_rate: bool,
    fp32: f64,
    tensor: Option<f64>,
    /// Peak of fp16 over the peak of fp32.
    fp16_per_fp32: Option<f64>,
}

impl Class {
    fn find(capability: ComputeCapability, is_half_rate: bool) -> Option<&'static Self> {
        #[derive(Deserialize)]
        struct File {
            class: Vec<Class>,
        }
        static CLASSES: OnceLock<Vec<Class>> = OnceLock::new();
        let classes = CLASSES.get_or_init(|| {
            let file: File = toml::from_str(include_str!("reached.toml")).expect("BUG: reached.toml is damaged");
            file.class
        });
        // An unlisted capability has the fractions of the one before it.
        let is_newer = |class: &Self| class.compute_capability > capability;
        let distance = |class: &Self| class.compute_capability.distance(capability);
        classes.iter().min_by_key(|class| (is_newer(class), distance(class), class.half_rate != is_half_rate))
    }
}

#[cfg(test)]
mod tests {
    use super::Rates;
    use crate::device::{ComputeCapability, DeviceFacts};
    use crate::profile::ProfileTable;

    fn shipped(id: &str) -> DeviceFacts {
        DeviceFacts::nominal(&ProfileTable::builtin_profile(id).expect("a shipped profile"))
    }

    #[test]
    fn a_tested_peak_has_its_own_fraction_and_others_that_of_their_class() {
        let near = |rate: Option<f64>, expected: f64| rate.is_some_and(|rate| (rate / expected - 1.0).abs() < 0.01);
        let t4 = shipped("t4").rates;
        assert!(near(t4.fp16, 65.0 * 0.65) && near(t4.fp32, 8.1 * 0.54), "{t4:?}");
        assert_eq!((t4.tf32, t4.bf16), (t4.fp32, t4.fp32), "no TF32, no bf16");
        let untested = shipped("rtx4080").rates;
        assert!(near(untested.bf16, 97.5 * 1.04), "{untested:?}");
        let other_formats = shipped("h200").rates;
        assert!(near(other_formats.tf32, 494.7 * 0.785), "{other_formats:?}");
    }

    #[test]
    fn every_shipped_gpu_has_all_rates_and_none_is_far_above_its_peaks() {
        for profile in ProfileTable::builtin().iter() {
            let (rates, peaks) = (Rates::from_profile(profile), &profile.peaks);
            let named = [(rates.fp32, &peaks.fp32), (rates.tf32, &peaks.tf32), (rates.fp16, &peaks.fp16)];
            for (rate, peak) in named.into_iter().chain([(rates.bf16, &peaks.bf16)]) {
                let rate = rate.unwrap_or_else(|| panic!("{}: {rates:?}", profile.id));
                assert!(peak.as_ref().is_none_or(|peak| rate < 1.2 * peak.tflops), "{}: {rates:?}", profile.id);
            }
        }
    }

    #[test]
    fn a_gpu_without_a_profile_gets_the_rates_of_its_class() {
        let rtx4090 = Rates::estimate(82.6, ComputeCapability::new(8, 9), true, true);
        let known = shipped("rtx4090").rates;
        for (estimate, known) in [(rtx4090.tf32, known.tf32), (rtx4090.fp16, known.fp16), (rtx4090.fp32, known.fp32)] {
            let (estimate, known) = (estimate.expect("a rate"), known.expect("a rate"));
            assert!((estimate / known - 1.0).abs() < 0.05, "{estimate} {known}");
        }
        // A later capability has the fractions of the newest one.
        let later = Rates::estimate(10.0, ComputeCapability::new(99, 0), true, true);
        assert_eq!(later, Rates::estimate(10.0, ComputeCapability::new(12, 0), true, true));
        let without_tensor_cores = Rates::estimate(5.0, ComputeCapability::new(7, 5), true, false);
        assert_eq!(without_tensor_cores.fp16, without_tensor_cores.fp32);
    }
}
