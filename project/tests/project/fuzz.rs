//! Whatever stands in a file is read or refused with its place, and what is read can be planned with.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::profile::{ProfileId, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Transformer, Workload, WorkloadSpec};
use gpu_tuned_core::{Bytes, Goal, plan};
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;
use gpu_tuned_project::resolved::{Resolved, Selected};
use proptest::prelude::*;
use proptest::sample::select;

use crate::strategies::is_in;
use crate::strategies::mutated::{mutated, mutations};
use crate::strategies::written;

/// Far more than any file takes on a busy machine: what takes longer does not end.
const HANG: Duration = Duration::from_mins(1);

const EVERYTHING: &str = r#"# Own boards, workloads, and the goal.
[profile.mine]
base = "rtx4090"
names = ["NVIDIA GeForce RTX 4090 48GB"]
memory = { nominal_mib = 49152, nvml_total_mib = [49140], cuda_total_mib = [] }
board.tdp_w = 300.0

[workload.digits]
parameters = 60_000
activation_bytes_per_sample = 200_000
flops_per_sample = 1e7
dominant_product = { rows_per_sample = 1, inner = 784, columns = 256 }

[workload.lm]
optimizer = "adafactor"
lora_rank = 8
lora_targets = ["query", "value"]
frozen_weights = "q4"
[workload.lm.transformer]
layers = 6
d_model = 512
vocab = 8192
seq = 256

[workload.images.convnet]
image = 64
classes = 10
stages = [[64, 2], [128, 2]]

[workload.rows.mlp]
widths = [784, 512, 10]

[goal]
global_batch = 512
world_size = 2
precision = "mixed_bf16"
memory_headroom = 0.2
"#;

/// Measurements of a workload on an H200.
const MEASURED: &str = include_str!("../../../cli/tests/fixtures/measured/gpu-tuned.lock");

/// Good files: one with a bit of everything, and every shipped profile as if the user had written it.
static FILES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let file = |profile| {
        let table = ProfileTable::from_iter([ProfileTable::builtin_profile(profile).expect("it is shipped")]);
        toml::to_string(&BTreeMap::from([("profile", table)])).expect("a profile is TOML")
    };
    let users = ProfileTable::builtin_ids().filter(|id| ProfileId::of_user(id).is_ok());
    core::iter::repeat_n(EVERYTHING.to_owned(), 40).chain(users.map(file)).collect()
});

static DEVICES: LazyLock<[DeviceFacts; 3]> = LazyLock::new(|| {
    let nominal = |id| DeviceFacts::nominal(&ProfileTable::builtin_profile(id).expect("it is shipped"));
    let memory = Bytes::from_mib(8192);
    [nominal("gtx1080"), nominal("h200"), DeviceFacts::cpu(memory, memory, 4)]
});

fn parse(text: &str) -> Result<ConfigFile, Vec<FileError>> {
    ConfigFile::parse(Source { file: ConfigFile::NAME, text })
}

fn holds(text: &str) -> Result<(), TestCaseError> {
    let start = Instant::now();
    match parse(text) {
        Err(mistakes) => {
            prop_assert!(!mistakes.is_empty());
            for mistake in mistakes {
                prop_assert!(mistake.file == ConfigFile::NAME && !mistake.message.is_empty(), "{mistake:?}");
                prop_assert!(is_in(&mistake, text), "{mistake}");
            }
        }
        Ok(file) => can_be_used(&file)?,
    }
    prop_assert!(start.elapsed() < HANG, "{:?}", start.elapsed());
    Ok(())
}

fn can_be_used(file: &ConfigFile) -> Result<(), TestCaseError> {
    prop_assert_eq!(file.goal.mistakes(), []);
    for profile in &file.profiles {
        let facts = DeviceFacts::nominal(profile);
        let figures = [facts.fp32_tflops, facts.bandwidth_gb_s];
        prop_assert!(figures.into_iter().flatten().all(f64::is_finite), "{facts:?}");
        for workload in file.workloads.values() {
            is_planned(&facts, &workload.workload(), &file.goal)?;
        }
    }
    for spec in file.workloads.values() {
        prop_assert_eq!(spec.mistakes(), []);
        is_priced(spec, &spec.workload(), &file.goal)?;
    }
    let table = ProfileTable::builtin().iter().chain(&file.profiles).cloned().collect();
    let resolved = Resolved::new(Selected::Generic, Vec::new(), file, &table);
    let read = Resolved::from_toml(&resolved.to_toml());
    prop_assert_eq!(read.map_err(|error| TestCaseError::fail(error.to_string()))?, resolved);
    Ok(())
}

fn is_priced(spec: &WorkloadSpec, workload: &Workload, goal: &Goal) -> Result<(), TestCaseError> {
    let flops = workload.sample.flops;
    prop_assert!(flops.is_finite() && flops > 0.0 && spec.parameters() > 0, "{workload:?}");
    DEVICES.iter().try_for_each(|device| is_planned(device, workload, goal))
}

fn is_planned(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<(), TestCaseError> {
    match plan(device, workload, goal) {
        Ok(plan) => is_sound(&plan, goal),
        Err(error) => {
            let text = error.to_string();
            prop_assert!(!text.is_empty() && !text.contains("NaN"), "{text}");
            Ok(())
        }
    }
}

fn is_sound(plan: &Plan, goal: &Goal) -> Result<(), TestCaseError> {
    let (schedule, text) = (plan.schedule, plan.to_string());
    prop_assert!(plan.memory.fits(), "{text}");
    prop_assert!(plan.samples_per_s.is_finite() && plan.samples_per_s > 0.0, "{text}");
    prop_assert!(!text.contains("NaN") && !text.contains("inf "), "{text}");
    prop_assert_eq!(schedule.samples_per_rank() * schedule.world_size, schedule.global_batch);
    prop_assert_eq!(goal.global_batch.unwrap_or(schedule.global_batch), schedule.global_batch);
    prop_assert_eq!(schedule.micro_steps(), plan.settings.gradient_accumulation);
    Ok(())
}

/// Evenly over the orders of magnitude.
fn figures() -> impl Strategy<Value = u64> {
    prop_oneof![(any::<u64>(), 0u32..64).prop_map(|(figure, shift)| figure >> shift), select(vec![0, u64::MAX])]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_slips_is_read_or_refused_with_places(file in select(&FILES[..]), slips in mutations()) {
        holds(&mutated(&file, slips))?;
    }

    #[test]
    fn a_file_of_dimensions_is_planned_or_refused_with_places(text in written::files()) {
        holds(&text)?;
    }

    #[test]
    fn a_text_is_read_or_refused_with_places(text in prop_oneof![".{0,200}", "[a-c\\[\\]{}=.\",'#0-9e\n -]{0,80}"]) {
        holds(&text)?;
    }

    #[test]
    fn figures_of_any_size_are_planned_or_refused(
        layers in figures(), vocab in figures(), global_batch in proptest::option::of(figures()), world_size in figures(),
        prefetch_mib in figures(), pins in [(); 3].map(|()| proptest::option::of(figures())),
    ) {
        let spec = WorkloadSpec::from(Transformer { layers, vocab, ..Transformer::new(1, 64, 64, 64) });
        let mut goal = Goal { global_batch, world_size, prefetch_mib, ..Goal::default() };
        [goal.pins.batch_size, goal.pins.gradient_accumulation, goal.pins.num_workers] = pins;
        let in_range = layers.max(vocab) <= 1 << 32;
        prop_assert!(spec.mistakes().is_empty() <= in_range, "{:?}", spec.mistakes());
        let spec = if spec.mistakes().is_empty() { spec } else { Transformer::new(1, 64, 64, 64).into() };
        is_priced(&spec, &spec.workload(), &goal)?;
    }

    #[test]
    fn a_damaged_table_is_read_or_refused(slips in mutations(), native in any::<bool>()) {
        let file = parse(EVERYTHING).expect("it is valid");
        let targets = ["h200", "mine"].map(|id| id.parse().expect("an id")).to_vec();
        let selected = if native { Selected::Native(Box::default()) } else { Selected::Targets(targets.clone()) };
        let table = ProfileTable::builtin().iter().chain(&file.profiles).cloned().collect();
        let lock = Lock::parse(Source { file: Lock::NAME, text: MEASURED }).expect("it is valid");
        let resolved = Resolved::new(selected, targets, &file, &table).with_measured(lock);
        let text = mutated(&resolved.to_toml(), slips);
        match Resolved::from_toml(&text) {
            Err(error) => prop_assert!(!error.to_string().is_empty()),
            Ok(read) => {
                let again = Resolved::from_toml(&read.to_toml()).expect("what was read can be written");
                // A number that is none equals nothing, itself included.
                prop_assert_eq!(again.to_toml(), read.to_toml());
                let _ = read.goal.mistakes();
                let described = read.measured.workload.values().filter_map(|entry| entry.described.as_ref());
                for spec in read.workload.values().chain(described) {
                    prop_assert_eq!(spec.mistakes(), []);
                    let workload = read.workload(None, spec);
                    is_priced(spec, &workload, &read.goal)?;
                    // What was measured counts where a precision does that is planned.
                    is_priced(spec, &workload, &Goal { precision: None, ..read.goal.clone() })?;
                }
            }
        }
    }
}

#[test]
fn the_good_files_are_good() {
    for file in &*FILES {
        if let Err(mistakes) = parse(file) {
            panic!("{mistakes:?}\n{file}");
        }
    }
}
