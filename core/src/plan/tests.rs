mod curve;
mod explanations;
mod fits;
mod graphs;
mod kernels;
mod measured;
mod padding;
#[expect(clippy::field_reassign_with_default, reason = "many fields are set only in some cases")]
mod planner;
mod precision;
mod ranks;
mod remedies;
mod simulated;
mod speeds;
mod statistics;
mod sums;
mod training;
mod whole_batch;

use std::fmt::Write as _;

use super::problem::NO_TOKENS;
use super::{Explanation, MemoryEstimate, Misfit, Outcome, Plan, PlanError, Reason, TooLarge, explain, plan};
use crate::device::DeviceFacts;
use crate::dims::{Dim, DimValue, Presence};
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::profile::ProfileTable;
use crate::workload::{
    Mlp, ModelKind, ModelSpec, Norm, Optimizer, Positions, SampleCost, Teacher, Training, Transformer, WeightFormat,
    Workload, WorkloadSpec,
};
use crate::{Bytes, Goal, Pins, Precision, Setting};

/// Facts of a shipped GPU.
fn nominal(id: &str) -> DeviceFacts {
    DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("a shipped profile"))
}

/// The GPU with so many MiB free.
fn with_free(id: &str, mib: u64) -> DeviceFacts {
    DeviceFacts { memory_available: Bytes::from_mib(mib), ..nominal(id) }
}

/// A transformer of 27.3 M parameters, measured on an H200 and an H100.
fn lm() -> Transformer {
    Transformer { heads: Some(8), ..Transformer::new(6, 512, 8192, 256) }
}

fn small() -> Workload {
    Transformer { tied_head: false, dropout: false, ..lm() }.workload()
}

fn global(samples: u64) -> Goal {
    Goal { global_batch: Some(samples), ..Goal::default() }
}

/// A micro-batch of this size, without checkpointing.
fn pinned(batch: u64) -> Goal {
    let pins = Pins { batch_size: Some(batch), gradient_checkpointing: Some(false), ..Pins::default() };
    Goal { pins, ..Goal::default() }
}

fn planned(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Plan {
    plan(device, workload, goal).unwrap_or_else(|error| panic!("{}: {error}", device.name))
}

fn misfit(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Misfit {
    match plan(device, workload, goal) {
        Err(PlanError::DoesNotFit(misfit)) => *misfit,
        other => panic!("it must not fit: {other:?}"),
    }
}

fn reason(plan: &Plan, setting: Setting) -> &Reason {
    plan.reasons.iter().find(|reason| reason.setting == setting).expect("each setting has a reason")
}

/// Bytes of the memory pools with their margin.
fn pools(plan: &Plan) -> Bytes {
    plan.memory.total() - plan.memory.context - plan.memory.kernels
}

/// A measured micro-batch: MiB reserved, and milliseconds of a micro-step.
fn point(mib: u64, micro_step_ms: impl Into<Option<f64>>) -> MeasuredBatch {
    let reserved_bytes = Some(Bytes::from_mib(mib));
    MeasuredBatch { reserved_bytes, micro_step_ms: micro_step_ms.into(), ..MeasuredBatch::default() }
}

/// Micro-batches that were measured in a dry run.
fn dry_run(batch: impl IntoIterator<Item = (u64, MeasuredBatch)>) -> MeasuredMode {
    let batch = batch.into_iter().collect();
    MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch }
}

/// The workload with modes that were measured on a GPU, of which the first is in f32.
fn measured_on(id: &str, workload: Workload, modes: impl IntoIterator<Item = (Mode, MeasuredMode)>) -> Workload {
    let on = MeasuredOn { mode: modes.into_iter().collect(), ..nominal(id).measured_on("0.22.1") };
    let parameters = workload.parameters.trained();
    workload.with_measured(Measured { parameters, on: [(id.to_owned(), on)].into(), ..Measured::default() })
}

/// f32, with checkpointing or without.
fn f32(checkpointing: bool) -> Mode {
    Mode::new(Precision::F32, checkpointing)
}

/// Compares the plans of some cases, or the errors, with the snapshot `name`. A case has its rule as its name.
fn assert_plans(name: &str, cases: Vec<(&str, DeviceFacts, Workload, Goal)>) {
    let mut text = String::new();
    for (case, device, workload, goal) in cases {
        let outcome = match explain(&device, &workload, &goal) {
            Ok(Explanation { outcome: Outcome::Plan(plan), considered, precisions, .. }) => {
                let verdicts = considered.iter().map(|one| format!("\n  {:>5}  {}", one.batch_size, one.verdict));
                let precisions = precisions.iter().map(|one| format!("\n  {}: {}", one.precision, one.verdict));
                format!("{plan}{}{}", verdicts.collect::<String>(), precisions.collect::<String>())
            }
            Ok(Explanation { outcome: Outcome::Misfit(misfit), .. }) => format!("{misfit}{}", misfit.help()),
            Err(error) => error.to_string(),
        };
        writeln!(text, "# {case}\n{outcome}\n").expect("a text takes any text");
    }
    insta::with_settings!({ snapshot_path => "tests/snapshots", prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn seven_billion_parameters_need_more_than_a_gaming_card_and_thirteen_more_than_an_h200() {
    let llm =
        |layers, width| Transformer { heads: Some(32), ..Transformer::new(layers, width, 32_000, 2048) }.workload();
    let (seven, thirteen) = (llm(32, 4096), llm(40, 5120));
    for (workload, device, items_gib) in
        [(&seven, "gtx1080", 6.7 * 16.0), (&seven, "rtx4090", 6.7 * 16.0), (&thirteen, "h200", 12.9 * 16.0)]
    {
        let memory = misfit(&nominal(device), workload, &global(32)).memory;
        let MemoryEstimate { weights, gradients, optimizer_state, .. } = memory;
        // Weights, gradients and two moments of four bytes each.
        let held = (weights + gradients + optimizer_state).0 as f64 / 1e9;
        assert!((held / items_gib - 1.0).abs() < 0.03, "{held} GB on {device}");
    }
}

#[test]
fn memory_is_bounded_from_above_by_what_burn_reserved_on_an_h200() {
    // Burn 0.22.1, transformer of 27 M parameters, AdamW, f32: pool reserved, by batch. The context comes on top.
    let reserved = [(8, 1477.0), (32, 4738.0), (64, 8833.0), (128, 16000.0), (256, 31872.0)];
    for (batch, measured_mib) in reserved {
        let predicted = pools(&planned(&nominal("h200"), &small(), &pinned(batch))).mib();
        assert!((1.0..1.2).contains(&(predicted / measured_mib)), "{predicted} against {measured_mib} MiB at {batch}");
    }
}

/// A GPT of six layers of width 384: `hardware measure --model gpt`, dry runs beside the fake driver. Rows of 50,257 logits
/// are padded.
#[test]
fn the_loss_over_a_large_vocabulary_takes_more_than_the_rest() {
    let gpt = Transformer {
        heads: Some(6),
        tied_head: false,
        dropout: false,
        final_norm: false,
        positions: Positions::None,
        ..Transformer::new(6, 384, 50_257, 256)
    };
    let gpt = gpt.workload();
    assert_eq!(gpt.parameters.trained(), 49_294_417);
    for (precision, batch, reserved) in [
        (Precision::F32, 32, 12_573_592_576_u64),
        (Precision::F32, 128, 56_256_220_160),
        (Precision::F32, 256, 112_300_510_208),
        (Precision::MixedBf16, 64, 20_045_749_760),
        (Precision::MixedBf16, 256, 79_386_762_752),
        (Precision::Bf16Params, 64, 19_911_339_520),
        (Precision::Bf16Params, 256, 79_252_352_512),
    ] {
        let goal = Goal { precision: Some(precision.into()), ..pinned(batch) };
        let of_reserved = pools(&planned(&nominal("h200"), &gpt, &goal)).0 as f64 / reserved as f64;
        assert!((1.0..1.2).contains(&of_reserved), "{of_reserved} times {reserved} in {precision} at {batch}");
    }
}

#[test]
fn world_sizes_that_do_not_divide_are_refused_with_those_that_do() {
    let goal = Goal { world_size: 7, ..global(512) };
    let error = plan(&nominal("h200"), &small(), &goal).expect_err("7 does not divide 512");
    assert_eq!(error.to_string(), "a global batch of 512 cannot be shared by 7 ranks; 4 or 8 would do");
    // The largest prime below 2^30: looking for what divides it must not take as many steps.
    for world_size in [1 << 20, 1_000_000_007] {
        let error =
            plan(&nominal("h200"), &small(), &Goal { world_size, ..global(1_073_741_789) }).expect_err("a prime");
        assert!(error.to_string().ends_with("1 or 1073741789 would do"), "{error}");
    }
}

#[test]
fn what_the_device_cannot_compute_in_is_refused() {
    for (precision, device, message) in [
        (Precision::MixedBf16, "gtx1080", "gtx1080 has no bf16 tensor cores for mixed_bf16; use f32"),
        (Precision::Bf16Params, "gtx1080", "gtx1080 has no bf16 tensor cores for bf16_params; use f32"),
        (Precision::MixedF16, "gtx1660", "gtx1660 has no fp16 tensor cores for mixed_f16; use f32"),
        (Precision::MixedBf16, "t4", "t4 has no bf16 tensor cores for mixed_bf16; use mixed_f16"),
        (
            Precision::Bf16Params,
            "v100-sxm2-16gb",
            "v100-sxm2-16gb has no bf16 tensor cores for bf16_params; use mixed_f16",
        ),
    ] {
        let goal = Goal { precision: Some(precision.into()), ..global(64) };
        assert_eq!(plan(&nominal(device), &small(), &goal).expect_err("refused").to_string(), message);
    }
}

#[test]
fn pinned_settings_are_kept_or_refused() {
    let with = |pins| Goal { pins, ..global(64) };
    let ragged = with(Pins { batch_size: Some(50), num_workers: Some(9), ..Pins::default() });
    let planned = planned(&nominal("h200"), &small(), &ragged);
    assert_eq!(planned.schedule.micro_batches().collect::<Vec<_>>(), [50, 14]);
    assert_eq!(planned.settings.num_workers, 9);
    for pins in [
        Pins { batch_size: Some(65), ..Pins::default() },
        Pins { batch_size: Some(0), ..Pins::default() },
        Pins { batch_size: Some(16), gradient_accumulation: Some(3), ..Pins::default() },
        Pins { gradient_accumulation: Some(65), ..Pins::default() },
    ] {
        let refused = plan(&nominal("h200"), &small(), &with(pins));
        assert!(matches!(refused, Err(PlanError::Pins { .. })), "{refused:?}");
    }
}

#[test]
fn batches_prepared_ahead_take_memory_also_when_their_number_is_fixed() {
    let pins = Pins { prefetch_depth: Some(40), ..Pins::default() };
    let planned = planned(&nominal("h200"), &small(), &Goal { pins, ..global(64) });
    let batch = small().sample.input.expect("token ids").times(planned.settings.batch_size);
    assert_eq!(planned.memory.inputs, batch.times(41));
}

#[test]
fn without_a_global_batch_the_knee_is_taken_not_the_ceiling() {
    let plan = planned(&nominal("h200"), &small(), &Goal::default());
    // On an H200: 816 samples/s at 32, 879 at 256; memory would hold more than 1024.
    assert!((32..=512).contains(&plan.settings.batch_size), "{plan}");
    assert_eq!(plan.settings.gradient_accumulation, 1);
}

#[test]
fn nothing_is_taken_that_is_slower_and_takes_more() {
    // Gradients are most of what such a layer takes, and a step in parts adds up a second set of them.
    let wide = Mlp { widths: vec![2, 30_000, 30_000, 3] }.workload();
    let plan = planned(&nominal("a100-pcie-40gb"), &wide, &global(512));
    assert_eq!((plan.settings.batch_size, plan.settings.gradient_accumulation), (512, 1), "{plan}");
}

#[test]
fn a_global_batch_too_small_for_the_gpu_is_kept_and_commented() {
    let plan = planned(&nominal("h200"), &small(), &global(4));
    assert_eq!(plan.schedule.global_batch, 4);
    assert!(plan.advice[0].contains("does not fill h200"), "{:?}", plan.advice);
}

#[test]
fn less_memory_means_a_smaller_micro_batch_and_the_same_global_batch() {
    let roomy = planned(&nominal("h200"), &small(), &global(512));
    let scarce = DeviceFacts { memory_available: roomy.memory.total().scaled(0.6), ..nominal("h200") };
    let tight = planned(&scarce, &small(), &global(512));
    assert!(tight.settings.batch_size < roomy.settings.batch_size);
    assert!(tight.settings.gradient_accumulation > roomy.settings.gradient_accumulation);
    assert_eq!(tight.schedule.global_batch, 512);
}

#[test]
fn nonsense_goals_are_refused() {
    for goal in [
        Goal { global_batch: Some(0), ..Goal::default() },
        Goal { world_size: 0, ..Goal::default() },
        Goal { memory_headroom: f64::NAN, ..Goal::default() },
        Goal { throughput_tolerance: 2.0, ..Goal::default() },
        Goal { prefetch_mib: u64::MAX, ..Goal::default() },
        Goal { pins: Pins { batch_size: Some(0), ..Pins::default() }, ..Goal::default() },
        Goal { pins: Pins { batch_size: Some(u64::MAX), ..Pins::default() }, ..global(8) },
    ] {
        assert!(matches!(plan(&nominal("h200"), &small(), &goal), Err(PlanError::Goal { .. })), "{goal:?}");
    }
    let none = DeviceFacts { memory_available: Bytes::ZERO, ..nominal("h200") };
    assert!(matches!(plan(&none, &small(), &global(1)), Err(PlanError::DoesNotFit(_))));
}

#[test]
fn tokens_make_up_a_global_batch() {
    let tokens =
        |global_tokens, mean_tokens| Goal { global_tokens: Some(global_tokens), mean_tokens, ..Goal::default() };
    let batch = |goal: &Goal| plan(&nominal("h200"), &small(), goal).map(|plan| plan.schedule.global_batch);
    // Sequences of 256 tokens.
    assert_eq!(batch(&tokens(131_072, None)), Ok(512));
    assert_eq!(batch(&tokens(131_072, Some(180.0))), Ok(728));
    let error = batch(&tokens(131_000, None)).expect_err("no whole number of sequences");
    assert_eq!(
        error.to_string(),
        "global_tokens = 131000 is no multiple of 256, one sample of 256 tokens for each of 1 ranks; 130816 or 131072 would do"
    );
    assert!(matches!(batch(&tokens(131_072, Some(300.0))), Err(PlanError::NoTokens { .. })));
    let images = Mlp { widths: vec![784, 10] }.workload();
    assert!(matches!(plan(&nominal("h200"), &images, &tokens(1024, None)), Err(PlanError::NoTokens { .. })));
}

#[test]
fn a_utilization_target_takes_the_place_of_the_throughput_tolerance() {
    let batch = |target_utilization| {
        let goal = Goal { target_utilization, ..Goal::default() };
        planned(&nominal("h200"), &small(), &goal).settings.batch_size
    };
    let sizes = [0.5, 0.8, 0.95].map(|target| batch(Some(target)));
    assert!(sizes.is_sorted() && sizes[0] < sizes[2], "{sizes:?}");
}

#[test]
fn workers_follow_from_what_a_sample_costs_the_host() {
    let slow = Workload { sample: SampleCost { host_ms: Some(4.0), ..small().sample }, ..small() };
    let on = |cores| DeviceFacts { host_cores: Some(cores), ..nominal("h200") };
    let roomy = planned(&on(64), &slow, &global(512));
    // Little's law: workers = rate x time, and a quarter more.
    let busy = roomy.samples_per_s * 4e-3;
    assert!(
        roomy.settings.num_workers as f64 >= busy && (roomy.settings.num_workers as f64) < busy * 1.25 + 1.0,
        "{roomy}"
    );
    assert_eq!(roomy.advice, Vec::<String>::new());
    let starved = planned(&on(2), &slow, &global(512));
    assert_eq!(starved.settings.num_workers, 1);
    assert!(starved.advice.iter().any(|advice| advice.starts_with("the loader limits training")), "{starved}");
}

#[test]
fn a_cpu_trains_with_its_cores_and_a_gpu_has_no_such_setting() {
    let cpu = DeviceFacts::cpu(Bytes::from_mib(65536), Bytes::from_mib(60000), 16);
    let on_cpu = planned(&cpu, &small(), &global(64));
    assert_eq!(on_cpu.cpu_threads, Some(16 - on_cpu.settings.num_workers));
    assert_eq!(planned(&nominal("h200"), &small(), &global(64)).cpu_threads, None);
}

#[test]
fn an_epoch_may_leave_out_its_last_step() {
    let steps = |drop_last| {
        let goal = Goal { drop_last, ..global(64) };
        planned(&nominal("h200"), &small(), &goal).schedule.steps_per_epoch(1000)
    };
    assert_eq!((steps(false), steps(true)), (16, 15));
}

#[test]
fn mixed_precision_keeps_the_optimizer_in_f32_and_a_copy_to_compute_with() {
    // GPT-2 small has 124,439,808 parameters.
    let gpt2 = Transformer { heads: Some(12), ..Transformer::new(12, 768, 50257, 1024) }.workload();
    let memory = |precision: Precision| {
        let goal = Goal { precision: Some(precision.into()), ..global(8) };
        planned(&nominal("h200"), &gpt2, &goal).memory
    };
    let (f32, mixed, f16, bf16) = (
        memory(Precision::F32),
        memory(Precision::MixedBf16),
        memory(Precision::MixedF16),
        memory(Precision::Bf16Params),
    );
    assert_eq!(mixed.weights, Bytes(4 * 124_439_808));
    // All of them, and the head's transpose of the embedding of 50,257 tokens.
    assert_eq!(mixed.weight_copies, Bytes(2 * (124_439_808 + 50_257 * 768)));
    assert_eq!((mixed.optimizer_state, mixed.gradients), (f32.optimizer_state, f32.gradients));
    assert_eq!(mixed.activations, bf16.activations);
    assert_eq!(mixed, f16);
    assert!(bf16.total() < mixed.total() && mixed.total() < f32.total());
}

#[test]
fn the_message_lists_every_kind_with_tokens() {
    for kind in ModelKind::ALL.iter().filter(|kind| kind.name != "declared") {
        let model = ModelSpec::from_values(kind, &kind.dims.iter().filter_map(placeholder).collect());
        let has_tokens = WorkloadSpec::from(model).workload().sample.tokens.is_some();
        assert_eq!(NO_TOKENS.contains(kind.name), has_tokens, "{}", kind.name);
    }
}

fn placeholder(dim: &Dim) -> Option<(&'static str, DimValue)> {
    (dim.presence == Presence::Required).then(|| (dim.name, dim.kind.placeholder()))
}
