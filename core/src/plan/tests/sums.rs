//! Memory pools as an H200 reserved them, and sums of gradients over micro-batches and ranks.

use super::*;
use crate::exchange::{Exchange, Link, Topology};
use crate::plan::calibration::{ACCUMULATION_EXCESS, SMALL_PAGES};

/// Micro-batches of a transformer of 27 M parameters in f32 on an H200: bytes reserved by steps of one micro-batch, and by
/// steps that accumulate gradients.
const MEASURED: [(u64, u64, u64); 4] = [
    (16, 3_081_957_376, 2_812_473_344),
    (18, 3_148_017_664, 3_148_017_664),
    (25, 3_901_943_808, 4_322_422_784),
    (256, 34_485_760_000, 34_485_760_000),
];

/// The workload, measured at some sizes, with the bytes of accumulating steps that `keep` returns.
fn measured(sizes: &[(u64, u64, u64)], keep: fn(u64) -> Option<u64>) -> Workload {
    let at = |&(size, reserved, accumulating): &(u64, u64, u64)| {
        let reserved_accumulating_bytes = keep(accumulating).map(Bytes);
        let reserved_bytes = Some(Bytes(reserved));
        (size, MeasuredBatch { reserved_bytes, reserved_accumulating_bytes, ..MeasuredBatch::default() })
    };
    measured_on("h200", lm().workload(), [(f32(false), dry_run(sizes.iter().map(at)))])
}

fn in_parts(batch: u64, micro_batches: u64) -> Goal {
    let mut goal = pinned(batch);
    goal.pins.gradient_accumulation = Some(micro_batches);
    goal
}

/// Predicted bytes of the memory pools and their upper bound, without batches that are prepared ahead.
fn predicted(workload: &Workload, batch: u64, micro_batches: u64) -> (Bytes, Bytes) {
    let plan = planned(&nominal("h200"), workload, &in_parts(batch, micro_batches));
    let queue = plan.memory.inputs - workload.sample.input.unwrap_or_default().times(batch);
    let bound = pools(&plan) - queue;
    (bound - plan.memory.margin, bound)
}

#[test]
fn measured_sizes_reserve_what_was_measured() {
    for (batch, single, accumulating) in MEASURED {
        for (micro_batches, bytes) in [(1, single), (4, accumulating)] {
            let found = predicted(&measured(&MEASURED, Some), batch, micro_batches);
            assert_eq!(found, (Bytes(bytes), Bytes(bytes)), "{batch}");
        }
    }
}

#[test]
fn a_size_that_was_measured_without_accumulation_gets_the_margin_of_accumulation() {
    // Interpolations between two sizes have a larger margin.
    let sizes = &MEASURED[2..];
    let workload = measured(sizes, |_| None);
    for &(batch, single, accumulating) in sizes {
        assert_eq!(predicted(&workload, batch, 1), (Bytes(single), Bytes(single)));
        let estimate = Bytes(single + workload.parameters.trained() * 4);
        let (predicted, bound) = predicted(&workload, batch, 4);
        let margin = estimate.scaled(ACCUMULATION_EXCESS) + SMALL_PAGES;
        assert!(predicted == estimate && (bound - estimate).0.abs_diff(margin.0) <= 1, "{batch}: {bound:?}");
        assert!(bound >= Bytes(accumulating), "{batch}");
    }
}

#[test]
fn an_interrupted_measurement_does_not_limit_the_sizes() {
    let sizes = &MEASURED[..3];
    for is_partial in [false, true] {
        let mut workload = measured(sizes, Some);
        for mode in workload.measured.on.values_mut().flat_map(|on| on.mode.values_mut()) {
            mode.is_partial = is_partial;
        }
        let batch = planned(&nominal("h200"), &workload, &global(512)).settings.batch_size;
        assert_eq!(sizes.iter().any(|(size, ..)| *size == batch), !is_partial, "{batch}");
    }
}

#[test]
fn other_sizes_stay_below_the_bound_which_is_explained() {
    let workload = measured(&MEASURED, Some);
    // Micro-batches, how many, and MiB that the pools reserved in training.
    for (batch, micro_batches, reserved) in
        [(24, 1, 3962.2), (32, 16, 4729.2), (40, 2, 5881.2), (64, 8, 9337.2), (80, 1, 11_641.2), (320, 2, 41_080.2)]
    {
        let (pools, bound) = predicted(&workload, batch, micro_batches);
        let figures = format!("{micro_batches} x {batch}: {:.1} of at most {:.1} MiB", pools.mib(), bound.mib());
        assert!((pools.mib() / reserved - 1.0).abs() < 0.1, "{figures}");
        assert!(bound.mib() >= reserved, "{figures}");
    }
    let explanation = explain(&nominal("h200"), &workload, &in_parts(64, 8)).expect("it fits");
    let item = explanation.memory.into_iter().find(|item| item.name == "margin").expect("an estimate has a margin");
    let formula = "on h200, interpolated between measured micro-batches + 24.0 MiB";
    assert!(item.formula.contains(formula), "{}", item.formula);
}

/// GPT-2 with its number of parameters.
fn gpt2() -> (Workload, u64) {
    let workload = Transformer { heads: Some(12), ..Transformer::new(12, 768, 50257, 1024) }.workload();
    (workload, 124_439_808)
}

/// A step of `micro_batches` of 2 samples on each rank.
fn goal(precision: Precision, micro_batches: u64, ranks: u64) -> Goal {
    let global_batch = Some(2 * micro_batches * ranks);
    Goal { global_batch, world_size: ranks, precision: Some(precision.into()), ..pinned(2) }
}

fn memory(workload: &Workload, goal: &Goal) -> MemoryEstimate {
    planned(&nominal("h200"), workload, goal).memory
}

#[test]
fn pure_bf16_sums_in_fp32_over_micro_batches_and_ranks() {
    let (workload, parameters) = gpt2();
    for (precision, micro_batches, ranks, gradient, sum) in [
        (Precision::Bf16Params, 1, 1, 2, 0),
        (Precision::Bf16Params, 4, 1, 2, 4),
        (Precision::Bf16Params, 1, 2, 4, 0),
        (Precision::Bf16Params, 4, 2, 2, 4),
        (Precision::MixedBf16, 1, 1, 4, 0),
        (Precision::MixedBf16, 4, 2, 4, 4),
        (Precision::F32, 4, 1, 4, 4),
    ] {
        let found = memory(&workload, &goal(precision, micro_batches, ranks));
        let expected = [gradient, sum].map(|bytes| Bytes(parameters * bytes));
        assert_eq!([found.gradients, found.accumulated_gradients], expected, "{precision} {micro_batches} {ranks}");
        assert_eq!(found.optimizer_state.0 % parameters, 0, "the optimizer's state has the parameters' format");
    }
    // Two buckets of an eighth in fp32 as in bf16, and the embedding is exchanged unpacked.
    assert_eq!(memory(&workload, &goal(Precision::Bf16Params, 1, 2)).exchange, Bytes(4 * parameters / 8 * 2));
    let small = Transformer::new(1, 128, 512, 64).workload();
    let packed = Bytes(2 * 4 * small.parameters.trained());
    assert_eq!(memory(&small, &goal(Precision::Bf16Params, 1, 2)).exchange, packed);
}

#[test]
fn the_exchange_takes_as_long_in_pure_bf16_as_in_fp32() {
    let (workload, parameters) = gpt2();
    let link = |name| Link::named(name).expect("a link");
    let topology = Topology { ranks: 2, ranks_per_host: 8, within: link("nvlink"), between: link("400g"), adapters: 1 };
    let exchange = |precision, shards| {
        Exchange::new(&planned(&nominal("h200"), &workload, &goal(precision, 1, 2)), &workload, shards, topology)
    };
    let [f32, bf16] = [Precision::F32, Precision::Bf16Params].map(|precision| exchange(precision, false));
    assert_eq!((bf16.bytes, bf16.step_ms.to_bits()), (Bytes(4 * parameters), f32.step_ms.to_bits()));
    // The new values are a second sum over all ranks.
    let sharded = exchange(Precision::F32, true);
    assert_eq!(sharded.bytes, Bytes(8 * parameters));
    assert!((1.9..=2.0).contains(&(sharded.step_ms / f32.step_ms)), "{} ms", sharded.step_ms);
}

#[test]
fn sums_decide_whether_a_step_in_parts_fits() {
    let (workload, parameters) = gpt2();
    let workload = Workload { optimizer: Optimizer::Sgd, ..workload };
    let [single, accumulating] = [1, 4].map(|micro_batches| goal(Precision::Bf16Params, micro_batches, 1));
    let [needed, with_sums] = [&single, &accumulating].map(|goal| memory(&workload, goal).total());
    assert!(with_sums - needed >= Bytes(4 * parameters), "{needed} {with_sums}");
    // Room for sums in bf16, not in fp32.
    let budget = needed + Bytes(2 * parameters).scaled(1.4);
    let device = DeviceFacts { memory_available: budget.scaled(1.0 / 0.9), ..nominal("h200") };
    planned(&device, &workload, &single);
    misfit(&device, &workload, &accumulating);
}

#[test]
fn measurements_without_sums_get_them() {
    let (workload, parameters) = gpt2();
    let (reserved, with_sums) = (Bytes::from_mib(9000), Bytes::from_mib(9100));
    // One rank was measured; with two, gradients of 2 bytes become sums of 4. The margin is of an estimate.
    for (accumulating, micro_batches, ranks, bytes, is_estimate) in [
        (None, 1, 1, reserved, false),
        (None, 4, 1, reserved + Bytes(4 * parameters), true),
        (Some(with_sums), 4, 1, with_sums, false),
        (Some(with_sums), 1, 2, reserved + Bytes(2 * parameters), true),
        (Some(with_sums), 4, 2, with_sums, false),
    ] {
        let point = MeasuredBatch { reserved_accumulating_bytes: accumulating, ..point(9000, None) };
        let modes = [(Mode::new(Precision::Bf16Params, false), dry_run([(2, point)]))];
        let goal = goal(Precision::Bf16Params, micro_batches, ranks);
        let plan = planned(&nominal("h200"), &measured_on("h200", workload.clone(), modes), &goal);
        // Without batches that are prepared ahead.
        let MemoryEstimate { exchange, margin, inputs, .. } = plan.memory;
        let found = pools(&plan) - exchange - margin - Bytes(inputs.0 / 3 * 2);
        assert_eq!((found, margin > Bytes::ZERO), (bytes, is_estimate), "{accumulating:?} {micro_batches} {ranks}");
    }
}
