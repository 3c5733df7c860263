//! Numbers of parameters: what core computes from dimensions against what Burn's modules hold.

use burn::{module::Module, tensor::Device};
use gpu_tuned_core::workload::{self, Stage};
use models_tests::{
    convnet::{self, BlockKind, Convnet},
    measure::{self, trainable},
    mlp::Mlp,
    recurrent::{self, Recurrent},
    transformer::{self, Gpt, Llama},
    unet::{self, UNet},
};

fn device() -> Device {
    measure::device(false)
}

fn transformer(layers: usize, d_model: usize, d_ff: usize, heads: usize) -> transformer::Dimensions {
    transformer::Dimensions {
        layers,
        d_model,
        d_ff,
        heads,
        kv_heads: heads,
        vocab: 331,
        seq: 40,
        dropout: 0.0,
        causal: true,
        tied: true,
        norm_first: true,
    }
}

#[test]
fn core_counts_the_parameters_of_gpt() {
    for d in [transformer(1, 64, 256, 4), transformer(3, 96, 200, 3), transformer(2, 160, 640, 5)] {
        let core = workload::Transformer {
            heads: Some(d.heads as u64),
            d_ff: Some(d.d_ff as u64),
            ..workload::Transformer::new(d.layers as u64, d.d_model as u64, d.vocab as u64, d.seq as u64)
        };
        assert_eq!(core.parameters(), Gpt::new(&d, &device()).num_params() as u64, "{d:?}");
    }
}

#[test]
fn core_counts_the_parameters_of_convnets() {
    for kind in [BlockKind::Plain, BlockKind::Basic] {
        for (stages, stem) in [(vec![[16, 2]], false), (vec![[8, 1], [16, 3]], false), (vec![[16, 2], [24, 2]], true)] {
            let d = convnet::Dimensions { image: 64, stages, classes: 7, kind, group_norm: false, stem };
            let core = workload::Convnet {
                image: 64,
                classes: 7,
                stages: d
                    .stages
                    .iter()
                    .map(|&[channels, blocks]| Stage::from([channels as u64, blocks as u64]))
                    .collect(),
                channels: 3,
                stem_kernel: if stem { 7 } else { 0 },
                stem_stride: if stem { 4 } else { 1 },
                residual: kind == BlockKind::Basic,
                batch_statistics: true,
                optimizer: workload::Optimizer::AdamW,
            };
            assert_eq!(core.parameters(), trainable(&Convnet::new(&d, &device())) as u64, "{d:?}");
        }
    }
}

// Core has no such family yet: closed forms stand in for it.

#[test]
fn a_llama_has_the_parameters_of_its_closed_form() {
    for (heads, kv_heads, tokens) in [(8, 2, 331), (4, 4, 100), (4, 1, 57)] {
        let d = transformer::Dimensions { kv_heads, vocab: tokens, ..transformer(2, 128, 300, heads) };
        let (width, keys) = (d.d_model, d.d_model / heads * kv_heads);
        let layer = 2 * width + 2 * width * width + 2 * width * keys + 3 * width * d.d_ff;
        assert_eq!(Llama::new(&d, &device()).num_params(), d.layers * layer + width + 2 * tokens * width, "{d:?}");
    }
}

#[test]
fn bottleneck_resnets_have_their_published_parameters() {
    // torchvision's model table: ResNet-50.
    let stages = vec![[64, 3], [128, 4], [256, 6], [512, 3]];
    let kind = BlockKind::Bottleneck;
    let d = convnet::Dimensions { image: 224, stages, classes: 1000, kind, group_norm: false, stem: true };
    assert_eq!(trainable(&Convnet::new(&d, &device())), 25_557_032);
}

#[test]
fn a_u_net_has_the_parameters_of_its_closed_form() {
    for (base, depth, classes) in [(8, 1, 2), (6, 2, 1), (4, 4, 3)] {
        let d = unet::Dimensions { image: 32, channels: 3, base, depth, classes };
        let double = |inputs: usize, outputs: usize| 9 * outputs * (inputs + outputs) + 4 * outputs;
        let down: usize = (0..depth).map(|level| double(base << level, base << (level + 1))).sum();
        let up: usize = (0..depth)
            .map(|level| base << level)
            .map(|width| 8 * width * width + width + double(2 * width, width))
            .sum();
        let head = base * classes + classes;
        assert_eq!(trainable(&UNet::new(&d, &device())), double(3, base) + down + up + head, "{d:?}");
    }
}

#[test]
fn perceptrons_have_the_parameters_of_their_closed_form() {
    for widths in [vec![7, 5, 3], vec![30, 50, 70, 10]] {
        let closed: usize = widths.windows(2).map(|pair| (pair[0] + 1) * pair[1]).sum();
        assert_eq!(Mlp::new(&widths, &device()).num_params(), closed, "{widths:?}");
    }
}

#[test]
fn recurrent_layers_have_the_parameters_of_their_closed_form() {
    for (gru, layers, vocab) in [(false, 1, 0), (false, 3, 11), (true, 1, 0), (true, 2, 11)] {
        let (input, hidden, classes) = (12, 20, 7);
        let d = recurrent::Dimensions { input, hidden, layers, seq: 5, classes, vocab, every_step: true, gru };
        let gates = if gru { 3 } else { 4 };
        // Two biases a gate, as in PyTorch.
        let cell = |inputs: usize| gates * (inputs * hidden + hidden * hidden + 2 * hidden);
        let closed = vocab * input + cell(input) + (layers - 1) * cell(hidden) + (hidden + 1) * classes;
        assert_eq!(Recurrent::new(&d, &device()).num_params(), closed, "{d:?}");
    }
}
