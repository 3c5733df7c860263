use super::*;
use crate::profile::{ProfileId, ProfileTable};

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

/// Largest ratio of a figure of a shipped profile to its estimate, in either direction.
const LARGEST_ERROR: f64 = 2.5;

fn estimate(profile: &Profile) -> Estimate {
    let name = profile.names.first().map(String::as_str);
    let line = ProductLine::new(name, profile.compute_capability);
    Estimate::new(profile.compute_capability, line, profile.memory.usable())
}

#[test]
fn every_shipped_gpu_is_near_its_estimate() {
    for profile in ProfileTable::builtin().iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC) {
        let estimate = estimate(profile);
        let fp32 = profile.peaks.fp32.as_ref().map(|peak| peak.tflops);
        for (name, known, estimate) in [
            ("fp32", fp32, estimate.fp32_tflops),
            ("bandwidth", profile.memory.bandwidth_gb_s, estimate.bandwidth_gb_s),
            ("clock", profile.compute.boost_mhz, estimate.clock_mhz),
        ] {
            let Some(known) = known else { continue };
            let range = 1.0 / LARGEST_ERROR..=LARGEST_ERROR;
            assert!(range.contains(&(known / estimate)), "{} {name}: {known}, estimated {estimate}", profile.id);
        }
        if let Some(count) = profile.compute.sm_count {
            // Memory is planned with the count: it may be too large, and too small by little.
            let allowed = count - count / 8..=count * 6;
            assert!(
                allowed.contains(&estimate.sm_count),
                "{} SMs: {count}, estimated {}",
                profile.id,
                estimate.sm_count
            );
        }
    }
}

#[test]
fn unlisted_capabilities_and_lines_have_the_estimate_of_a_listed_one() {
    let of = |capability, line| Estimate::new(capability, Some(line), Bytes::from_mib(16 * 1024));
    let newest = of(ComputeCapability::new(12, 0), ProductLine::GeForce);
    let newer = of(ComputeCapability::new(13, 0), ProductLine::GeForce);
    assert_eq!((newer.sm_count, newer.fp32_tflops), (newest.sm_count, newest.fp32_tflops));
    // A new generation may have the memory of any GPU.
    let [_, largest] = newer.memory_mib();
    assert!(largest > 1024.0 * 1024.0 && newest.memory_mib()[1] < 200.0 * 1024.0, "{newer:?}");
    let ampere = of(ComputeCapability::new(8, 6), ProductLine::Professional);
    let unreported = of(ComputeCapability::default(), ProductLine::Professional);
    assert_eq!((unreported.sm_count, unreported.fp32_tflops), (ampere.sm_count, ampere.fp32_tflops));
    // Without a line, an estimate is between those of the lines.
    let middle = Estimate::new(ComputeCapability::new(8, 6), None, Bytes::from_mib(16 * 1024)).bandwidth_gb_s;
    let geforce = of(ComputeCapability::new(8, 6), ProductLine::GeForce);
    assert!(ampere.bandwidth_gb_s < middle && middle < geforce.bandwidth_gb_s, "{middle}");
    assert!(of(ComputeCapability::new(2, 0), ProductLine::Laptop).fp32_tflops < 6.0);
    // A Jetson AGX Xavier: 1.4 TFLOP/s and 137 GB/s.
    let xavier = of(ComputeCapability::new(7, 2), ProductLine::Integrated);
    assert!(xavier.bandwidth_gb_s < 200.0 && xavier.fp32_tflops < 4.0, "{xavier:?}");
}

#[test]
fn placeholders_are_not_plausible_and_doubled_clocks_are() {
    for (reported, expected) in [(Some(1.0), None), (Some(1e6), None), (Some(50.0), Some(50.0)), (None, None)] {
        assert_eq!(plausible(reported, 25.0), expected);
    }
    assert_eq!(plausible(Some(0.0), 25.0), None);
    assert_eq!(plausible(Some(f64::NAN), 25.0), None);
}
