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
fn without_a_global_batch_the_knee_is_taken_not_the_ceiling() {
    let plan = planned(&nominal("h200"), &small(), &Goal::default());
    // On an H200: 816 samples/s at 32, 879 at 256; memory would hold more than 1024.
    assert!((32..=512).contains(&plan.settings.batch_size), "{plan}");
    assert_eq!(plan.settings.gradient_accumulation, 1);
}

#[test]
fn goals_are_planned_or_refused() {
    use Precision::{Bf16Params, MixedBf16, MixedF16};
    let h200 = || nominal("h200");
    let ranks = |world_size, samples| Goal { world_size, ..global(samples) };
    let within = |precision: Precision| Goal { precision: Some(precision.into()), ..global(64) };
    let fixed = |pins: &str| Goal { pins: pins.parse().expect("pins"), ..global(64) };
    let batch = |batch_size| Goal { pins: Pins { batch_size: Some(batch_size), ..Pins::default() }, ..Goal::default() };
    let tokens = |count, mean_tokens| Goal { global_tokens: Some(count), mean_tokens, ..Goal::default() };
    let prime = 1_073_741_789;
    let slow = Workload { sample: SampleCost { host_ms: Some(4.0), ..small().sample }, ..small() };
    let on = |cores| DeviceFacts { host_cores: Some(cores), ..h200() };
    // Gradients are most of what such a layer takes, and a step in parts adds up a second set of them.
    let wide = Mlp { widths: vec![2, 30_000, 30_000, 3] }.workload();
    assert_plans(
        "goals",
        vec![
            ("7 ranks do not divide 512", h200(), small(), ranks(7, 512)),
            // The search for divisors ends at the root.
            ("a prime, and fewer ranks", h200(), small(), ranks(1 << 20, prime)),
            ("a prime, and as many ranks nearly", h200(), small(), ranks(1_000_000_007, prime)),
            ("Pascal has no bf16", nominal("gtx1080"), small(), within(MixedBf16)),
            ("Pascal has no bf16 for parameters", nominal("gtx1080"), small(), within(Bf16Params)),
            ("a GTX 1660 has no tensor cores", nominal("gtx1660"), small(), within(MixedF16)),
            ("Turing has f16", nominal("t4"), small(), within(MixedBf16)),
            ("Volta has f16", nominal("v100-sxm2-16gb"), small(), within(Bf16Params)),
            ("the last micro-batch is smaller", h200(), small(), fixed("batch_size=50,num_workers=9")),
            ("a micro-batch larger than the step", h200(), small(), fixed("batch_size=65")),
            ("16 x 3 is not 64", h200(), small(), fixed("batch_size=16,gradient_accumulation=3")),
            ("65 parts of 64 samples", h200(), small(), fixed("gradient_accumulation=65")),
            ("40 prepared batches take memory", h200(), small(), fixed("prefetch_depth=40")),
            ("parts would take more than the whole", nominal("a100-pcie-40gb"), wide, global(512)),
            ("too few samples for the GPU", h200(), small(), global(4)),
            ("no samples", h200(), small(), global(0)),
            ("no ranks", h200(), small(), ranks(0, 64)),
            ("no number", h200(), small(), Goal { memory_headroom: f64::NAN, ..Goal::default() }),
            ("a tolerance of 200%", h200(), small(), Goal { throughput_tolerance: 2.0, ..Goal::default() }),
            ("endless prepared batches", h200(), small(), Goal { prefetch_mib: u64::MAX, ..Goal::default() }),
            ("a micro-batch of nothing", h200(), small(), batch(0)),
            ("an endless micro-batch", h200(), small(), batch(u64::MAX)),
            ("no memory", with_free("h200", 0), small(), global(1)),
            ("512 sequences of 256 tokens", h200(), small(), tokens(131_072, None)),
            ("728 sequences of 180 tokens", h200(), small(), tokens(131_072, Some(180.0))),
            ("no whole number of sequences", h200(), small(), tokens(131_000, None)),
            ("more tokens than a sequence has", h200(), small(), tokens(131_072, Some(300.0))),
            ("a model without tokens", h200(), Mlp { widths: vec![784, 10] }.workload(), tokens(1024, None)),
            ("a host that feeds the GPU", on(64), slow.clone(), global(512)),
            ("a host that is too slow", on(2), slow, global(512)),
            ("a CPU", DeviceFacts::cpu(Bytes(64 << 30), Bytes(58 << 30), 16), small(), global(64)),
        ],
    );
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
