//! Workloads and goals of every kind, drawn at random.

use gpu_tuned_core::workload::{
    Activation, Block, Cell, Convnet, Declared, EncoderDecoder, Family, Matrix, Mlp, ModelSpec, Norm, Optimizer,
    Positions, Recurrent, Stage, Teacher, Training, Transformer, Unet, Vit, WeightFormat, Workload, WorkloadSpec,
};
use gpu_tuned_core::{Goal, Precision, PrecisionPolicy};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Samples of an optimizer step on one rank are at most this many, so that every micro-batch can be tried.
pub(crate) const LARGEST_SHARE: u64 = 2_000;

/// Numbers of all sizes up to `most`, each order of magnitude as likely as the others.
fn up_to(most: u64) -> impl Strategy<Value = u64> {
    (0.0..=(most as f64).ln()).prop_map(|ln: f64| ln.exp() as u64)
}

fn declared() -> impl Strategy<Value = ModelSpec> {
    let families = select(vec![Family::Transformer, Family::Convnet, Family::Recurrent, Family::Other]);
    let sample = (up_to(1 << 34), option::of(0.3..1.2f64), option::of(0.01..1.0f64), option::of(up_to(1 << 30)));
    (up_to(1 << 35), sample, 3.0..15.0f64, up_to(100_000), families).prop_map(
        |(parameters, (kept, checkpointed, largest, input), flops, kernels_per_step, family)| {
            let share = |share: f64| ((kept as f64 * share) as u64).max(1);
            Declared {
                parameters,
                activation_bytes_per_sample: kept,
                checkpointed_activation_bytes_per_sample: checkpointed.map(share),
                largest_tensor_bytes_per_sample: largest.map(share),
                input_bytes_per_sample: input,
                flops_per_sample: 10f64.powf(flops),
                kernels_per_step,
                family,
                ..Declared::default()
            }
            .into()
        },
    )
}

fn transformers() -> impl Strategy<Value = ModelSpec> {
    let sizes = (up_to(48), up_to(64), up_to(128_000), up_to(4096));
    let heads = (0..3u32, 0..3u32, option::of(up_to(16_384)), option::of(up_to(1000)));
    let layout = (any::<[bool; 7]>(), select(vec![Norm::Layer, Norm::Rms]));
    let positions = select(vec![Positions::Learned, Positions::Sinusoidal, Positions::Rotary, Positions::None]);
    (sizes, heads, layout, positions).prop_map(
        |((layers, width, vocab, seq), (halvings, shared, d_ff, classes), (flags, norm), positions)| {
            let heads = 1 << (halvings + shared);
            Transformer {
                heads: Some(heads),
                kv_heads: Some(1 << halvings),
                d_ff,
                gated: flags[0],
                causal: flags[1],
                dropout: flags[2],
                bias: flags[3],
                norm,
                positions,
                final_norm: flags[4],
                tied_head: flags[5],
                classes,
                pooler: flags[6],
                ..Transformer::new(layers, heads * width, vocab, seq)
            }
            .into()
        },
    )
}

/// Transformers with heads of their own width, and with experts.
fn transformers_with_experts() -> impl Strategy<Value = ModelSpec> {
    let experts = option::of((1..=64u64).prop_flat_map(|experts| (Just(experts), 1..=experts)));
    let sizes = (up_to(48), up_to(4096), up_to(32), up_to(256), up_to(1024));
    (sizes, experts, 0..5u64, any::<[bool; 2]>()).prop_map(
        |((layers, d_model, heads, head_dim, seq), experts, norms_per_layer, [qk_norm, gated])| {
            Transformer {
                heads: Some(heads),
                head_dim: Some(head_dim),
                qk_norm,
                gated,
                norms_per_layer,
                experts: experts.map(|(experts, _)| experts),
                experts_per_token: experts.map_or(2, |(_, active)| active),
                biases: vec![Matrix::Query],
                ..Transformer::new(layers, d_model, 32_000, seq)
            }
            .into()
        },
    )
}

fn vision_transformers() -> impl Strategy<Value = ModelSpec> {
    (up_to(24), up_to(32), up_to(24), up_to(16), any::<[bool; 2]>()).prop_map(
        |(side, patch, layers, width, [class_token, dropout])| {
            let d_model = 64 * width;
            Vit { image: side * patch, patch, classes: 10, layers, d_model, class_token, dropout, ..Vit::default() }
                .into()
        },
    )
}

fn encoder_decoders() -> impl Strategy<Value = ModelSpec> {
    let sizes = (up_to(24), option::of(up_to(24)), up_to(16), up_to(2048), option::of(up_to(2048)));
    (sizes, option::of(up_to(128)), any::<bool>()).prop_map(
        |((layers, encoder_layers, width, seq, source_seq), spectrogram, gated)| {
            EncoderDecoder {
                layers,
                d_model: 64 * width,
                vocab: 32_000,
                seq,
                encoder_layers,
                source_seq,
                spectrogram,
                gated,
                ..EncoderDecoder::default()
            }
            .into()
        },
    )
}

fn depthwise_networks() -> impl Strategy<Value = ModelSpec> {
    let stages = vec((up_to(512), 1..4u64).prop_map(|(channels, blocks)| Stage { channels, blocks }), 1..5);
    let activations = select(Activation::ALL.to_vec());
    (up_to(256), stages, option::of((1..8u64, option::of(1..8u64))), activations, any::<bool>()).prop_map(
        |(image, stages, inverted, activation, batch_statistics)| {
            let block = if inverted.is_some() { Block::Inverted } else { Block::Separable };
            let expand = inverted.iter().map(|(expand, _)| *expand).collect();
            let squeeze = inverted.and_then(|(_, squeeze)| squeeze);
            let model = Convnet { image, classes: 10, stages, block, expand, squeeze, ..Convnet::default() };
            Convnet { activation, batch_statistics, stem_kernel: 3, stem_stride: 2, ..model }.into()
        },
    )
}

fn convnets() -> impl Strategy<Value = ModelSpec> {
    let stages = vec((up_to(1024), 1..6u64).prop_map(|(channels, blocks)| Stage { channels, blocks }), 1..5);
    let blocks = select(vec![Block::Plain, Block::Basic, Block::Bottleneck]);
    (up_to(512), up_to(10_000), stages, blocks, select(vec![(0, 1), (3, 1), (3, 2), (7, 4)]), any::<bool>()).prop_map(
        |(image, classes, stages, block, (stem_kernel, stem_stride), batch_statistics)| {
            Convnet { image, classes, stages, block, stem_kernel, stem_stride, batch_statistics, ..Convnet::default() }
                .into()
        },
    )
}

fn unets() -> impl Strategy<Value = ModelSpec> {
    let plain = (up_to(64), vec(up_to(512), 1..5), up_to(64), any::<bool>()).prop_map(
        |(side, widths, classes, batch_statistics)| Unet {
            image: 16 * side,
            classes,
            widths,
            batch_statistics,
            ..Unet::default()
        },
    );
    let diffusion = (select(vec![1, 2, 8]), option::of(up_to(1024)), up_to(4), any::<bool>());
    (plain, option::of(diffusion)).prop_map(|(plain, diffusion)| {
        let Some((heads, context, blocks, attends)) = diffusion else { return plain.into() };
        let widths: Vec<_> = plain.widths.iter().map(|width| width * heads).collect();
        let attention = if attends { vec![widths.len() as u64] } else { Vec::new() };
        Unet { widths, batch_statistics: false, blocks: Some(blocks), attention, heads, context, ..plain }.into()
    })
}

fn perceptrons() -> impl Strategy<Value = ModelSpec> {
    vec(up_to(20_000), 2..8).prop_map(|widths| Mlp { widths }.into())
}

fn recurrent() -> impl Strategy<Value = ModelSpec> {
    let sizes = (up_to(2048), up_to(2048), 1..5u64, up_to(512), up_to(50_000));
    (select(vec![Cell::Lstm, Cell::Gru]), sizes, any::<[bool; 2]>(), option::of(up_to(50_000))).prop_map(
        |(cell, (inputs, hidden, layers, seq, outputs), [every_step, bidirectional], vocab)| {
            Recurrent { cell, inputs, hidden, layers, seq, outputs, every_step, bidirectional, vocab }.into()
        },
    )
}

fn trainings() -> impl Strategy<Value = Training> {
    let formats = || select(vec![WeightFormat::Full, WeightFormat::Q8, WeightFormat::Q4]);
    let targets = vec![Vec::new(), vec![Matrix::Dense], vec![Matrix::Query, Matrix::Down]];
    let adapters = option::weighted(0.2, (up_to(64), select(targets), formats()));
    let teachers = select(vec![Teacher::None, Teacher::None, Teacher::None, Teacher::Copy, Teacher::Other]);
    let rest = (option::weighted(0.2, up_to(1 << 30)), option::weighted(0.2, up_to(1 << 28)), 0.0..0.5f64);
    let optimizers = select(Optimizer::ALL.to_vec());
    (optimizers, adapters, teachers, up_to(1 << 32), formats(), rest).prop_map(
        |(optimizer, adapters, teacher, of_teacher, teacher_weights, (frozen, scratch, pruned))| {
            let (lora_rank, lora_targets, frozen_weights) = match adapters {
                Some((rank, targets, format)) => (Some(rank), targets, format),
                None => (None, Vec::new(), WeightFormat::Full),
            };
            Training {
                optimizer,
                lora_rank,
                lora_targets,
                frozen_parameters: frozen.unwrap_or(0),
                frozen_weights,
                teacher,
                teacher_parameters: (teacher == Teacher::Other).then_some(of_teacher),
                teacher_weights,
                pruned,
                layer_scratch_bytes: scratch.unwrap_or(0),
                host_ms_per_sample: None,
            }
        },
    )
}

/// Workloads of every kind of model, each trained in a way that it allows.
pub(crate) fn workloads() -> impl Strategy<Value = Workload> {
    let models = prop_oneof![
        declared().boxed(),
        transformers().boxed(),
        transformers_with_experts().boxed(),
        vision_transformers().boxed(),
        encoder_decoders().boxed(),
        depthwise_networks().boxed(),
        convnets().boxed(),
        unets().boxed(),
        perceptrons().boxed(),
        recurrent().boxed(),
    ];
    (models, trainings()).prop_map(|(model, training)| {
        let spec = WorkloadSpec { model: model.clone(), training: training.clone() };
        if spec.mistakes().is_empty() {
            return spec.workload();
        }
        let plain = WorkloadSpec {
            model,
            training: Training { optimizer: training.optimizer, pruned: training.pruned, ..Training::default() },
        };
        assert_eq!(plain.mistakes(), [], "{plain:?}");
        plain.workload()
    })
}

/// Goals with a global batch.
pub(crate) fn goals() -> impl Strategy<Value = Goal> {
    goals_of(LARGEST_SHARE)
}

/// Goals with a global batch of at most `most` samples on each rank.
pub(crate) fn goals_of(most: u64) -> impl Strategy<Value = Goal> {
    let step = (prop_oneof![up_to(most), 1..=most], 1..=8u64, any::<bool>());
    let precision = select(vec![None, Some(PrecisionPolicy::Auto), Some(Precision::Bf16Params.into())]);
    let bounds = (0.0..0.3f64, prop_oneof![Just(0.02), 0.0..0.5f64], option::weighted(0.25, 0.05..0.99f64));
    (step, precision, bounds, select(vec![0, 16, 1024, 16_384])).prop_map(
        |((share, world_size, shard_optimizer), precision, (headroom, tolerance, target), prefetch_mib)| Goal {
            global_batch: Some(share * world_size),
            world_size,
            shard_optimizer,
            precision,
            memory_headroom: headroom,
            throughput_tolerance: tolerance,
            target_utilization: target,
            prefetch_mib,
            ..Goal::default()
        },
    )
}
