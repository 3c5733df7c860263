//! Plans by measurements: the transformer of 27.3 M parameters on one H200, as it was measured.

mod choice;

use std::collections::BTreeMap;

use crate::device::DeviceFacts;
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::plan::{Plan, Reason};
use crate::profile::ProfileTable;
use crate::workload::{Mlp, Transformer, Workload};
use crate::{Bytes, Goal, Pins, Precision, Provenance, Setting, plan};

/// Micro-batch, samples per second, MiB in use after the forward pass, MiB reserved.
const RUN: [(u64, f64, u64, u64); 4] =
    [(8, 524.0, 1101, 1477), (32, 816.0, 3466, 4738), (128, 859.0, 12929, 16000), (256, 879.0, 25547, 31872)];

/// The same at a micro-batch that is not among those above.
const HELD_OUT: (u64, f64, u64) = (64, 832.0, 8833);

fn described() -> Workload {
    Transformer { heads: Some(8), ..Transformer::new(6, 512, 8192, 256) }.workload()
}

fn h200() -> MeasuredOn {
    let profile = ProfileTable::builtin_profile("h200").expect("a shipped profile");
    let facts = DeviceFacts::nominal(&profile);
    let point = |(batch, samples_per_s, in_use, reserved): (u64, f64, u64, u64)| {
        let step_ms = batch as f64 / samples_per_s * 1e3;
        let point = MeasuredBatch {
            reserved_bytes: Some(Bytes::from_mib(reserved)),
            in_use_bytes: Some(Bytes::from_mib(in_use)),
            micro_step_ms: Some(step_ms - 1.0),
            optimizer_ms: Some(1.0),
            ..MeasuredBatch::default()
        };
        (batch, point)
    };
    let batch = RUN.into_iter().map(point).collect();
    let measured = MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch };
    let mode = Mode::new(Precision::F32, false);
    MeasuredOn {
        device: "NVIDIA H200".to_owned(),
        driver: Some("580.159.04".to_owned()),
        cubecl: Some("0.11.3".to_owned()),
        context_bytes: Some(Bytes::from_mib(537)),
        kernels_bytes: Some(Bytes::from_mib(38)),
        mode: BTreeMap::from([(mode, measured)]),
        ..facts.measured_on("0.22.1")
    }
}

fn measured() -> Workload {
    let on = BTreeMap::from([("h200".to_owned(), h200())]);
    described().with_measured(Measured { parameters: 27_300_000, on, ..Measured::default() })
}

fn nominal(id: &str) -> DeviceFacts {
    DeviceFacts::nominal(&ProfileTable::builtin_profile(id).expect("a shipped profile"))
}

fn pinned(batch: u64) -> Goal {
    let pins = crate::Pins { batch_size: Some(batch), gradient_checkpointing: Some(false), ..crate::Pins::default() };
    Goal { pins, ..Goal::default() }
}

#[test]
fn what_was_measured_is_what_is_planned() {
    for (batch, samples_per_s, _, reserved) in RUN {
        let plan = plan(&nominal("h200"), &measured(), &pinned(batch)).expect("it fits");
        let memory = &plan.memory;
        // Inputs prepared ahead come on top: two batches of 256 tokens and as many targets, of 8 bytes.
        let queue = Bytes(2 * batch * 256 * 2 * 8);
        let pools = memory.total() - memory.context - memory.kernels - queue;
        assert_eq!(pools, Bytes::from_mib(reserved), "{batch}: {plan}");
        assert_eq!((memory.context, memory.kernels), (Bytes::from_mib(537), Bytes::from_mib(38)));
        assert!((plan.samples_per_s / samples_per_s - 1.0).abs() < 1e-9, "{plan}");
        assert_eq!(plan.samples_per_s_provenance, Provenance::Measured);
        assert_eq!(memory.provenance, Provenance::Measured);
    }
}

#[test]
fn between_points_it_is_estimated_within_the_margin_that_is_added() {
    let (batch, samples_per_s, reserved) = HELD_OUT;
    let plan = plan(&nominal("h200"), &measured(), &pinned(batch)).expect("it fits");
    assert_eq!((plan.samples_per_s_provenance, plan.memory.provenance), (Provenance::Estimated, Provenance::Estimated));
    assert!((plan.samples_per_s / samples_per_s - 1.0).abs() < 0.02, "{plan}");
    let memory = &plan.memory;
    let bound = memory.total() - memory.context - memory.kernels;
    assert!(bound >= Bytes::from_mib(reserved), "{plan}");
    assert!(bound.mib() < reserved as f64 * 1.35, "{plan}");
}

#[test]
fn without_tf32_its_memory_is_not_taken_for_granted_and_its_speed_is_an_estimate() {
    let mut goal = pinned(64);
    goal.pins.allow_tf32 = Some(false);
    let planned = |device: &str, workload: &Workload| plan(&nominal(device), workload, &goal).expect("it fits");
    let provenance = |plan: &Plan| (plan.memory.provenance, plan.samples_per_s_provenance);

    let with = planned("h200", &measured());
    assert_eq!(provenance(&with), (Provenance::Derived, Provenance::Estimated), "{with}");
    assert!(!with.settings.allow_tf32);
    // Measured without it, the same figures count.
    let mut without = h200();
    let full_f32 = Mode { full_f32: true, ..Mode::new(Precision::F32, false) };
    without.mode = without.mode.into_values().map(|figures| (full_f32, figures)).collect();
    let on = BTreeMap::from([("h200".to_owned(), without)]);
    let workload = described().with_measured(Measured { parameters: 27_300_000, on, ..Measured::default() });
    let plan = planned("h200", &workload);
    assert_eq!(provenance(&plan), (Provenance::Estimated, Provenance::Estimated), "{plan}");
    // A GPU that has no TF32 computes in full f32 anyway.
    let volta = planned("v100-sxm2-32gb", &measured());
    assert_eq!(volta.memory.provenance, Provenance::Transferred, "{volta}");
}

#[test]
fn the_smallest_measured_batch_within_the_tolerance_is_planned() {
    let planned = |tolerance| {
        let goal = Goal { global_batch: Some(512), throughput_tolerance: tolerance, ..Goal::default() };
        plan(&nominal("h200"), &measured(), &goal).expect("it fits")
    };
    // 879 samples/s at 256, 859 at 128: 97.7%.
    for (tolerance, batch) in [(0.01, 256), (0.03, 128)] {
        let plan = planned(tolerance);
        assert_eq!((plan.settings.batch_size, plan.samples_per_s_provenance), (batch, Provenance::Measured), "{plan}");
        assert!(!plan.settings.gradient_checkpointing, "{plan}");
    }
    let derived = plan(&nominal("h200"), &described(), &Goal { global_batch: Some(512), ..Goal::default() });
    assert_eq!(derived.expect("it fits").samples_per_s_provenance, Provenance::Derived);
}

#[test]
fn below_the_points_launches_are_not_forgotten() {
    // A convnet of which large batches are slower: as many samples a second at 1 as at 16, by lines alone.
    let mut workload = measured();
    let points = workload.measured.on.values_mut().flat_map(|on| on.mode.values_mut());
    for mode in points {
        let at = |samples_per_s: f64, batch: u64| MeasuredBatch {
            reserved_bytes: Some(Bytes::from_mib(1000 + 50 * batch)),
            micro_step_ms: Some(batch as f64 / samples_per_s * 1e3),
            ..MeasuredBatch::default()
        };
        mode.batch = [(16, at(1000.0, 16)), (256, at(853.0, 256))].into();
    }
    let plan =
        plan(&nominal("h200"), &workload, &Goal { global_batch: Some(256), ..Goal::default() }).expect("it fits");
    assert_eq!(plan.settings.batch_size, 16, "{plan}");
}

#[test]
fn another_gpu_gets_the_bytes_and_the_times_by_peak_rates() {
    let plan = plan(&nominal("h100-sxm5-80gb"), &measured(), &pinned(128)).expect("it fits");
    assert_eq!(plan.samples_per_s_provenance, Provenance::Transferred);
    assert_eq!(plan.memory.provenance, Provenance::Transferred);
    // The same chip with slower memory: no faster, and not much slower.
    assert!((0.5..1.001).contains(&(plan.samples_per_s / 859.0)), "{plan}");
    let l4 = crate::plan(&nominal("l4"), &measured(), &pinned(64)).expect("it fits");
    assert!(l4.samples_per_s < 0.6 * plan.samples_per_s, "{l4}");
    assert_eq!((batch_reason(&l4).provenance, l4.settings.batch_size), (Provenance::Declared, 64));
}

fn batch_reason(plan: &Plan) -> &Reason {
    plan.reasons.iter().find(|reason| reason.setting == Setting::BatchSize).expect("a reason")
}

#[test]
fn workers_say_whether_the_time_of_a_sample_was_measured() {
    let workers = |workload: &Workload| {
        let plan = plan(&nominal("h200"), workload, &Goal::default()).expect("it fits");
        plan.reasons.iter().find(|reason| reason.setting == Setting::NumWorkers).expect("a reason").provenance
    };
    assert_eq!(workers(&measured()), Provenance::Derived);
    let mut declared = described();
    declared.sample.host_ms = Some(2.0);
    assert_eq!(workers(&declared), Provenance::Declared);
    let timed = Measured { host_ms_per_sample: Some(3.0), ..measured().measured };
    assert_eq!(workers(&described().with_measured(timed.clone())), Provenance::Measured);
    // User-specified costs go before measured ones.
    assert_eq!(workers(&declared.with_measured(timed)), Provenance::Declared);
}

#[test]
fn a_second_device_shows_how_far_off_the_first_is() {
    let mut workload = measured();
    let on_the_l4 = |workload: &Workload| plan(&nominal("l4"), workload, &Goal::default()).expect("it fits");
    let alone = on_the_l4(&workload);
    assert_eq!(batch_reason(&alone).provenance, Provenance::Transferred);
    assert!(batch_reason(&alone).why.contains("from h200, the only device measured"), "{alone}");

    // A GPU of the same peaks that takes a quarter longer.
    let mut slower = h200();
    slower.device = "slower".to_owned();
    for point in slower.mode.values_mut().flat_map(|mode| mode.batch.values_mut()) {
        point.micro_step_ms = point.micro_step_ms.map(|ms| ms * 1.25);
    }
    workload.measured.on.insert("slower".to_owned(), slower);
    let reported = on_the_l4(&workload);
    assert!(batch_reason(&reported).why.contains("from h200, which miss slower by 20%"), "{reported}");
}

#[test]
fn a_slice_of_the_gpu_is_another_gpu() {
    let slice = DeviceFacts { sm_count: 16, ..nominal("h200") };
    let plan = plan(&slice, &measured(), &pinned(8)).expect("it fits");
    assert_eq!(plan.samples_per_s_provenance, Provenance::Transferred);
    assert_eq!(plan.memory.kernels, Bytes::from_mib(38).scaled(16.0 / 132.0));
}

#[test]
fn a_shared_optimizer_state_is_taken_off_the_measured_pools() {
    let [whole, shared] = [false, true].map(|shard_optimizer| {
        let goal = Goal { shard_optimizer, world_size: 4, ..pinned(128) };
        plan(&nominal("h200"), &measured(), &goal).expect("it fits").memory
    });
    let saved = whole.optimizer_state - shared.optimizer_state;
    assert!(saved > whole.optimizer_state.scaled(0.5), "{saved} of {}", whole.optimizer_state);
    assert_eq!(whole.total() - shared.total(), saved);
}
