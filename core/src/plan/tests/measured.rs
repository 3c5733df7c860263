//! Plans by measurements: the transformer of 27.3 M parameters on one H200, as it was measured.

use super::*;
use crate::Provenance;

/// Micro-batch, samples per second, MiB in use after the forward pass, MiB reserved.
const RUN: [(u64, f64, u64, u64); 4] =
    [(8, 524.0, 1101, 1477), (32, 816.0, 3466, 4738), (128, 859.0, 12929, 16000), (256, 879.0, 25547, 31872)];

/// The same at a micro-batch that is not among those above.
const HELD_OUT: (u64, f64, u64) = (64, 832.0, 8833);

fn described() -> Workload {
    lm().workload()
}

fn h200() -> MeasuredOn {
    let at = |(batch, samples_per_s, in_use, reserved): (u64, f64, u64, u64)| {
        let measured = point(reserved, batch as f64 / samples_per_s * 1e3 - 1.0);
        let in_use_bytes = Some(Bytes::from_mib(in_use));
        (batch, MeasuredBatch { in_use_bytes, optimizer_ms: Some(1.0), ..measured })
    };
    MeasuredOn {
        device: "NVIDIA H200".to_owned(),
        context_bytes: Some(Bytes::from_mib(537)),
        kernels_bytes: Some(Bytes::from_mib(38)),
        mode: [(f32(false), dry_run(RUN.map(at)))].into(),
        ..nominal("h200").measured_on("0.22.1")
    }
}

fn with(workload: Workload, on: MeasuredOn) -> Workload {
    let on = [("h200".to_owned(), on)].into();
    workload.with_measured(Measured { parameters: 27_300_000, on, ..Measured::default() })
}

fn measured() -> Workload {
    with(described(), h200())
}

/// A micro-batch with its samples per second, if it was timed.
type Speed = (u64, Option<f64>);

/// The workload with these micro-batches in place of those of the run, by checkpointing.
fn at_speeds(modes: &[(bool, &[Speed])]) -> Workload {
    let at = |&(batch, samples_per_s): &Speed| {
        let measured = point(1000 + 50 * batch, samples_per_s.map(|speed| batch as f64 / speed * 1e3));
        (batch, MeasuredBatch { reserved_accumulating_bytes: measured.reserved_bytes, ..measured })
    };
    let mode = |&(checkpointing, points): &(bool, &[Speed])| (f32(checkpointing), dry_run(points.iter().map(at)));
    with(described(), MeasuredOn { mode: modes.iter().map(mode).collect(), ..h200() })
}

#[test]
fn what_was_measured_is_what_is_planned() {
    for (batch, samples_per_s, _, reserved) in RUN {
        let plan = planned(&nominal("h200"), &measured(), &pinned(batch));
        let memory = &plan.memory;
        // Inputs prepared ahead come on top: two batches of 256 tokens and as many targets, of 8 bytes.
        assert_eq!(pools(&plan) - Bytes(2 * batch * 256 * 2 * 8), Bytes::from_mib(reserved), "{batch}: {plan}");
        assert_eq!((memory.context, memory.kernels), (Bytes::from_mib(537), Bytes::from_mib(38)));
        assert!((plan.samples_per_s / samples_per_s - 1.0).abs() < 1e-9, "{plan}");
        assert_eq!((plan.samples_per_s_provenance, memory.provenance), (Provenance::Measured, Provenance::Measured));
    }
}

#[test]
fn between_points_it_is_estimated_within_the_margin_that_is_added() {
    let (batch, samples_per_s, reserved) = HELD_OUT;
    let plan = planned(&nominal("h200"), &measured(), &pinned(batch));
    assert_eq!((plan.samples_per_s_provenance, plan.memory.provenance), (Provenance::Estimated, Provenance::Estimated));
    assert!((plan.samples_per_s / samples_per_s - 1.0).abs() < 0.02, "{plan}");
    assert!((1.0..1.35).contains(&(pools(&plan).mib() / reserved as f64)), "{plan}");
}

#[test]
fn measurements_count_where_they_were_taken() {
    let mut full_f32 = pinned(64);
    full_f32.pins.allow_tf32 = Some(false);
    let without_tf32 = Mode { full_f32: true, ..f32(false) };
    let modes = h200().mode.into_values().map(|figures| (without_tf32, figures)).collect();
    let in_full_f32 = with(described(), MeasuredOn { mode: modes, ..h200() });
    let slice = DeviceFacts { sm_count: 16, ..nominal("h200") };
    let tolerance = |throughput_tolerance| Goal { throughput_tolerance, ..global(512) };
    let falling = at_speeds(&[(false, &[(16, Some(1000.0)), (256, Some(853.0))])]);
    // A GPU of the same peaks that takes a quarter longer.
    let mut two_gpus = measured();
    let mut slower = MeasuredOn { device: "slower".to_owned(), ..h200() };
    for point in slower.mode.values_mut().flat_map(|mode| mode.batch.values_mut()) {
        point.micro_step_ms = point.micro_step_ms.map(|ms| ms * 1.25);
    }
    two_gpus.measured.on.insert("slower".to_owned(), slower);
    let mut declared = described();
    declared.sample.host_ms = Some(2.0);
    let timed = |workload: Workload| {
        let measured = Measured { host_ms_per_sample: Some(3.0), ..measured().measured };
        workload.with_measured(measured)
    };
    assert_plans(
        "measured",
        vec![
            ("TF32 was measured, and is off: memory is derived", nominal("h200"), measured(), full_f32.clone()),
            ("measured without TF32", nominal("h200"), in_full_f32, full_f32.clone()),
            ("a GPU without TF32 computes in full f32", nominal("v100-sxm2-32gb"), measured(), full_f32),
            ("the same chip with slower memory", nominal("h100-sxm5-80gb"), measured(), pinned(128)),
            ("another GPU", nominal("l4"), measured(), pinned(64)),
            ("the only device measured", nominal("l4"), measured(), Goal::default()),
            ("times miss another device by 20%", nominal("l4"), two_gpus, Goal::default()),
            ("a slice is another GPU", slice, measured(), pinned(8)),
            ("879 samples/s at 256", nominal("h200"), measured(), tolerance(0.01)),
            ("859 samples/s at 128 are 97.7%", nominal("h200"), measured(), tolerance(0.03)),
            ("below the points launches count", nominal("h200"), falling, global(256)),
            ("no measurements", nominal("h200"), described(), global(512)),
            ("the time of a sample was declared", nominal("h200"), declared.clone(), Goal::default()),
            ("the time of a sample was measured", nominal("h200"), timed(described()), Goal::default()),
            ("a declared time goes before a measured one", nominal("h200"), timed(declared), Goal::default()),
        ],
    );
}

#[test]
fn another_gpu_is_as_fast_as_its_rates_are() {
    let h100 = planned(&nominal("h100-sxm5-80gb"), &measured(), &pinned(128));
    // The same chip with slower memory: no faster, and not much slower.
    assert!((0.5..1.001).contains(&(h100.samples_per_s / 859.0)), "{h100}");
    let l4 = planned(&nominal("l4"), &measured(), &pinned(64));
    assert!(l4.samples_per_s < 0.6 * h100.samples_per_s, "{l4}");
    let slice = DeviceFacts { sm_count: 16, ..nominal("h200") };
    let kernels = planned(&slice, &measured(), &pinned(8)).memory.kernels;
    assert_eq!(kernels, Bytes::from_mib(38).scaled(16.0 / 132.0));
}

#[test]
fn a_measured_width_scales_its_own_predictions_only() {
    // Half as fast in f32 as predicted.
    let (plain, bf16) = (pinned(32), Goal { precision: Some(Precision::Bf16Params.into()), ..pinned(32) });
    let of = |width| {
        let workload = Transformer { heads: Some(8), ..Transformer::new(2, width, 4096, 256) }.workload();
        let speed = |workload: &Workload, goal: &Goal| planned(&nominal("h200"), workload, goal).samples_per_s;
        let [in_f32, in_bf16] = [&plain, &bf16].map(|goal| speed(&workload, goal));
        let batch = [(32, point(4000, Some(32.0 / (0.5 * in_f32) * 1e3)))];
        let on = MeasuredOn { mode: [(f32(false), dry_run(batch))].into(), ..h200() };
        let measured =
            workload.clone().with_measured(Measured { on: [("h200".to_owned(), on)].into(), ..Measured::default() });
        (in_bf16 / in_f32, speed(&measured, &bf16) / speed(&measured, &plain))
    };
    let [(narrow, scaled_narrow), (wide, scaled_wide)] = [256, 4096].map(of);
    assert!(wide > 1.5 * narrow, "{narrow} {wide}");
    for (derived, scaled) in [(narrow, scaled_narrow), (wide, scaled_wide)] {
        assert!((scaled / derived - 1.0).abs() < 0.05, "{derived} {scaled}");
    }
}

#[test]
fn a_shared_optimizer_state_is_taken_off_the_measured_pools() {
    let [whole, shared] = [false, true].map(|shard_optimizer| {
        let goal = Goal { shard_optimizer, world_size: 4, ..pinned(128) };
        planned(&nominal("h200"), &measured(), &goal).memory
    });
    let saved = whole.optimizer_state - shared.optimizer_state;
    assert!(saved > whole.optimizer_state.scaled(0.5), "{saved} of {}", whole.optimizer_state);
    assert_eq!(whole.total() - shared.total(), saved);
}

#[test]
fn recomputing_is_never_taken_to_be_faster_where_it_was_not_measured() {
    // The points with checkpointing lie where the GPU is fast, those without where it is slow.
    let workload =
        at_speeds(&[(false, &[(8, Some(500.0)), (256, Some(700.0))]), (true, &[(32, Some(900.0)), (64, Some(950.0))])]);
    for batch in [16, 32, 48, 64, 128, 256] {
        let speed = |checkpointing| {
            let pins = Pins { gradient_checkpointing: Some(checkpointing), ..pinned(batch).pins };
            planned(&nominal("h100-sxm5-80gb"), &workload, &Goal { pins, ..Goal::default() }).samples_per_s
        };
        assert!(speed(true) <= speed(false), "{batch}: {} with, {} without", speed(true), speed(false));
    }
}

#[test]
fn extrapolated_times_with_checkpointing_are_at_least_those_without() {
    // A search that ended early: the line through 16 and 64 samples predicts 1250 samples/s at 256.
    let mut workload = at_speeds(&[
        (false, &[(16, Some(800.0)), (64, Some(1000.0)), (256, Some(990.0))]),
        (true, &[(16, Some(500.0)), (64, Some(960.0))]),
    ]);
    for (mode, figures) in workload.measured.on.values_mut().flat_map(|on| &mut on.mode) {
        figures.is_partial = mode.checkpointing;
    }
    let plan = planned(&nominal("h200"), &workload, &global(512));
    assert_eq!((plan.settings.batch_size, plan.settings.gradient_checkpointing), (64, false), "{plan}");
}

#[test]
fn an_untimed_batch_wins_by_more_than_interpolated_times_err() {
    // 970 samples/s at 64 and 1000 at 256: interpolated, 128 is within 2% of the fastest.
    let pins = Pins { gradient_checkpointing: Some(false), ..Pins::default() };
    let goal = Goal { pins, ..global(512) };
    let at = |speeds: [Option<f64>; 4]| {
        let points: Vec<_> = [32, 64, 128, 256].into_iter().zip(speeds).collect();
        at_speeds(&[(false, &points)])
    };
    let certain = planned(&nominal("h200"), &at([None, Some(970.0), None, Some(1000.0)]), &goal);
    assert_eq!(certain.settings.batch_size, 128, "{certain}");
    assert!(!reason(&certain, Setting::BatchSize).why.contains("estimates"), "{certain}");
    // The line from 32 to 256 misses the time at 64 by 2.9%.
    let doubtful = at([Some(932.0), Some(920.0), None, Some(1000.0)]);
    assert_plans("doubtful", vec![("estimates count as slower", nominal("h200"), doubtful, goal)]);
}

/// The network of Keras's example for MNIST, whose summary prints 669,706 parameters.
#[test]
fn what_a_description_leaves_out_of_the_parameters_is_held_and_kept_by_the_optimizer() {
    let counted = 669_706;
    let described = Mlp { widths: vec![784, 512, 10] }.workload();
    let workload = described.with_measured(Measured { parameters: counted, ..Measured::default() });
    let plan = planned(&nominal("l4"), &workload, &pinned(128));
    assert_eq!((plan.memory.weights, plan.memory.optimizer_state), (Bytes(4 * counted), Bytes(8 * counted)));
    assert_eq!(workload.trained_parameters(), (counted, Provenance::Measured));
}

#[test]
fn what_checkpointing_costs_is_what_was_measured() {
    let without_dropout = Transformer { dropout: false, ..lm() }.workload();
    // Seconds with checkpointing over those without, and the reason; of 0.78 a busy machine is suspected.
    for (factor, end, provenance) in [
        (None, "would cost about 4%", Provenance::Estimated),
        (Some(1.25), "would cost about 20%", Provenance::Measured),
        (Some(1.25 / 1.6), "though it computes more: measure again on an idle GPU", Provenance::Measured),
    ] {
        let mut on = h200();
        if let Some(factor) = factor {
            let mut checkpointed = on.mode[&f32(false)].clone();
            for point in checkpointed.batch.values_mut() {
                point.micro_step_ms = point.micro_step_ms.map(|ms| factor * ms);
            }
            on.mode.insert(f32(true), checkpointed);
        }
        let plan = planned(&nominal("h200"), &with(without_dropout.clone(), on), &global(256));
        let found = reason(&plan, Setting::GradientCheckpointing);
        assert!(found.why.ends_with(end) && found.provenance == provenance, "{factor:?}: {found:?}");
    }
}
