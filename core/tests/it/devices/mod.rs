//! Matching of generated devices: boards from the profile table, and impossible ones.
//!
//! The tests repeat the matching rule in whole numbers. A GPU matches a profile exactly if no other profile agrees
//! with the driver's report.

mod anomalies;
mod precision;
mod readings;
mod unified;

use gpu_tuned_core::device::{DeviceFacts, GpuReading, MigSize, ProductName, Virtualization};
use gpu_tuned_core::matching::{Difference, Match, identify};
use gpu_tuned_core::profile::{Fault, Profile, ProfileTable, Strictness, faults};
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal, plan};
use gpu_tuned_project::profile_text::describe;
use proptest::prelude::*;

use anomalies::INSEPARABLE;
use readings::{
    boards, devices, garbage, mangled_names, memory_on_record, named_profiles, partial_readings, without_maker,
};

/// Returns true if the driver's report does not contradict the profile.
fn agrees(profile: &Profile, reading: &GpuReading) -> bool {
    let Some(name) = reading.name.as_deref().map(without_maker) else { return false };
    let mib = 1u128 << 20;
    let near = |found: u128, mib_on_record: u64| found.abs_diff(u128::from(mib_on_record) * mib) * 40;
    // The host's kernel reports three quarters of unified memory at least.
    let nominal = u128::from(profile.memory.nominal_mib) * mib;
    let is_hosts =
        |found: u128| profile.compute_capability.is_integrated() && (nominal * 3..=nominal * 4).contains(&(found * 4));
    let has_memory = |found: Bytes| {
        is_hosts(found.0.into())
            || memory_on_record(profile).into_iter().any(|mib_| near(found.0.into(), mib_) <= u128::from(mib_) * mib)
    };
    profile.names.iter().any(|product| without_maker(product) == name)
        && reading.pci_id.is_none_or(|id| profile.pci_ids.is_empty() || profile.pci_ids.contains(&id))
        && reading.memory_total.map_or(!profile.modified, has_memory)
        && reading.compute_capability.is_none_or(|capability| capability == profile.compute_capability)
        && reading.sm_count.is_none_or(|count| profile.compute.sm_count.is_none_or(|expected| expected == count))
        && reading.mig.is_none()
        && reading.virtualization != Some(Virtualization::Vgpu)
}

fn shipped(reading: &GpuReading) -> Match {
    identify(reading, &ProfileTable::default())
}

fn assert_exact(reading: &GpuReading, id: &str) {
    let found = shipped(reading);
    assert!(matches!(&found, Match::Exact { profile } if profile.id.as_str() == id), "{id}, {reading:?}: {found:?}");
}

/// The nearest profile of a variant, and the differences.
fn variant(reading: &GpuReading) -> (Profile, Vec<Difference>) {
    match shipped(reading) {
        Match::Variant { profile, differences } => (*profile, differences),
        other => panic!("{reading:?}: {other:?}"),
    }
}

/// Facts of a reading, with the figures of its profile.
pub(crate) fn facts(reading: &GpuReading) -> DeviceFacts {
    DeviceFacts::from_reading(reading, shipped(reading).profile(), None).expect("its memory is known")
}

/// The matched profile and equally near ones.
fn candidates(found: &Match) -> Vec<String> {
    let nearest = found.profile().map(|profile| profile.id.to_string());
    let others = match found {
        Match::Variant { differences, .. } => differences.iter().find_map(|difference| match difference {
            Difference::Ambiguous { with } => Some(with.iter().map(ToString::to_string)),
            _ => None,
        }),
        _ => None,
    };
    nearest.into_iter().chain(others.into_iter().flatten()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_fully_described_board_is_its_profile_or_is_marked_ambiguous((profile, reading) in boards()) {
        let found = shipped(&reading);
        let is_its_own = matches!(&found, Match::Exact { profile: it } if it.id == profile.id);
        let group = INSEPARABLE.iter().find(|group| group.contains(&profile.id.as_str()));
        let is_ambiguous = group.is_some_and(|group| {
            let candidates = candidates(&found);
            candidates.iter().all(|id| group.contains(&id.as_str())) && candidates.contains(&profile.id.to_string())
        });
        prop_assert!(is_its_own || is_ambiguous, "{found:?}");
    }

    #[test]
    fn a_device_is_exactly_the_only_profile_that_nothing_contradicts(reading in devices()) {
        let agreeing: Vec<_> = named_profiles().into_iter().filter(|profile| agrees(profile, &reading)).collect();
        match (shipped(&reading), &agreeing[..]) {
            (Match::Exact { profile }, [only]) => prop_assert_eq!(&profile.id, &only.id),
            (Match::Exact { profile }, others) => prop_assert!(false, "{} and not one of {}", profile.id, others.len()),
            (found, agreeing) => prop_assert!(agreeing.len() != 1, "{found:?} is {}", agreeing[0].id),
        }
    }

    #[test]
    fn an_unanswered_field_never_makes_a_board_another_one((profile, reading) in partial_readings()) {
        prop_assume!(!profile.modified || reading.memory_total.is_some());
        let found = shipped(&reading);
        if reading.name.is_some() || reading.pci_id.is_some() {
            prop_assert!(candidates(&found).contains(&profile.id.to_string()), "{found:?}");
        } else {
            prop_assert_eq!(found.profile(), None);
        }
    }

    #[test]
    fn a_part_of_a_name_or_more_than_it_is_never_exact(name in mangled_names()) {
        let is_whole = |profile: &&Profile| profile.names.iter().any(|it| without_maker(it) == without_maker(&name));
        prop_assume!(!named_profiles().iter().any(is_whole));
        let mut reading = GpuReading::default();
        reading.name = Some(name);
        let found = shipped(&reading);
        prop_assert!(!matches!(found, Match::Exact { .. }), "{found:?}");
    }

    #[test]
    fn facts_promise_no_more_memory_than_the_driver_and_only_finite_rates(reading in devices()) {
        let found = shipped(&reading);
        for profile in [None, found.profile()] {
            let Some(facts) = DeviceFacts::from_reading(&reading, profile, Some(8)) else { continue };
            // A total of zero is no report.
            let total = reading.memory_total.filter(|total| *total > Bytes::ZERO);
            prop_assert!(total.is_none_or(|total| facts.memory_total <= total));
            prop_assert!(reading.memory_free.is_none_or(|free| facts.memory_available <= free));
            prop_assert!(facts.memory_available <= facts.memory_total);
            let rates = [facts.rates.fp32, facts.rates.tf32, facts.rates.fp16, facts.rates.bf16];
            for rate in rates.into_iter().chain([facts.fp32_tflops, facts.bandwidth_gb_s]).flatten() {
                prop_assert!(rate.is_finite() && rate > 0.0, "{facts:?}");
            }
            if let Ok(plan) = plan(&facts, &Transformer::new(2, 64, 512, 32).workload(), &Goal::default()) {
                prop_assert!(plan.memory.total() <= facts.memory_available);
            }
        }
    }

    #[test]
    fn a_described_profile_has_no_faults(reading in devices()) {
        let (faults, text) = faults_of_description(&reading);
        prop_assert_eq!(faults, [], "{}", text);
    }

    #[test]
    fn any_text_is_a_name(text in garbage()) {
        let name = ProductName::parse(&text);
        prop_assert!(name.is_vgpu || name.is_mig_slice || name.is_of(&text));
    }
}

/// Faults of the profile that describes a GPU, and its text; none without a description.
fn faults_of_description(reading: &GpuReading) -> (Vec<Fault>, String) {
    let found = shipped(reading);
    let exact = if let Match::Exact { profile } = &found { Some(&**profile) } else { None };
    let Ok(described) = describe(reading, exact, |_| false) else { return (Vec::new(), String::new()) };
    let table: toml::Table = described.text.parse().expect("TOML");
    let mut profile = table["profile"][described.id.as_str()].as_table().expect("a table").clone();
    profile.insert("id".to_owned(), described.id.as_str().into());
    let profile: Profile = profile.try_into().expect("a profile");
    (faults(&profile, Strictness::User), described.text)
}

/// The profile of the L2 has published peaks, and no number of SMs.
#[test]
fn published_peaks_are_not_those_of_another_number_of_sms() {
    let mut reading = reading("NVIDIA L2");
    (reading.sm_count, reading.memory_bus_bits) = (Some(20), Some(128));
    assert!(matches!(shipped(&reading), Match::Exact { .. }));
    assert_eq!(faults_of_description(&reading).0, []);
}

/// 48 GiB, the most that are possible for its compute capability, would be sold as 49.5 with its bus.
#[test]
fn a_board_whose_sold_size_is_implausible_is_not_described() {
    let mut reading = reading("NVIDIA GeForce GTX 1080 Ti");
    reading.compute_capability = "6.1".parse().ok();
    (reading.memory_total, reading.memory_bus_bits) = (Some(Bytes::from_mib(49_140)), Some(352));
    assert!(describe(&reading, None, |_| false).is_err());
    reading.memory_bus_bits = Some(384);
    assert_eq!(describe(&reading, None, |_| false).map(|_| faults_of_description(&reading).0), Ok(Vec::new()));
}

fn reading(name: &str) -> GpuReading {
    let mut reading = GpuReading::default();
    reading.name = Some(name.to_owned());
    reading
}

#[test]
fn a_users_profile_replaces_an_indistinguishable_shipped_one() {
    let base = ProfileTable::builtin_profile("rtx4090").expect("shipped");
    let mut faster = base.clone();
    faster.id = "mine".parse().expect("an id");
    faster.memory.bandwidth_gb_s = Some(1_100.0);
    let mut larger = base;
    larger.id = "larger".parse().expect("an id");
    (larger.memory.nominal_mib, larger.memory.nvml_total_mib) = (65536, vec![65520]);
    larger.memory.cuda_total_mib.clear();
    let named = reading("NVIDIA GeForce RTX 4090");
    let mut measured = named.clone();
    measured.memory_total = Some(Bytes::from_mib(65520));

    let mut standard = named.clone();
    standard.memory_total = Some(Bytes::from_mib(24564));
    let found = identify(&standard, &ProfileTable::from_iter([faster.clone()]));
    assert!(matches!(&found, Match::Exact { profile } if profile.id.as_str() == "mine"), "{found:?}");
    let found = identify(&measured, &ProfileTable::from_iter([larger.clone()]));
    assert!(matches!(&found, Match::Exact { profile } if profile.id.as_str() == "larger"), "{found:?}");
    // An ambiguous report matches the profile with less memory, as a variant.
    let found = identify(&named, &ProfileTable::from_iter([larger]));
    assert!(matches!(found, Match::Variant { .. }));
    assert_eq!(candidates(&found), ["rtx4090", "larger"]);
}

#[test]
fn a_share_is_always_a_variant_of_its_gpu() {
    // GRID V100D-8C, A40-12Q and the slices: anomalies of the data sheet table; the rest: NVIDIA's vGPU types reference.
    for (name, mib, id, difference) in [
        ("GRID V100D-8C", Some(8192), "v100-pcie-32gb", Difference::Vgpu),
        ("GRID V100D-8Q", None, "v100-pcie-32gb", Difference::Vgpu),
        ("GRID T4-16Q", Some(16384), "t4", Difference::Vgpu),
        ("NVIDIA A40-12Q", Some(12288), "a40", Difference::Vgpu),
        ("NVIDIA A40-48Q", Some(49152), "a40", Difference::Vgpu),
        ("NVIDIA H100XM-80C", Some(81920), "h100-sxm5-80gb", Difference::Vgpu),
        ("NVIDIA H200-141C", Some(144_384), "h200-nvl", Difference::Vgpu),
        ("NVIDIA A100 80GB PCIe MIG 1g.10gb", Some(9728), "a100-pcie-80gb", Difference::MigSlice),
        ("NVIDIA H100 80GB HBM3 MIG 7g.80gb", None, "h100-sxm5-80gb", Difference::MigSlice),
    ] {
        let mut reading = reading(name);
        reading.memory_total = mib.map(Bytes::from_mib);
        let (profile, differences) = variant(&reading);
        assert_eq!(profile.id.as_str(), id, "{name}");
        assert!(differences.contains(&difference), "{name}: {differences:?}");
        let facts = DeviceFacts::from_reading(&reading, Some(&profile), None);
        assert_eq!(facts.map(|facts| facts.memory_total), reading.memory_total, "{name}");
    }
}

/// Listings of `nvidia-smi mig -lgip`: SMs, and memory in GiB.
#[test]
fn a_planned_mig_slice_has_the_sms_and_no_more_memory_than_listed() {
    for (id, compute, memory_gb, sm_count, gib) in [
        ("a100-sxm4-40gb", 1, 5, 14, 4.75),
        ("a100-sxm4-40gb", 7, 40, 98, 39.25),
        ("a100-sxm4-80gb", 1, 10, 14, 9.5),
        ("a100-sxm4-80gb", 1, 20, 14, 19.5),
        ("h100-sxm5-80gb", 1, 10, 16, 9.75),
        ("h100-sxm5-80gb", 2, 20, 32, 19.62),
        ("h100-sxm5-80gb", 4, 40, 64, 39.5),
        ("h200", 1, 18, 16, 16.0),
    ] {
        let size = MigSize { compute, memory_gb };
        let profile = ProfileTable::builtin().get(id).expect("it is shipped");
        let slice = DeviceFacts::nominal_slice(profile, size).expect("it is listed");
        let part = slice.memory_total.mib() / (gib * 1024.0);
        assert_eq!((slice.name, slice.sm_count), (format!("{id} {size}"), sm_count));
        assert!((0.89..=1.0).contains(&part), "{id} {size}: {part:.2} of the listed memory");
        let whole = DeviceFacts::nominal(profile).fp32_tflops.expect("it is published");
        let share = f64::from(sm_count) / f64::from(profile.compute.sm_count.expect("it is published"));
        assert!((slice.fp32_tflops.expect("it is scaled") / whole / share - 1.0).abs() < 1e-9, "{id} {size}");
    }
}
