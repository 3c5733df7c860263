use EstimatedFigure::{Bandwidth, Fp32, SmCount, Tensor};

use gpu_tuned_core::device::{ComputeCapability, DeviceFacts, EstimatedFigure, GpuReading, MigSlice};
use gpu_tuned_core::plan::{ESTIMATE_ERROR, Plan};
use gpu_tuned_core::profile::{NoDescription, Peak, Profile, ProfileId, ProfileTable};
use gpu_tuned_core::source::Source;
use gpu_tuned_core::{Bytes, Goal, plan};

use super::{DescribedGpu, base, describe};

/// A full reading of the profile's GPU, by NVML and CUDA.
fn reading(profile: &Profile) -> GpuReading {
    let mut reading = GpuReading::default();
    let memory = &profile.memory;
    reading.name = profile.names.first().cloned();
    reading.pci_id = profile.pci_ids.first().copied();
    reading.compute_capability = Some(profile.compute_capability);
    reading.memory_total = Some(Bytes::from_mib(*memory.nvml_total_mib.iter().min().unwrap_or(&memory.nominal_mib)));
    reading.cuda_memory_total = memory.cuda_total_mib.iter().min().copied().map(Bytes::from_mib);
    reading.sm_count = profile.compute.sm_count;
    reading.memory_bus_bits = memory.bus_bits;
    let clock = |(bits, rate): (u32, f64)| (rate * 1e3 * 8.0 / f64::from(bits) / 2.0).round() as u32;
    reading.max_memory_clock_mhz = memory.bus_bits.zip(memory.bandwidth_gb_s).map(clock);
    reading.boost_clock_mhz = profile.compute.boost_mhz.map(|clock| clock as u32);
    reading.l2_cache = profile.compute.l2_mib.map(|mib| Bytes((mib * 1024.0 * 1024.0) as u64));
    reading.default_power_limit_mw = profile.board.tdp_w.map(|watts| (watts * 1e3) as u32);
    reading
}

/// The profile that a user's file with this text has.
fn parsed(described: &DescribedGpu) -> Profile {
    use toml::de::{DeTable, DeValue};

    let document = DeTable::parse(&described.text).unwrap_or_else(|error| panic!("{error}\n{}", described.text));
    let (_, profiles) = document.into_inner().into_iter().next().expect("a section");
    let DeValue::Table(profiles) = profiles.into_inner() else { panic!("no table") };
    let (id, profile) = profiles.into_iter().next().expect("a profile");
    let span = profile.span();
    let DeValue::Table(profile) = profile.into_inner() else { panic!("no table") };
    let source = Source { file: "gpu-tuned.toml", text: &described.text };
    let profile = ProfileTable::parse_user(&id, toml::Spanned::new(span, profile), source);
    profile.unwrap_or_else(|error| panic!("{error:?}\n{}", described.text))
}

fn shipped() -> impl Iterator<Item = &'static Profile> {
    ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty())
}

fn is_shipped(id: &str) -> bool {
    ProfileTable::builtin().get(id).is_some()
}

fn unused(_: &str) -> bool {
    false
}

/// Figures of a profile that the driver reports, and peaks.
fn figures(profile: &Profile) -> Vec<(&'static str, Option<f64>)> {
    let Profile { memory, compute, peaks, board, .. } = profile;
    let peak = |peak: &Option<Peak>| peak.as_ref().map(|peak| peak.tflops);
    vec![
        ("nominal_mib", Some(memory.nominal_mib as f64)),
        ("usable", Some(memory.usable().mib())),
        ("bus_bits", memory.bus_bits.map(f64::from)),
        ("bandwidth_gb_s", memory.bandwidth_gb_s),
        ("sm_count", compute.sm_count.map(f64::from)),
        ("cuda_cores", compute.cuda_cores.map(f64::from)),
        ("boost_mhz", compute.boost_mhz),
        ("l2_mib", compute.l2_mib),
        ("tdp_w", board.tdp_w),
        ("fp32", peak(&peaks.fp32)),
        ("tf32", peak(&peaks.tf32)),
        ("bf16", peak(&peaks.bf16)),
        ("fp16", peak(&peaks.fp16)),
    ]
}

#[test]
fn a_gpu_of_the_table_agrees_with_its_profile() {
    let mut others = Vec::new();
    for profile in shipped() {
        let described = describe(&reading(profile), Some(profile), unused).expect("a whole GPU");
        assert_eq!(described.id, profile.id);
        let printed = parsed(&described);
        assert_eq!(printed.architecture, profile.architecture, "{}", profile.id);
        assert_eq!(printed.mobile, profile.mobile, "{}", profile.id);
        assert_eq!(printed.compute.half_rate_fp32_accumulate, profile.compute.half_rate_fp32_accumulate);
        for ((figure, printed), (_, shipped)) in figures(&printed).into_iter().zip(figures(profile)) {
            let Some((printed, shipped)) = printed.zip(shipped) else { continue };
            if (printed / shipped - 1.0).abs() > 0.05 {
                others.push(format!("{}: {figure} {printed}, not {shipped}", profile.id));
            }
        }
    }
    assert_eq!(others, Vec::<String>::new());
}

#[test]
fn a_gpu_outside_the_table_gets_its_reported_figures_and_estimates_that_are_near() {
    let (mut far, mut peaks) = (Vec::new(), Vec::new());
    for profile in shipped() {
        let described = describe(&reading(profile), None, is_shipped).expect("a whole GPU");
        let printed = parsed(&described);
        for ((figure, printed), (_, shipped)) in figures(&printed).into_iter().zip(figures(profile)) {
            let Some((printed, shipped)) = printed.zip(shipped) else { continue };
            let is_estimate = described.text.contains(&format!("\n{figure} = {printed:.1} # estimated"));
            let ratio = (printed / shipped).max(shipped / printed);
            match figure {
                "fp32" | "tf32" | "bf16" | "fp16" => peaks.push(ratio),
                _ if ratio > if is_estimate { 3.0 } else { 1.05 } => {
                    far.push(format!("{}: {figure} {printed}, not {shipped}", profile.id));
                }
                _ => {}
            }
        }
    }
    assert_eq!(far, Vec::<String>::new());
    // Boards for export and some for servers have a fraction of their chip's tensor rate.
    let near = peaks.iter().filter(|ratio| **ratio < 1.35).count();
    assert!(near * 100 >= peaks.len() * 95 && peaks.iter().all(|ratio| *ratio < 4.0), "{near} of {}", peaks.len());
}

#[test]
fn a_profile_of_few_figures_names_each_estimate_and_plans() {
    let reading = ampere(Some("NVIDIA GeForce RTX 3095 \"\u{202e}\n"), 12);
    let described = describe(&reading, None, unused).expect("a whole GPU");
    assert_eq!(described.id.as_str(), "rtx3095");
    let profile = parsed(&described);
    assert_eq!(profile.names, [reading.name.expect("named")]);
    for key in ["bandwidth_gb_s", "sm_count", "boost_mhz", "fp32", "bf16"] {
        let line = described.text.lines().find(|line| line.starts_with(&format!("{key} ="))).expect("a line");
        assert!(line.contains("# estimated: "), "{line}");
    }
    let facts = DeviceFacts::nominal(&profile);
    assert_eq!(facts.estimated, [SmCount, Fp32, Bandwidth, Tensor]);
    let workload = gpu_tuned_core::workload::Transformer::new(6, 512, 8192, 256).workload();
    let read_back = plan(&facts, &workload, &Goal::default()).expect("it fits");
    assert!(
        read_back
            .to_string()
            .contains("neither driver nor profile has them: SM count, fp32 peak, bandwidth, tensor peaks"),
        "{read_back}"
    );
    let known = DeviceFacts { estimated: Vec::new(), ..facts };
    let known = plan(&known, &workload, &Goal::default()).expect("it fits");
    let width = |plan: &Plan| plan.samples_per_s_interval.map(|[low, high]| (high / low).sqrt());
    let wider = width(&read_back).zip(width(&known)).map(|(wide, narrow)| wide / narrow);
    assert!(wider.is_some_and(|wider| (wider - ESTIMATE_ERROR).abs() < 1e-9), "{wider:?}");
}

#[test]
fn names_of_other_profiles_are_not_taken() {
    let rtx4090 = ProfileTable::builtin_profile("rtx4090").expect("shipped");
    let mut modified = reading(&rtx4090);
    modified.memory_total = Some(Bytes::from_mib(49_140));
    let named = |taken: &[&str]| {
        let described = describe(&modified, None, |id| taken.contains(&id)).expect("a whole GPU");
        described.id.to_string()
    };
    assert_eq!(named(&[]), "rtx4090");
    assert_eq!(named(&["rtx4090"]), "rtx4090-48gb");
    assert_eq!(named(&["rtx4090", "rtx4090-48gb"]), "rtx4090-48gb-128sm");
    assert_eq!(named(&["rtx4090", "rtx4090-48gb", "rtx4090-48gb-128sm"]), "rtx4090-48gb-128sm-2");
}

#[test]
fn a_part_or_an_unidentified_gpu_gets_a_reason() {
    let h200 = ProfileTable::builtin_profile("h200").expect("shipped");
    let whole = reading(&h200);
    let mut slice = whole.clone();
    slice.mig = Some(MigSlice { gpu_instance: 9, compute_instance: 0 });
    let mut share = whole.clone();
    share.name = Some("NVIDIA H200X-1-18C".to_owned());
    for part in [slice, share] {
        assert_eq!(describe(&part, Some(&h200), unused), Err(NoDescription::Part));
    }
    let mut unnamed = whole.clone();
    unnamed.name = None;
    assert_eq!(describe(&unnamed, None, unused).map(|it| it.id.to_string()), Ok("sm90".to_owned()));
    unnamed.pci_id = None;
    assert_eq!(describe(&unnamed, None, unused), Err(NoDescription::Identity));
    let mut without_memory = whole.clone();
    without_memory.memory_total = None;
    assert_eq!(describe(&without_memory, None, unused), Err(NoDescription::Memory));
    assert!(describe(&without_memory, Some(&h200), unused).is_ok());
    let mut without_capability = whole;
    without_capability.compute_capability = None;
    assert_eq!(describe(&without_capability, None, unused), Err(NoDescription::ComputeCapability));
    assert!(ProfileId::NATIVE.parse::<ProfileId>().is_err());
}

fn ampere(name: Option<&str>, gib: u64) -> GpuReading {
    let mut reading = GpuReading::default();
    reading.name = name.map(str::to_owned);
    reading.compute_capability = Some(ComputeCapability::new(8, 6));
    reading.memory_total = Some(Bytes::from_mib(gib * 1024));
    reading
}

#[test]
fn a_nameless_gpu_has_its_reported_sm_count() {
    let mut reading = ampere(None, 15);
    reading.pci_id = "10de:25b6".parse().ok();
    reading.sm_count = Some(10);
    let profile = parsed(&describe(&reading, None, unused).expect("a whole GPU"));
    assert_eq!((profile.compute.sm_count, profile.compute.cuda_cores), (Some(10), Some(1280)));
    assert_eq!(profile.estimated, [Bandwidth]);
}

#[test]
fn a_capability_newer_than_the_list_has_its_reported_sm_count_without_cores() {
    let mut reading = ampere(Some("NVIDIA R200"), 288);
    reading.sm_count = Some(160);
    reading.compute_capability = Some(ComputeCapability::new(13, 0));
    let profile = parsed(&describe(&reading, None, unused).expect("a whole GPU"));
    assert_eq!((profile.compute.sm_count, profile.compute.cuda_cores), (Some(160), None));
    assert_eq!(reading.compute_capability.and_then(ComputeCapability::cores_per_sm), Some(128));
}

#[test]
fn absurd_figures_of_a_driver_are_left_out_or_refused() {
    let rtx3060 = ampere(Some("NVIDIA GeForce RTX 3060"), 12);
    for absurd in [0, 1, 33_000, u32::MAX] {
        let mut reading = rtx3060.clone();
        reading.memory_bus_bits = Some(absurd);
        reading.max_memory_clock_mhz = Some(7501);
        reading.boost_clock_mhz = Some(absurd);
        reading.sm_count = Some(absurd);
        reading.l2_cache = Some(Bytes(u64::from(absurd) << 32));
        reading.default_power_limit_mw = Some(absurd / 1024);
        let profile = parsed(&describe(&reading, None, unused).expect("a whole GPU"));
        assert_eq!((profile.memory.bus_bits, profile.compute.l2_mib), (None, None), "{absurd}");
        assert_eq!(profile.estimated, [SmCount, Bandwidth], "{absurd}");
    }
    for gib in [1024, 1 << 30] {
        let mut reading = rtx3060.clone();
        reading.memory_total = Some(Bytes(gib << 30));
        let refused = describe(&reading, None, unused).expect_err("no GPU has that");
        assert!(matches!(refused, NoDescription::ImplausibleMemory { .. }), "{refused}");
        assert_eq!(DeviceFacts::from_reading(&reading, None, None), None);
    }
    for (capability, is_reported) in [((42, 0), false), ((8, 7), true)] {
        let mut reading = rtx3060.clone();
        reading.compute_capability = Some(ComputeCapability::new(capability.0, capability.1));
        let refused = describe(&reading, None, unused);
        let is_shared = matches!(refused, Err(NoDescription::SharedMemory { .. }));
        assert!(refused.is_err() && is_shared == is_reported, "{refused:?}");
    }
}

#[test]
fn sources_of_a_users_profile_are_escaped() {
    let mut own = ProfileTable::builtin_profile("rtx4090").expect("shipped");
    let source = "https://example.org/\"}\n[goal]\n#".to_owned();
    own.peaks.fp32.as_mut().expect("a peak").source.clone_from(&source);
    let text = describe(&reading(&own), Some(&own), unused).expect("a whole GPU").text;
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(table["profile"]["rtx4090"]["peaks"]["fp32"]["source"].as_str(), Some(source.as_str()));
}

#[test]
fn names_follow_those_of_the_shipped_profiles() {
    for (product, name) in [
        ("NVIDIA GeForce RTX 3070 Ti Laptop GPU", Some("rtx3070-ti-laptop")),
        ("GeForce GTX 980", Some("gtx980")),
        ("NVIDIA RTX A4000", Some("rtx-a4000")),
        ("NVIDIA RTX 6000 Ada Generation", Some("rtx6000-ada")),
        ("Tesla P100-PCIE-16GB", Some("p100-pcie-16gb")),
        ("Orin (nvgpu)", Some("orin-nvgpu")),
        ("NVIDIA Graphics Device", Some("device")),
        ("4090", None),
        ("native", None),
        ("NVIDIA CUDA", None),
        ("Default", None),
        ("CPU", None),
        ("all", None),
        ("generic", None),
        ("\u{202e}\n", None),
        ("", None),
    ] {
        assert_eq!(base(product).as_deref(), name, "{product}");
    }
    assert!(base(&"x-".repeat(500)).is_some_and(|name| name.len() < 41));
}

#[test]
fn shipped_profiles_have_the_name_of_their_product() {
    /// Profiles that add or leave out a part of the name.
    const OTHERS: [&str; 13] = [
        "a100-pcie-80gb",
        "a800-pcie-80gb",
        "b300-sxm6",
        "gh200-",
        "h100-sxm5-80gb",
        "h20-141gb",
        "jetson-",
        "quadro-rtx-",
        "rtx-a1000-laptop-6gb",
        "rtx-a2000-laptop-8gb",
        "rtx-a3000-laptop-12gb",
        "rtx-pro-",
        "rtx3050-laptop-6gb",
    ];
    let profiles: Vec<_> = ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty()).collect();
    let is_same = |id: &str, name: &str| base(name).is_some_and(|name| id.starts_with(&name));
    let others = profiles.iter().filter(|profile| !is_same(profile.id.as_str(), &profile.names[0]));
    let others = others.map(|profile| profile.id.as_str());
    let unexpected: Vec<_> = others.filter(|id| !OTHERS.iter().any(|other| id.starts_with(other))).collect();
    assert_eq!(unexpected, [""; 0]);
}
