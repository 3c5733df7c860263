//! Precisions that devices have units for.

use gpu_tuned_core::device::{ComputeCapability, DeviceFacts};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal, Precision, plan};

use super::reading;

#[test]
fn mixed_precision_follows_the_tensor_cores() {
    for (id, precision) in [
        ("gtx1080", None),
        ("generic", None),
        ("titan-v", Some(Precision::MixedF16)),
        ("v100-sxm2-16gb", Some(Precision::MixedF16)),
        ("t4", Some(Precision::MixedF16)),
        ("rtx2080-ti", Some(Precision::MixedF16)),
        ("rtx3060-12gb", Some(Precision::MixedBf16)),
        ("rtx4090", Some(Precision::MixedBf16)),
        ("b200", Some(Precision::MixedBf16)),
    ] {
        let profile = ProfileTable::builtin().get(id).expect("it is shipped");
        assert_eq!(DeviceFacts::nominal(profile).mixed_precision(), precision, "{id}");
    }
    let cpu = DeviceFacts::cpu(Bytes::from_mib(1024), Bytes::from_mib(1024), 4);
    assert_eq!(cpu.mixed_precision(), None);
}

#[test]
fn a_gtx_1660_has_the_compute_capability_of_a_t4_and_no_tensor_cores() {
    let mut reading = reading("NVIDIA GeForce GTX 1660 Ti");
    reading.memory_total = Some(Bytes::from_mib(6144));
    for (capability, has_f16) in [((6, 1), false), ((7, 0), true), ((7, 5), false), ((8, 6), true)] {
        reading.compute_capability = Some(ComputeCapability::new(capability.0, capability.1));
        let facts = DeviceFacts::from_reading(&reading, None, None).expect("its memory is known");
        assert_eq!(facts.has_f16, has_f16, "{capability:?}");
    }
    let t4 = ProfileTable::builtin().get("t4").expect("it is shipped");
    reading.compute_capability = Some(ComputeCapability::new(7, 5));
    let facts = DeviceFacts::from_reading(&reading, Some(t4), None).expect("its memory is known");
    assert_eq!(facts.mixed_precision(), Some(Precision::MixedF16));
}

#[test]
fn mixed_f16_is_refused_without_tensor_cores_and_never_taken() {
    let workload = Transformer::new(2, 64, 512, 32).workload();
    let mut without = reading("NVIDIA GeForce GTX 1650 Ti of a laptop");
    without.memory_total = Some(Bytes::from_mib(4096));
    let mut with = reading("NVIDIA GeForce RTX 2050 of a laptop");
    with.memory_total = without.memory_total;
    for (reading, expected) in [(&mut without, Precision::F32), (&mut with, Precision::MixedF16)] {
        reading.compute_capability = Some(ComputeCapability::new(7, 5));
        let facts = DeviceFacts::from_reading(reading, None, None).expect("its memory is known");
        assert_eq!(facts.mixed_precision().unwrap_or_default(), expected, "{facts:?}");
        let pinned = Goal { precision: Some(Precision::MixedF16.into()), ..Goal::default() };
        let planned = plan(&facts, &workload, &pinned);
        if expected == Precision::F32 {
            let error = planned.expect_err("there are no tensor cores").to_string();
            assert!(error.ends_with("has no fp16 tensor cores for mixed_f16; use f32"), "{error}");
            assert_eq!(facts.rates.fp16, facts.rates.fp32);
        } else {
            assert_eq!(planned.expect("it fits").settings.precision, expected);
        }
    }
}

#[test]
fn a_wrong_compute_capability_promises_no_tensor_cores_that_the_profile_lacks() {
    let t4 = ProfileTable::builtin().get("t4").expect("it is shipped");
    for capability in [(9, 9), (99, 0), (7, 5)] {
        let mut reading = reading("Tesla T4");
        reading.compute_capability = Some(ComputeCapability::new(capability.0, capability.1));
        let facts = DeviceFacts::from_reading(&reading, Some(t4), None).expect("the profile has its memory");
        assert_eq!((facts.has_bf16, facts.has_tf32, facts.has_f16), (false, false, true), "{capability:?}");
    }
}

#[test]
fn several_devices_share_the_precision_that_all_can_do() {
    let nominal = |id: &&str| DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("it is shipped"));
    for (ids, precision) in [
        (&["rtx4090", "h200"][..], Some(Precision::MixedBf16)),
        (&["rtx4090", "t4"], Some(Precision::MixedF16)),
        (&["rtx4090", "t4", "gtx1080"], None),
    ] {
        let all: Vec<_> = ids.iter().map(nominal).collect();
        let common = DeviceFacts::common(&all).expect("there are devices");
        assert_eq!(common.mixed_precision(), precision, "{ids:?}");
    }
}
