//! Every shipped profile, and users' own profiles.

use std::path::Path;

use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::{Peak, Profile, ProfileId, ProfileTable, describe_source};
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal, plan};

#[test]
fn there_are_59_gpus_and_the_generic_profile() {
    assert_eq!(ProfileTable::builtin().iter().count(), 60);
    for id in ["generic", "gtx1080", "rtx4090", "rtx4070-ti-super", "a100-sxm4-80gb", "h200"] {
        assert!(ProfileTable::builtin().get(id).is_some(), "{id}");
    }
}

#[test]
fn every_shipped_profile_round_trips_and_yields_a_plan() {
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    for profile in ProfileTable::builtin().iter() {
        let text = toml::to_string(profile).expect("a profile is TOML");
        assert_eq!(&toml::from_str::<Profile>(&text).expect("and back"), profile);
        let plan = plan(&DeviceFacts::nominal(profile), &workload, &Goal::default());
        plan.unwrap_or_else(|error| panic!("{}: {error}", profile.id));
    }
}

#[test]
fn every_file_is_named_after_its_profile_and_every_source_is_explained() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    for profile in ProfileTable::builtin().iter() {
        let file = folder.join(format!("{}.toml", profile.id));
        assert!(file.is_file(), "{}", file.display());
        let peaks = &profile.peaks;
        let peaks = [&peaks.fp32, &peaks.tf32, &peaks.bf16, &peaks.fp16, &peaks.fp16_native, &peaks.fp8];
        let of_peak = |peak: &'static Peak| [Some(&peak.source), peak.reached_source.as_ref()];
        let of_peaks = peaks.into_iter().flatten().flat_map(of_peak).flatten().flat_map(|codes| codes.split(' '));
        let of_fields =
            [&profile.names_source, &profile.pci_ids_source, &profile.compute.l2_source, &profile.board.nvlink_source];
        let codes =
            of_fields.into_iter().flatten().map(String::as_str).chain(profile.sources.iter().map(String::as_str));
        for code in codes.chain(of_peaks) {
            assert!(describe_source(code).is_some(), "{}: `{code}` is not explained", profile.id);
        }
    }
}

#[test]
fn the_generic_profile_promises_no_more_than_any_other() {
    let generic = DeviceFacts::nominal(ProfileTable::builtin().get(ProfileId::GENERIC).expect("shipped"));
    for profile in ProfileTable::builtin().iter() {
        let facts = DeviceFacts::nominal(profile);
        assert!(generic.memory_available <= facts.memory_available, "{}", profile.id);
        assert!(generic.fp32_tflops <= facts.fp32_tflops, "{}", profile.id);
        for (lowest, rate) in [
            (generic.rates.fp32, facts.rates.fp32),
            (generic.rates.tf32, facts.rates.tf32),
            (generic.rates.fp16, facts.rates.fp16),
            (generic.rates.bf16, facts.rates.bf16),
        ] {
            assert!(lowest <= rate, "{}", profile.id);
        }
        assert!(generic.bandwidth_gb_s <= facts.bandwidth_gb_s, "{}", profile.id);
        assert!(!generic.has_tf32 && !generic.has_bf16);
    }
}

/// The reading of a GPU that equals its profile.
fn reading(profile: &Profile) -> GpuReading {
    let mut reading = GpuReading::default();
    reading.name = profile.names.first().cloned();
    reading.pci_id = profile.pci_ids.first().copied();
    reading.compute_capability = Some(profile.compute_capability);
    reading.sm_count = profile.compute.sm_count;
    let total = profile.memory.nvml_total_mib.first().unwrap_or(&profile.memory.nominal_mib);
    reading.memory_total = Some(Bytes::from_mib(*total));
    reading
}

#[test]
fn every_profile_recognises_itself_and_no_other_exactly() {
    for profile in ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty()) {
        match identify(&reading(profile), ProfileTable::builtin()) {
            Match::Exact { profile: found } => assert_eq!(found.id, profile.id),
            other => panic!("{}: {other:?}", profile.id),
        }
    }
}

#[test]
fn names_match_whole_with_or_without_the_maker() {
    let table = ProfileTable::builtin();
    let named = |name: &str| {
        let mut reading = GpuReading::default();
        reading.name = Some(name.to_owned());
        identify(&reading, table).profile().map(|profile| profile.id.to_string())
    };
    assert_eq!(named("GeForce RTX 4090").as_deref(), Some("rtx4090"));
    assert_eq!(named("NVIDIA GeForce RTX 4090 Laptop GPU").as_deref(), Some("rtx4090-laptop"));
    assert_eq!(named("NVIDIA A100-SXM4-80GB MIG 1g.10gb").as_deref(), Some("a100-sxm4-80gb"));
    // Others take the first for an L4, the second for an A100.
    assert_eq!(named("NVIDIA L40S").as_deref(), Some("l40s"));
    assert_eq!(named("NVIDIA RTX A1000"), None);
}
