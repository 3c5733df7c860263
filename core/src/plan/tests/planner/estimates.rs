//! Plans for GPUs whose rates are not reported, beside the plans for the same GPUs with all figures.

use gpu_tuned_core::device::{DeviceFacts, EstimatedFigure, GpuReading};
use gpu_tuned_core::plan::{ESTIMATE_ERROR, Plan, PlanError};
use gpu_tuned_core::profile::{Peaks, Profile, ProfileTable};
use gpu_tuned_core::workload::{Block, Convnet, Mlp, Recurrent, Stage, Transformer, Unet, Workload};
use gpu_tuned_core::{Bytes, Goal, plan};

/// Largest ratio of micro-batches, in either direction.
const MICRO_BATCHES: f64 = 2.0;
/// Largest ratio of speeds, in either direction.
const SPEEDS: f64 = 3.1;

/// A workload of each family, small enough for every GPU.
fn workloads() -> Vec<(&'static str, Workload)> {
    let stages = |channels: &[u64]| channels.iter().map(|&channels| Stage { channels, blocks: 2 }).collect();
    let convnet =
        Convnet { image: 64, classes: 10, block: Block::Basic, stages: stages(&[64, 128]), ..Convnet::default() };
    let unet = Unet { image: 64, classes: 2, widths: vec![16, 32, 64], ..Unet::default() };
    vec![
        ("transformer", Transformer::new(6, 512, 8192, 256).workload()),
        ("convnet", convnet.workload()),
        (
            "recurrent",
            Recurrent { inputs: 8, hidden: 256, layers: 2, seq: 60, outputs: 1, ..Recurrent::default() }.workload(),
        ),
        ("mlp", Mlp { widths: vec![784, 4096, 4096, 10] }.workload()),
        ("unet", unet.workload()),
    ]
}

fn profiles() -> impl Iterator<Item = &'static Profile> {
    let is_gpu = |profile: &&Profile| profile.id.as_str() != "generic";
    ProfileTable::builtin().iter().filter(is_gpu).filter(|profile| profile.compute_capability.refusal().is_none())
}

/// Plans for a GPU by all of its figures, to compare plans by some of them with.
struct Whole {
    plans: Vec<(&'static str, Workload, Plan)>,
    /// Facts that were compared.
    compared: Vec<DeviceFacts>,
}

fn planned(facts: &DeviceFacts, workload: &Workload) -> Result<Plan, PlanError> {
    plan(facts, workload, &Goal { global_batch: Some(256), ..Goal::default() })
}

impl Whole {
    /// `None` for a GPU on which nothing trains.
    fn new(profile: &Profile) -> Option<Self> {
        let facts = DeviceFacts::nominal(profile);
        let plan = |(name, workload): (_, Workload)| Some((name, workload.clone(), planned(&facts, &workload).ok()?));
        let plans = workloads().into_iter().map(plan).collect::<Option<_>>()?;
        Some(Self { plans, compared: vec![facts] })
    }

    fn assert_near(&mut self, what: &str, some: DeviceFacts) {
        if self.compared.contains(&some) {
            return;
        }
        for (name, workload, full) in &self.plans {
            let plan = planned(&some, workload).unwrap_or_else(|error| panic!("{what}, {name}: {error}"));
            let ratio = plan.settings.batch_size as f64 / full.settings.batch_size as f64;
            let range = 1.0 / MICRO_BATCHES..=MICRO_BATCHES;
            assert!(range.contains(&ratio), "{what}, {name}: micro-batch {ratio}\n{full}\n{plan}");
            let ratio = plan.samples_per_s / full.samples_per_s;
            let range = 1.0 / SPEEDS..=SPEEDS;
            assert!(range.contains(&ratio), "{what}, {name}: speed {ratio}\n{full}\n{plan}");
        }
        self.compared.push(some);
    }
}

/// Shipped GPUs that train, with their plans.
fn whole_gpus() -> Vec<(&'static Profile, Whole)> {
    let all: Vec<_> = profiles().filter_map(|profile| Some((profile, Whole::new(profile)?))).collect();
    assert!(all.len() * 10 > profiles().count() * 9, "{} GPUs train", all.len());
    all
}

/// Every subset of `count` things, as a bit mask; the empty one excepted.
fn subsets(count: u32) -> impl Iterator<Item = u32> {
    1..1 << count
}

#[test]
fn a_profile_without_some_of_its_rates_has_nearly_the_plan_of_the_whole() {
    for (profile, mut whole) in whole_gpus() {
        for removed in subsets(4) {
            let mut cut = profile.clone();
            if removed & 1 != 0 {
                (cut.compute.sm_count, cut.compute.cuda_cores) = (None, None);
            }
            if removed & 2 != 0 {
                cut.compute.boost_mhz = None;
            }
            if removed & 4 != 0 {
                cut.peaks = Peaks::default();
            }
            if removed & 8 != 0 {
                cut.memory.bandwidth_gb_s = None;
            }
            whole.assert_near(&format!("{} without {removed:04b}", profile.id), DeviceFacts::nominal(&cut));
        }
    }
}

/// A driver's reading of the GPU under a name that no profile has. `reported`: SM count, SM clock, bus width, memory clock.
fn unnamed(profile: &Profile, reported: u32) -> GpuReading {
    let if_reported = |bit: u32, figure: Option<u32>| figure.filter(|_| reported & bit != 0);
    let mut reading = GpuReading::default();
    reading.name = profile.names.first().map(|name| format!("{name} of a make without a profile"));
    reading.compute_capability = Some(profile.compute_capability);
    reading.memory_total = Some(profile.memory.usable());
    reading.sm_count = if_reported(1, profile.compute.sm_count);
    reading.max_sm_clock_mhz = if_reported(2, profile.compute.boost_mhz.map(|clock| clock as u32));
    reading.memory_bus_bits = if_reported(4, profile.memory.bus_bits);
    let clock = |bits: u32| Some((profile.memory.bandwidth_gb_s? * 4e3 / f64::from(bits)) as u32);
    reading.max_memory_clock_mhz = if_reported(8, profile.memory.bus_bits.and_then(clock));
    reading
}

#[test]
fn a_gpu_without_a_profile_has_nearly_its_plan_whatever_the_driver_reports() {
    for (profile, mut whole) in whole_gpus() {
        for reported in [0].into_iter().chain(subsets(4)) {
            let facts =
                DeviceFacts::from_reading(&unnamed(profile, reported), None, None).expect("its memory is known");
            whole.assert_near(&format!("{} with {reported:04b}", profile.id), facts);
        }
    }
}

#[test]
fn placeholders_are_replaced_by_estimates() {
    for (profile, mut whole) in whole_gpus() {
        for figure in [1, u32::MAX] {
            let mut reading = unnamed(profile, 0);
            reading.sm_count = Some(figure);
            reading.max_sm_clock_mhz = Some(figure);
            (reading.memory_bus_bits, reading.max_memory_clock_mhz) = (Some(figure), Some(figure));
            let facts = DeviceFacts::from_reading(&reading, None, None).expect("its memory is known");
            whole.assert_near(&format!("{} with {figure} everywhere", profile.id), facts);
            let facts = DeviceFacts::from_reading(&reading, Some(profile), None).expect("its memory is known");
            whole.assert_near(&format!("{} as its profile with {figure} everywhere", profile.id), facts);
        }
    }
}

#[test]
fn what_is_estimated_is_named_and_widens_the_interval_of_speeds() {
    let mut reading = GpuReading::default();
    reading.name = Some("NVIDIA GeForce RTX 3099".to_owned());
    reading.compute_capability = Some("8.6".parse().expect("a capability"));
    reading.memory_total = Some(Bytes::from_mib(12288));
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    let planned = |reading: &GpuReading| {
        let facts = DeviceFacts::from_reading(reading, None, None).expect("its memory is known");
        (facts.estimated.clone(), plan(&facts, &workload, &Goal::default()).expect("it fits"))
    };
    let (estimated, plan) = planned(&reading);
    assert_eq!(estimated, [EstimatedFigure::SmCount, EstimatedFigure::Fp32, EstimatedFigure::Bandwidth]);
    let remark = "estimates by compute capability and memory, as neither driver nor profile has them: SM count, fp32 peak, bandwidth";
    assert!(plan.to_string().contains(remark), "{plan}");
    let width = |plan: &Plan| plan.samples_per_s_interval.map(|[low, high]| (high / low).sqrt());
    let wide = width(&plan).expect("a predicted speed has an interval");

    reading.sm_count = Some(80);
    reading.max_sm_clock_mhz = Some(2100);
    (reading.memory_bus_bits, reading.max_memory_clock_mhz) = (Some(384), Some(9501));
    let (estimated, plan) = planned(&reading);
    assert_eq!(estimated, []);
    assert!(!plan.to_string().contains("estimates by"), "{plan}");
    let narrow = width(&plan).expect("a predicted speed has an interval");
    assert!((wide / narrow - ESTIMATE_ERROR).abs() < 1e-9, "{wide} {narrow}");
}

#[test]
fn a_reported_count_leaves_the_figures_of_a_profile_without_a_count() {
    let mut profile = ProfileTable::builtin_profile("rtx3060-12gb").expect("shipped");
    (profile.compute.sm_count, profile.compute.cuda_cores) = (None, None);
    let nominal = DeviceFacts::nominal(&profile);
    assert_eq!(nominal.estimated, [EstimatedFigure::SmCount]);
    for sm_count in [20, 28] {
        let mut reading = GpuReading::default();
        reading.sm_count = Some(sm_count);
        let facts = DeviceFacts::from_reading(&reading, Some(&profile), None).expect("the profile has its memory");
        assert_eq!((facts.sm_count, &facts.estimated[..]), (sm_count, &[][..]));
        assert_eq!((facts.fp32_tflops, facts.bandwidth_gb_s), (nominal.fp32_tflops, nominal.bandwidth_gb_s));
        assert_eq!(facts.rates, nominal.rates);
    }
}
