//! Sums of gradients over micro-batches and ranks, which are in fp32 in every precision.

use super::nominal;
use crate::device::DeviceFacts;
use crate::exchange::{Exchange, Link, Topology};
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::plan::{MemoryEstimate, PlanError, plan};
use crate::workload::{Optimizer, Transformer, Workload};
use crate::{Bytes, Goal, Pins, Precision};

/// GPT-2 with its number of parameters.
fn gpt2() -> (Workload, u64) {
    let workload = Transformer { heads: Some(12), ..Transformer::new(12, 768, 50257, 1024) }.workload();
    (workload, 124_439_808)
}

/// A step of `micro_batches` of 2 samples on each rank.
fn goal(precision: Precision, micro_batches: u64, ranks: u64) -> Goal {
    let pins = Pins { batch_size: Some(2), gradient_checkpointing: Some(false), ..Pins::default() };
    let global_batch = Some(2 * micro_batches * ranks);
    Goal { global_batch, world_size: ranks, precision: Some(precision.into()), pins, ..Goal::default() }
}

fn memory(workload: &Workload, goal: &Goal) -> MemoryEstimate {
    plan(&nominal("h200"), workload, goal).expect("it fits").memory
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
    // Two buckets of 64 MiB in fp32 as in bf16, and the embedding is exchanged unpacked.
    assert_eq!(memory(&workload, &goal(Precision::Bf16Params, 1, 2)).exchange, Bytes::from_mib(128));
    let small = Transformer::new(2, 256, 512, 64).workload();
    let packed = Bytes(2 * 4 * small.parameters.trained());
    assert_eq!(memory(&small, &goal(Precision::Bf16Params, 1, 2)).exchange, packed);
}

#[test]
fn the_exchange_takes_as_long_in_pure_bf16_as_in_fp32() {
    let (workload, parameters) = gpt2();
    let link = |name| Link::named(name).expect("a link");
    let topology = Topology { ranks: 2, ranks_per_host: 8, within: link("nvlink"), between: link("400g"), adapters: 1 };
    let exchange = |precision| {
        let plan = plan(&nominal("h200"), &workload, &goal(precision, 1, 2)).expect("it fits");
        Exchange::new(&plan, &workload, topology)
    };
    let (f32, bf16) = (exchange(Precision::F32), exchange(Precision::Bf16Params));
    assert_eq!((bf16.gradient_bytes, bf16.step_ms.to_bits()), (Bytes(4 * parameters), f32.step_ms.to_bits()));
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
    assert!(plan(&device, &workload, &single).is_ok());
    assert!(matches!(plan(&device, &workload, &accumulating), Err(PlanError::DoesNotFit(_))));
}

#[test]
fn measurements_without_sums_get_them() {
    let (workload, parameters) = gpt2();
    let (reserved, with_sums) = (Bytes::from_mib(9000), Bytes::from_mib(9100));
    let measured = |accumulating| {
        let point = MeasuredBatch {
            reserved_bytes: Some(reserved),
            reserved_accumulating_bytes: accumulating,
            ..MeasuredBatch::default()
        };
        let batch = [(2, point)].into();
        let mode = MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch };
        let mode = [(Mode::new(Precision::Bf16Params, false), mode)].into();
        let on = MeasuredOn { mode, ..nominal("h200").measured_on("0.22.1") };
        let on = [("h200".to_owned(), on)].into();
        workload.clone().with_measured(Measured { parameters, on, ..Measured::default() })
    };
    // The pools without batches that are prepared ahead, and the margin.
    let pools = |accumulating, micro_batches, ranks| {
        let goal = goal(Precision::Bf16Params, micro_batches, ranks);
        let memory = memory(&measured(accumulating), &goal);
        let queue = memory.inputs.0 / 3 * 2;
        let around = memory.context + memory.kernels + memory.exchange + memory.margin + Bytes(queue);
        (memory.total() - around, memory.margin)
    };
    assert_eq!(pools(None, 1, 1), (reserved, Bytes::ZERO));
    let (bytes, margin) = pools(None, 4, 1);
    assert!(bytes == reserved + Bytes(4 * parameters) && margin > Bytes::ZERO, "{bytes} {margin}");
    assert_eq!(pools(Some(with_sums), 4, 1), (with_sums, Bytes::ZERO));
    // One rank was measured; with two, gradients of 2 bytes become sums of 4.
    let (bytes, margin) = pools(Some(with_sums), 1, 2);
    assert!(bytes == reserved + Bytes(2 * parameters) && margin > Bytes::ZERO, "{bytes} {margin}");
    assert_eq!(pools(Some(with_sums), 4, 2), (with_sums, Bytes::ZERO));
}
