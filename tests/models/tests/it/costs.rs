//! Parameters of Burn's modules, and bytes that Burn keeps from the forward for the backward pass, compared with core's.
//!
//! Channels of convolutions are powers of two, which CUDA does not pad, from four on.

use gpu_tuned_core::workload::{
    self, Activation, Block, EncoderDecoder, Matrix, Positions, Stage, Transformer, Unet, Vit, Workload, WorkloadSpec,
};
use models_tests::{
    Network,
    convnet::{self, Convnet},
    diffusion::Diffusion,
    llama::{Llama, llama},
    measure::{self, trainable},
    mlp::Mlp,
    mobile::Mobile,
    recurrent::{self, Recurrent},
    transformer::{Classes, Classifier, Gpt},
    unet::{self, UNet},
    vgg::Vgg,
};

const TOLERANCE: f64 = 0.01;

/// Bytes that core computes for one sample.
pub(crate) fn kept(workload: &Workload, checkpointed: bool) -> u64 {
    let sample = &workload.sample;
    let bytes = if checkpointed { sample.checkpointed_activations } else { Some(sample.activations) };
    bytes.expect("BUG: it follows from the dimensions").0
}

/// Compares the parameters only, and returns core's costs.
fn same_parameters<N: Network>(dimensions: &N::Dimensions) -> Workload {
    let spec = WorkloadSpec::from(dimensions.clone().into());
    let (workload, mistakes) = (spec.workload(), spec.mistakes());
    assert!(mistakes.is_empty(), "{dimensions:?}: {mistakes:?}");
    assert_eq!(workload.parameters.trained(), spec.parameters(), "{dimensions:?}");
    let model = N::new(dimensions, &measure::device(false));
    assert_eq!(spec.parameters(), trainable(&model) as u64, "{dimensions:?}");
    workload
}

/// Compares core with models of these dimensions: the parameters, and the slope of the kept bytes over the micro-batch,
/// plain and checkpointed. A sample of core's is `rows` of the model's.
fn check<N: Network>(rows: usize, all: impl IntoIterator<Item = N::Dimensions>) {
    let _counting = measure::counting();
    for dimensions in all {
        let workload = same_parameters::<N>(&dimensions);
        for checkpointed in [false, true] {
            let name = format!("{dimensions:?}, checkpointed {checkpointed}");
            let device = measure::device(checkpointed);
            let model = N::new(&dimensions, &device);
            let measured = measure::kept_per_sample(|samples| model.loss(&dimensions, samples * rows, &device));
            let measured = measured as f64 / rows as f64;
            let ratio = kept(&workload, checkpointed) as f64 / measured;
            println!("{name}: {measured} bytes a sample, core / measured {ratio:.4}");
            assert!((ratio - 1.0).abs() < TOLERANCE, "{name}: {ratio} of {measured} bytes");
        }
    }
}

fn gpt_dimensions() -> [Transformer; 4] {
    let small = Transformer { heads: Some(5), d_ff: Some(448), dropout: false, ..Transformer::new(2, 160, 1100, 96) };
    [
        small.clone(),
        Transformer { layers: 3, d_model: 96, heads: Some(3), seq: 128, vocab: 300, causal: false, ..small.clone() },
        Transformer {
            layers: 1,
            d_ff: Some(900),
            heads: Some(10),
            tied_head: false,
            final_norm: false,
            ..small.clone()
        },
        Transformer { dropout: true, ..small },
    ]
}

#[test]
fn gpt() {
    check::<Gpt>(1, gpt_dimensions());
}

#[test]
fn classifiers() {
    check::<Classifier>(
        1,
        gpt_dimensions().map(|gpt| Classes {
            norm_first: gpt.final_norm,
            transformer: Transformer {
                vocab: 500,
                causal: false,
                final_norm: false,
                tied_head: false,
                classes: Some(5),
                ..gpt
            },
        }),
    );
}

#[test]
fn llama_its_variants_and_mixtures_of_experts() {
    let biases = vec![Matrix::Query, Matrix::Key, Matrix::Value];
    let own_heads = Transformer { head_dim: Some(48), biases, ..llama([2, 128, 500, 96], 300, [6, 2]) };
    check::<Llama>(
        1,
        [
            llama([2, 128, 1100, 96], 448, [8, 2]),
            llama([3, 128, 1100, 96], 300, [8, 8]),
            llama([2, 128, 500, 128], 448, [4, 1]),
            own_heads.clone(),
            Transformer { qk_norm: true, ..own_heads.clone() },
            Transformer { qk_norm: true, norms_per_layer: 4, head_dim: Some(16), ..own_heads.clone() },
            Transformer { experts: Some(4), ..own_heads.clone() },
            Transformer { experts: Some(8), experts_per_token: 3, layers: 1, ..own_heads },
        ],
    );
}

#[test]
fn a_tied_head_keeps_the_copy_of_its_weight_that_core_counts() {
    let _counting = measure::counting();
    for tied_head in [false, true] {
        let d = Transformer { layers: 1, tied_head, ..gpt_dimensions()[0].clone() };
        let workload = WorkloadSpec::from(d.clone()).workload();
        let weight_bytes = 4 * d.d_model * d.vocab;
        for (checkpointed, copies) in
            [(false, workload.parameters.copies), (true, workload.parameters.copies_checkpointed)]
        {
            let device = measure::device(checkpointed);
            let model = Gpt::new(&d, &device);
            let loss = || model.loss(&d, 2, &device);
            measure::measure_step(loss);
            let held = measure::measure_step(loss);
            let kept = held.by_size.get(&(weight_bytes as usize)).copied().unwrap_or(0);
            assert_eq!(4 * copies, weight_bytes * kept as u64, "tied {tied_head}, checkpointed {checkpointed}");
        }
    }
}

/// The dimensions of a small vision transformer.
pub(crate) fn vit() -> Vit {
    Vit { image: 64, patch: 8, layers: 2, d_model: 128, heads: Some(4), classes: 10, dropout: false, ..Vit::default() }
}

#[test]
fn vision_transformers() {
    check::<models_tests::vit::Vit>(
        1,
        [
            vit(),
            Vit { class_token: false, layers: 1, ..vit() },
            Vit { patch: 4, layers: 1, d_model: 64, dropout: true, ..vit() },
        ],
    );
}

pub(crate) fn encoder_decoder_dimensions() -> [EncoderDecoder; 3] {
    let small = EncoderDecoder {
        layers: 2,
        d_model: 128,
        d_ff: Some(384),
        heads: Some(4),
        vocab: 700,
        seq: 48,
        source_seq: Some(64),
        dropout: false,
        ..EncoderDecoder::default()
    };
    [
        small.clone(),
        EncoderDecoder {
            encoder_layers: Some(1),
            layers: 3,
            source_seq: Some(32),
            seq: 96,
            dropout: true,
            ..small.clone()
        },
        EncoderDecoder {
            encoder_layers: Some(2),
            layers: 1,
            source_seq: Some(100),
            seq: 40,
            spectrogram: Some(20),
            source_positions: Some(Positions::Sinusoidal),
            ..small
        },
    ]
}

#[test]
fn encoder_decoders() {
    check::<models_tests::encoder_decoder::EncoderDecoder>(1, encoder_decoder_dimensions());
}

pub(crate) fn diffusion_dimensions() -> [Unet; 4] {
    let small = Unet {
        image: 16,
        channels: 4,
        classes: 4,
        widths: vec![16, 32, 32],
        blocks: Some(2),
        attention: vec![2],
        ..Unet::default()
    };
    [
        small.clone(),
        Unet { blocks: Some(1), attention: vec![1, 2], heads: 4, ..small.clone() },
        Unet { image: 32, attention: vec![], widths: vec![32, 64], ..small.clone() },
        Unet { attention: vec![2, 3], heads: 2, context: Some(24), context_tokens: 20, ..small },
    ]
}

#[test]
fn diffusion_models() {
    check::<Diffusion>(1, diffusion_dimensions());
}

#[test]
fn segmenting_u_nets() {
    let dimensions = [(48, 16, 1, 2), (32, 16, 2, 5), (64, 8, 3, 2), (32, 8, 4, 1)];
    for group_norm in [false, true] {
        check::<UNet>(
            1,
            dimensions.map(|(image, base, depth, classes)| unet::Dimensions {
                image,
                channels: 3,
                base,
                depth,
                classes,
                group_norm,
            }),
        );
    }
}

#[test]
fn convnets() {
    for kind in [Block::Plain, Block::Basic, Block::Bottleneck] {
        for (stages, image, stem) in
            [(vec![[32, 2]], 32, false), (vec![[16, 1], [32, 2]], 32, false), (vec![[32, 2], [64, 1]], 96, true)]
        {
            check::<Convnet>(
                1,
                [false, true].map(|group_norm| {
                    let stages = stages.clone();
                    convnet::Dimensions { image, stages, classes: 10, kind, group_norm, stem }
                }),
            );
        }
    }
}

fn stages(all: &[[u64; 2]]) -> Vec<Stage> {
    all.iter().map(|stage| Stage::from(*stage)).collect()
}

#[test]
fn convnets_without_norms() {
    let small = workload::Convnet {
        image: 32,
        classes: 10,
        stages: stages(&[[16, 1], [32, 2]]),
        max_pooling: true,
        bias: true,
        norm: false,
        pooled: 4,
        dense: vec![256, 128],
        ..workload::Convnet::default()
    };
    let residual = workload::Convnet { block: Block::Basic, max_pooling: false, ..small.clone() };
    check::<Vgg>(
        1,
        [
            small.clone(),
            workload::Convnet { stages: stages(&[[8, 2]]), pooled: 1, dense: vec![], ..small.clone() },
            workload::Convnet { stages: stages(&[[8, 1], [8, 1]]), pooled: 8, dense: vec![4096], ..small },
            workload::Convnet { dense: vec![], pooled: 1, ..residual.clone() },
            workload::Convnet { stages: stages(&[[32, 2], [64, 1]]), ..residual },
        ],
    );
}

#[test]
fn depthwise_networks() {
    let small = workload::Convnet {
        image: 64,
        classes: 10,
        stages: stages(&[[16, 1], [32, 2]]),
        block: Block::Inverted,
        expand: vec![1, 4],
        kernels: vec![3],
        stem_kernel: 3,
        stem_stride: 2,
        stem_channels: Some(16),
        last_channels: Some(128),
        batch_statistics: true,
        ..workload::Convnet::default()
    };
    let separable = stages(&[[32, 1], [64, 2], [128, 1]]);
    check::<Mobile>(
        1,
        [
            small.clone(),
            workload::Convnet { squeeze: Some(4), activation: Activation::Silu, kernels: vec![5], ..small.clone() },
            workload::Convnet { block: Block::Separable, expand: vec![], stages: separable, ..small },
        ],
    );
}

#[test]
fn core_pads_the_rows_of_a_convolution_as_cubecl_does() {
    // Channels, and the bytes of a row of them: `optimal_align` of cubecl-runtime 0.11.3 with CUDA's alignment of 512.
    let rows = [
        [1, 4],
        [2, 16],
        [3, 16],
        [4, 16],
        [5, 32],
        [17, 128],
        [64, 256],
        [96, 512],
        [127, 512],
        [128, 512],
        [129, 1024],
        [200, 1024],
        [256, 1024],
        [384, 1536],
    ];
    for [channels, expected] in rows {
        let block = workload::Convnet {
            image: 8,
            classes: 2,
            stages: stages(&[[channels, 1]]),
            batch_statistics: true,
            ..workload::Convnet::default()
        };
        // Subtracts the norm's output, the activation's, and the image from the convolution's output.
        let row_bytes = block.workload().sample.activations.0 / 64 - 4 * (2 * channels + 3);
        assert_eq!(row_bytes, expected, "{channels} channels");
    }
}

#[test]
fn perceptrons() {
    let widths = [vec![300, 500, 700, 200, 10], vec![64, 1024, 1024, 5], vec![2000, 100, 400]];
    check::<Mlp>(256, widths.map(|widths| workload::Mlp { widths }));
}

#[test]
fn recurrent_layers() {
    let narrow = recurrent::Dimensions {
        input: 120,
        hidden: 200,
        layers: 1,
        seq: 12,
        classes: 7,
        vocab: 0,
        every_step: true,
        gru: false,
        bidirectional: false,
    };
    for gru in [false, true] {
        check::<Recurrent>(
            16,
            [
                recurrent::Dimensions { gru, ..narrow },
                recurrent::Dimensions { gru, layers: 2, vocab: 50, seq: 3, ..narrow },
                recurrent::Dimensions { gru, layers: 3, input: 300, hidden: 100, seq: 20, ..narrow },
                recurrent::Dimensions { gru, bidirectional: true, ..narrow },
            ],
        );
        let stacked = recurrent::Dimensions { gru, bidirectional: true, layers: 2, vocab: 50, ..narrow };
        let _counting = measure::counting();
        same_parameters::<Recurrent>(&stacked);
    }
}
