use super::{Estimate, plausible};
use crate::Bytes;
use crate::device::{ComputeCapability, ProductLine};
use crate::profile::{Profile, ProfileId, ProfileTable};

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
