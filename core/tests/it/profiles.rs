//! Every shipped profile, and users' own profiles.

use std::path::Path;

use gpu_tuned_core::device::{ComputeCapability, DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Difference, Match, identify};
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::plan::{BALANCED_WIDTH, PlanError, TRANSFER_ERROR, relative_speed};
use gpu_tuned_core::profile::{Peak, Profile, ProfileId, ProfileTable, describe_source};
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal, Precision, plan};

use crate::devices::facts;

#[test]
fn there_are_200_gpus_and_the_generic_profile() {
    assert_eq!(ProfileTable::builtin().iter().count(), 201);
    for id in ["generic", "gtx1080", "rtx4090", "rtx4060-ti-8gb", "a100-sxm4-80gb", "h200", "gb10"] {
        assert!(ProfileTable::builtin().get(id).is_some(), "{id}");
    }
}

#[test]
fn every_shipped_profile_round_trips_and_yields_a_plan_or_the_reason_why_not() {
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    let mut refused = Vec::new();
    for profile in ProfileTable::builtin().iter() {
        let text = toml::to_string(profile).expect("a profile is TOML");
        assert_eq!(&toml::from_str::<Profile>(&text).expect("and back"), profile);
        let plan = plan(&DeviceFacts::nominal(profile), &workload, &Goal::default());
        match (plan, profile.compute_capability.refusal()) {
            (Ok(_), None) => {}
            (Err(error @ PlanError::GpuUnsupported { .. }), Some(reason)) => {
                assert!(error.to_string().contains(&reason), "{error}");
                refused.push(profile.id.as_str());
            }
            (plan, _) => panic!("{}: {plan:?}", profile.id),
        }
    }
    assert_eq!(refused, ["k80", "m40-24gb", "m60"]);
}

#[test]
fn gpus_older_than_pascal_are_refused_with_and_without_a_profile() {
    let workload = Transformer::new(2, 64, 512, 32).workload();
    for (major, minor, is_refused) in
        [(3, 5, true), (5, 0, true), (5, 2, true), (6, 0, false), (6, 1, false), (7, 0, false)]
    {
        let mut reading = GpuReading::default();
        reading.memory_total = Some(Bytes::from_mib(8192));
        reading.compute_capability = Some(ComputeCapability::new(major, minor));
        let facts = DeviceFacts::from_reading(&reading, None, None).expect("its memory is known");
        let planned = plan(&facts, &workload, &Goal::default());
        assert_eq!(
            matches!(planned, Err(PlanError::GpuUnsupported { .. })),
            is_refused,
            "{major}.{minor}: {planned:?}"
        );
    }
}

#[test]
fn a_wrong_compute_capability_leaves_that_of_the_profile() {
    let mut reading = GpuReading::default();
    reading.name = Some("NVIDIA GeForce RTX 4090".to_owned());
    let right = facts(&reading);
    for wrong in ["5.2", "7.0", "99.9"] {
        reading.compute_capability = Some(wrong.parse().expect("a capability"));
        assert_eq!(facts(&reading), right, "{wrong}");
    }
    assert_eq!((right.refusal, right.has_bf16), (None, true));
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
        let Profile { memory, compute, board, .. } = profile;
        let of_fields = [&profile.names_source, &profile.pci_ids_source, &memory.bandwidth_source];
        let of_fields = of_fields.into_iter().chain([&compute.l2_source, &board.nvlink_source]);
        let codes = of_fields.flatten().map(String::as_str).chain(profile.sources.iter().map(String::as_str));
        for code in codes.chain(of_peaks) {
            assert!(describe_source(code).is_some(), "{}: `{code}` is not explained", profile.id);
        }
    }
}

/// Exponent of the power limits in the rates of two boards of one chip: that of the H100 PCIe and the H100 SXM.
#[test]
fn an_untested_board_reaches_what_a_tested_one_of_its_chip_would_at_its_power_limit() {
    const EXPONENT: f64 = 0.69;
    let tensor = |profile: &Profile| [profile.peaks.bf16.clone(), profile.peaks.fp16.clone()].into_iter().flatten();
    let by_power = |peak: &Peak| peak.reached_source.as_deref() == Some("power");
    let tested = |profile: &Profile| {
        let peaks: Vec<_> = tensor(profile).filter(|peak| peak.reached.is_some() && !by_power(peak)).collect();
        let reached: f64 = peaks.iter().filter_map(|peak| peak.reached).sum::<f64>() / peaks.len() as f64;
        Some((peaks.first()?.tflops * reached, profile.board.tdp_w?))
    };
    let tested_board = |id: &str| tested(ProfileTable::builtin().get(id).expect("shipped")).expect("it was tested");
    let [(pcie, pcie_w), (sxm, sxm_w)] = ["h100-pcie", "h100-sxm5-80gb"].map(tested_board);
    assert!(((sxm / pcie).ln() / (sxm_w / pcie_w).ln() - EXPONENT).abs() < 0.05);
    let mut boards = 0;
    for profile in ProfileTable::builtin().iter() {
        for peak in tensor(profile).filter(by_power) {
            let watts = profile.board.tdp_w.expect("the fraction follows from it");
            let is_sibling = |other: &&Profile| {
                other.chip == profile.chip
                    && other.compute.half_rate_fp32_accumulate == profile.compute.half_rate_fp32_accumulate
            };
            let siblings = ProfileTable::builtin().iter().filter(is_sibling).filter_map(tested);
            let best = siblings.map(|(rate, limit)| rate * (watts / limit).powf(EXPONENT)).fold(0.0, f64::max);
            let reached = peak.reached.expect("a fraction");
            assert!((best / peak.tflops - reached).abs() < 0.011, "{}: {reached}", profile.id);
            boards += 1;
        }
    }
    assert!(boards > 10, "{boards}");
}

/// `MLPerf` training, SSD: 0.80.
#[test]
fn the_power_limit_of_an_h100_nvl_puts_it_below_the_sxm() {
    let device = |id: &str| DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("shipped"));
    for precision in [Precision::F32, Precision::MixedBf16] {
        let mode = Mode::new(precision, false);
        let ratio =
            relative_speed(&device("h100-nvl"), &device("h100-sxm5-80gb"), mode, BALANCED_WIDTH).expect("rates");
        assert!(ratio < 1.0 && ratio / 0.80 < TRANSFER_ERROR, "{precision}: {ratio}");
    }
}

#[test]
fn every_laptop_gpu_names_the_power_class_of_its_figures() {
    for profile in ProfileTable::builtin().iter().filter(|profile| profile.mobile) {
        let notes = profile.notes.as_deref().unwrap_or_default();
        let class = profile.board.tdp_w.map(|watts| format!("{watts} W"));
        assert!(class.is_none_or(|class| notes.contains("class") && notes.contains(&class)), "{}: {notes}", profile.id);
    }
}

/// `generic` is by definition the slowest board of its memory and bandwidth; drivers report up to 5% less memory.
#[test]
fn the_generic_profile_promises_no_more_than_any_board_of_its_class() {
    let generic = ProfileTable::builtin().get(ProfileId::GENERIC).expect("shipped");
    let is_in_class = |profile: &&Profile| {
        let Profile { memory, .. } = profile;
        memory.nominal_mib >= generic.memory.nominal_mib && memory.bandwidth_gb_s >= generic.memory.bandwidth_gb_s
    };
    let generic_facts = DeviceFacts::nominal(generic);
    assert!(!generic_facts.has_tf32 && !generic_facts.has_bf16 && !generic_facts.has_f16);
    let boards = ProfileTable::builtin().iter().filter(is_in_class);
    let boards: Vec<_> =
        boards.filter(|profile| !profile.mobile && !profile.compute_capability.is_integrated()).collect();
    assert!(boards.len() > 100, "{}", boards.len());
    for profile in boards {
        let facts = DeviceFacts::nominal(profile);
        assert!(generic_facts.memory_available.scaled(0.95) <= facts.memory_available, "{}", profile.id);
        assert!(generic_facts.fp32_tflops <= facts.fp32_tflops || facts.refusal.is_some(), "{}", profile.id);
        let (least, rates) = (generic_facts.rates, facts.rates);
        for (least, rate) in [(least.fp32, rates.fp32), (least.tf32, rates.tf32), (least.fp16, rates.fp16)] {
            assert!(least <= rate, "{}", profile.id);
        }
        assert!(least.bf16 <= rates.bf16, "{}", profile.id);
    }
}

#[test]
fn products_of_one_series_rank_by_their_names() {
    for series in [
        &["rtx3050-laptop-4gb", "rtx3050-ti-laptop", "rtx3060-laptop", "rtx3070-laptop", "rtx3070-ti-laptop"][..],
        &["rtx3070-ti-laptop", "rtx3080-laptop-16gb", "rtx3080-ti-laptop"],
        &["rtx4050-laptop", "rtx4060-laptop", "rtx4070-laptop", "rtx4080-laptop", "rtx4090-laptop"],
        &[
            "rtx5050-laptop",
            "rtx5060-laptop",
            "rtx5070-laptop",
            "rtx5070-ti-laptop",
            "rtx5080-laptop",
            "rtx5090-laptop",
        ],
        &["rtx5090-d-v2", "rtx5090-d", "rtx5090"],
        &["rtx-pro-6000-bw-maxq", "rtx-pro-6000-bw-ws"],
        &["rtx-pro-6000-bw-server", "rtx-pro-6000-bw-ws"],
    ] {
        let speed = |id: &&str| {
            let profile = ProfileTable::builtin().get(id).expect("shipped");
            let peak = profile.peaks.bf16.as_ref().expect("a peak").tflops;
            (peak * profile.memory.bandwidth_gb_s.expect("a bandwidth")).sqrt()
        };
        let speeds: Vec<f64> = series.iter().map(speed).collect();
        assert!(speeds.is_sorted(), "{series:?}: {speeds:?}");
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
fn every_profile_recognises_itself_unless_a_driver_cannot_tell_it_from_another() {
    let mut ambiguous = Vec::new();
    for profile in ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty()) {
        match identify(&reading(profile), &ProfileTable::default()) {
            Match::Exact { profile: found } => assert_eq!(found.id, profile.id),
            Match::Variant { differences, .. } if matches!(&differences[..], [Difference::Ambiguous { .. }]) => {
                ambiguous.push(profile.id.as_str());
            }
            other => panic!("{}: {other:?}", profile.id),
        }
    }
    let modules = ["jetson-orin-nano-8gb", "jetson-orin-nano-super-8gb", "jetson-orin-nx-8gb"];
    assert_eq!(ambiguous, [&["gtx1650", "gtx1650-gddr6"], &modules[..]].concat());
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
    assert_eq!(named("NVIDIA RTX A4000H"), None);
}
