//! Kinds of training: adapters, teachers, sharded states, single tensors.

use super::*;

/// Llama-2-7B at 256 tokens, trained as `training` says.
fn seven_billion(training: Training) -> Workload {
    let model = Transformer {
        heads: Some(32),
        d_ff: Some(11008),
        gated: true,
        bias: false,
        norm: Norm::Rms,
        positions: Positions::Rotary,
        tied_head: false,
        dropout: false,
        ..Transformer::new(32, 4096, 32000, 256)
    };
    WorkloadSpec { model: model.into(), training }.workload()
}

#[test]
fn adapters_over_packed_weights_fit_where_the_whole_model_does_not() {
    let adapted = Training { lora_rank: Some(8), frozen_weights: WeightFormat::Q4, ..Training::default() };
    let goal = Goal { precision: Some(Precision::Bf16Params.into()), ..global(16) };
    let plan = planned(&nominal("rtx4090"), &seven_billion(adapted.clone()), &goal);
    // Queries and values, 32 layers, rank 8: `r (i + o)` each. Huggingface's peft says 4,194,304 for these.
    assert_eq!(plan.memory.weights, Bytes(2 * 4_194_304));
    // Burn 0.22.1 keeps every packed weight unpacked for the backward pass: 12.9 GB in bf16, and twice that in f32.
    assert!((plan.memory.weight_copies.0 as f64 / 12.9e9 - 1.0).abs() < 0.01, "{}", plan.memory.weight_copies);
    for (workload, precision) in [(adapted, None), (Training::default(), None)] {
        let goal = Goal { precision, ..global(16) };
        misfit(&nominal("rtx4090"), &seven_billion(workload), &goal);
    }
}

#[test]
fn a_frozen_teacher_is_held_and_asked_beside_the_student() {
    let with = |teacher| seven_billion(Training { teacher, ..Training::default() });
    let (alone, taught) = (with(Teacher::None), with(Teacher::Copy));
    // The rotation's sines and cosines, for 256 positions and heads of 128.
    let table = 256 * 2 * 128;
    assert_eq!(alone.parameters.frozen, table);
    assert_eq!(taught.parameters.frozen, 2 * table + 6_738_415_616);
    assert_eq!(taught.parameters.trained(), alone.parameters.trained());
    // A forward pass more, and its logits are kept until the student has answered.
    assert!((taught.sample.flops / alone.sample.flops - 4.0 / 3.0).abs() < 1e-9);
    assert_eq!(taught.sample.activations - alone.sample.activations, Bytes(4 * 256 * 32000));
    let goal = Goal { precision: Some(Precision::Bf16Params.into()), ..global(16) };
    let memory = |workload| planned(&nominal("b200"), workload, &goal).memory;
    assert_eq!(memory(&taught).frozen_weights, Bytes(2 * (2 * table + 6_738_415_616)));
}

#[test]
fn each_rank_keeps_its_share_of_a_sharded_state() {
    let memory = |world_size, shard_optimizer| {
        let goal = Goal { world_size, shard_optimizer, ..global(512) };
        planned(&nominal("h200"), &small(), &goal).memory
    };
    let (alone, all) = (memory(1, false), memory(8, false));
    let two_eighths = Bytes(4 * small().parameters.trained() / 8 * 2);
    assert_eq!((alone.exchange, all.exchange), (Bytes::ZERO, two_eighths));
    assert_eq!(alone.optimizer_state, all.optimizer_state);
    // Two ranks have half each. The embedding of 8,192 x 512 is the largest share of eight.
    let half = memory(2, true).optimizer_state.0 as f64 / alone.optimizer_state.0 as f64;
    assert!((half - 0.5).abs() < 0.01, "{half}");
    assert_eq!(memory(8, true).optimizer_state, Bytes(8192 * 512 * 2 * 4));
}

#[test]
fn a_parameter_tensor_too_large_for_one_allocation_is_refused_by_name() {
    // The embedding alone has 3.9 GiB; a card of 12 GiB allocates 3 at once.
    let workload = Transformer { dropout: false, ..Transformer::new(1, 1024, 1 << 20, 64) }.workload();
    let training = |optimizer| Workload { optimizer, ..workload.clone() };
    let misfit = misfit(&nominal("rtx3060-12gb"), &training(Optimizer::Sgd), &global(1));
    assert!(matches!(misfit.too_large, Some(TooLarge::Parameter { .. })), "{misfit}");
    assert!(misfit.to_string().contains("the largest parameter tensor has 4.0 GiB"), "{misfit}");
}
