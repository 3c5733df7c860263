//! Messages about dimensions that contradict each other.

use gpu_tuned_core::workload::{
    Block, Convnet, EncoderDecoder, Matrix, ModelSpec, Positions, Transformer, Unet, Vit, WorkloadSpec,
};

fn assert_mistakes<M: Into<ModelSpec>, const N: usize>(models: [(M, &str); N]) {
    for (model, message) in models {
        let spec = WorkloadSpec::from(model.into());
        let messages: Vec<_> = spec.mistakes().into_iter().map(|(_, message)| message).collect();
        assert_eq!(messages.join("\n"), message, "{spec:?}");
    }
}

#[test]
fn of_transformers() {
    let model = || Transformer::new(2, 128, 500, 64);
    assert_mistakes([
        (model(), ""),
        (Transformer { heads: Some(3), ..model() }, "heads = 3 does not divide d_model = 128; give head_dim"),
        (Transformer { heads: Some(3), head_dim: Some(40), ..model() }, ""),
        (Transformer { kv_heads: Some(3), ..model() }, "kv_heads = 3 does not divide heads = 2"),
        (Transformer { experts: Some(1), ..model() }, "experts_per_token = 2 is more than experts = 1"),
        (Transformer { max_seq: Some(63), ..model() }, "max_seq = 63 is less than seq = 64"),
        // Nothing reads the table.
        (Transformer { max_seq: Some(63), positions: Positions::Rotary, ..model() }, ""),
        (Transformer { biases: vec![Matrix::Query, Matrix::Head], ..model() }, ""),
        (
            Transformer { biases: vec![Matrix::Query, Matrix::Dense], ..model() },
            "biases: dense is no matrix of a layer, nor the head",
        ),
        (
            Transformer { biases: vec![Matrix::Embedding], ..model() },
            "biases: embedding is no matrix of a layer, nor the head",
        ),
    ]);
    let model = || EncoderDecoder { layers: 2, d_model: 128, vocab: 500, seq: 64, ..EncoderDecoder::default() };
    let fixed = Some(Positions::Sinusoidal);
    assert_mistakes([
        (model(), ""),
        (EncoderDecoder { max_seq: Some(63), ..model() }, "max_seq = 63 is less than seq = 64"),
        (
            EncoderDecoder { max_seq: Some(64), source_seq: Some(65), ..model() },
            "max_seq = 64 is less than source_seq = 65",
        ),
        (EncoderDecoder { max_seq: Some(64), source_seq: Some(65), source_positions: fixed, ..model() }, ""),
        (
            EncoderDecoder { max_seq: Some(64), source_seq: Some(65), seq: 66, ..model() },
            "max_seq = 64 is less than seq = 66",
        ),
    ]);
}

#[test]
fn of_vision_transformers() {
    let model = || Vit { image: 64, patch: 8, classes: 10, layers: 2, d_model: 128, ..Vit::default() };
    assert_mistakes([
        (model(), ""),
        (Vit { heads: Some(3), ..model() }, "heads = 3 does not divide d_model = 128"),
        (Vit { patch: 7, ..model() }, "patch = 7 does not divide image = 64"),
    ]);
}

#[test]
fn of_convnets() {
    let model =
        || Convnet { image: 32, classes: 10, stages: vec![[16, 1].into(), [32, 1].into()], ..Convnet::default() };
    let unpadded = |block| Convnet { padding: false, block, ..model() };
    let no_padding = "padding = false needs block = \"plain\" or \"separable\": a shortcut adds images of one size";
    assert_mistakes([
        (model(), ""),
        (
            Convnet { stem_stride: 2, ..model() },
            "stem_stride without stem_kernel: a model without a stem has no stride",
        ),
        (
            Convnet { stem_channels: Some(8), ..model() },
            "stem_channels without stem_kernel: give the size of its kernel",
        ),
        (
            Convnet { strides: vec![1, 2, 2], ..model() },
            "strides has 3 numbers for 2 stages: give one for all, or each",
        ),
        (Convnet { kernels: vec![5], ..model() }, ""),
        (Convnet { expand: vec![4], ..model() }, "expand is for inverted blocks: add block = \"inverted\""),
        (Convnet { squeeze: Some(4), ..model() }, "squeeze is for inverted blocks: add block = \"inverted\""),
        (Convnet { squeeze: Some(4), block: Block::Inverted, ..model() }, ""),
        (
            Convnet { batch_statistics: true, norm: false, ..model() },
            "norm = false and batch_statistics = true contradict each other",
        ),
        (unpadded(Block::Plain), ""),
        (unpadded(Block::Separable), ""),
        (unpadded(Block::Basic), no_padding),
        (unpadded(Block::Bottleneck), no_padding),
        (unpadded(Block::Inverted), no_padding),
    ]);
}

#[test]
fn of_u_nets() {
    let model = || Unet { image: 32, classes: 3, widths: vec![32, 64], blocks: Some(1), ..Unet::default() };
    assert_mistakes([
        (Unet { attention: vec![1, 2], heads: 4, ..model() }, ""),
        (
            Unet { image: 30, widths: vec![8, 16, 32], ..model() },
            "widths: 3 levels halve the image 2 times, and 30 only 1 times",
        ),
        (Unet { attention: vec![2, 3], ..model() }, "attention: there is no level 3, widths has 2"),
        // The middle attends at the width of the last level.
        (Unet { heads: 64, ..model() }, ""),
        (Unet { heads: 64, attention: vec![1], ..model() }, "heads = 64 does not divide the width 32"),
        (Unet { batch_statistics: true, ..model() }, "batch_statistics: with `blocks` the norm is GroupNorm"),
        (Unet { context: Some(768), context_tokens: 20, ..model() }, ""),
        (Unet { context_tokens: 20, ..model() }, "context_tokens without context: give the width of the context"),
        (Unet { context: Some(768), blocks: None, ..model() }, "context is for diffusion models: give `blocks` too"),
    ]);
}
