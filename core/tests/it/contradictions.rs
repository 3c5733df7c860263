//! Messages about dimensions that contradict each other.

use gpu_tuned_core::workload::{ModelSpec, WorkloadSpec};
use toml::Table;

/// Models without mistakes.
const MODELS: &str = "
transformer = { layers = 2, d_model = 128, vocab = 500, seq = 64 }
encoder_decoder = { layers = 2, d_model = 128, vocab = 500, seq = 64 }
vit = { image = 64, patch = 8, classes = 10, layers = 2, d_model = 128 }
convnet = { image = 32, classes = 10, stages = [[16, 1], [32, 1]] }
unet = { image = 32, classes = 3, widths = [32, 64] }
";

const NO_PADDING: &str = "padding = false needs block = \"plain\" or \"separable\": a shortcut adds images of one size";

/// Model, keys that it is given, and the messages.
const CASES: [(&str, &str, &str); 42] = [
    ("transformer", "", ""),
    ("transformer", "heads = 3", "heads = 3 does not divide d_model = 128; give head_dim"),
    ("transformer", "heads = 3\nhead_dim = 40", ""),
    ("transformer", "kv_heads = 3", "kv_heads = 3 does not divide heads = 2"),
    ("transformer", "experts = 1", "experts_per_token = 2 is more than experts = 1"),
    ("transformer", "max_seq = 63", "max_seq = 63 is less than seq = 64"),
    // Nothing reads the table.
    ("transformer", "max_seq = 63\npositions = 'rotary'", ""),
    ("transformer", "biases = ['query', 'head']", ""),
    ("transformer", "biases = ['query', 'dense']", "biases: dense is no matrix of a layer, nor the head"),
    ("transformer", "biases = ['embedding']", "biases: embedding is no matrix of a layer, nor the head"),
    ("encoder_decoder", "", ""),
    ("encoder_decoder", "max_seq = 63", "max_seq = 63 is less than seq = 64"),
    ("encoder_decoder", "max_seq = 64\nsource_seq = 65", "max_seq = 64 is less than source_seq = 65"),
    ("encoder_decoder", "max_seq = 64\nsource_seq = 65\nsource_positions = 'sinusoidal'", ""),
    ("encoder_decoder", "max_seq = 64\nsource_seq = 65\nseq = 66", "max_seq = 64 is less than seq = 66"),
    ("vit", "", ""),
    ("vit", "heads = 3", "heads = 3 does not divide d_model = 128"),
    ("vit", "patch = 7", "patch = 7 does not divide image = 64"),
    ("convnet", "", ""),
    ("convnet", "stem_stride = 2", "stem_stride without stem_kernel: a model without a stem has no stride"),
    ("convnet", "stem_channels = 8", "stem_channels without stem_kernel: give the size of its kernel"),
    ("convnet", "strides = [1, 2, 2]", "strides has 3 numbers for 2 stages: give one for all, or each"),
    ("convnet", "kernels = [5]", ""),
    ("convnet", "expand = [4]", "expand is for inverted blocks: add block = \"inverted\""),
    ("convnet", "squeeze = 4", "squeeze is for inverted blocks: add block = \"inverted\""),
    ("convnet", "squeeze = 4\nblock = 'inverted'", ""),
    (
        "convnet",
        "batch_statistics = true\nnorm = false",
        "norm = false and batch_statistics = true contradict each other",
    ),
    ("convnet", "padding = false\nblock = 'plain'", ""),
    ("convnet", "padding = false\nblock = 'separable'", ""),
    ("convnet", "padding = false\nblock = 'basic'", NO_PADDING),
    ("convnet", "padding = false\nblock = 'bottleneck'", NO_PADDING),
    ("convnet", "padding = false\nblock = 'inverted'", NO_PADDING),
    ("unet", "", ""),
    ("unet", "blocks = 1\nattention = [1, 2]\nheads = 4", ""),
    ("unet", "image = 30\nwidths = [8, 16, 32]", "widths: 3 levels halve the image 2 times, and 30 only 1 times"),
    ("unet", "blocks = 1\nattention = [2, 3]", "attention: there is no level 3, widths has 2"),
    // The middle attends at the width of the last level.
    ("unet", "blocks = 1\nheads = 64", ""),
    ("unet", "blocks = 1\nheads = 64\nattention = [1]", "heads = 64 does not divide the width 32"),
    ("unet", "blocks = 1\nbatch_statistics = true", "batch_statistics: with `blocks` the norm is GroupNorm"),
    ("unet", "blocks = 1\ncontext = 768\ncontext_tokens = 20", ""),
    ("unet", "context_tokens = 20", "context_tokens without context: give the width of the context"),
    ("unet", "context = 768", "context is for diffusion models: give `blocks` too"),
];

#[test]
fn contradictions_are_named_with_a_remedy() {
    let models: Table = MODELS.parse().expect("models");
    for (kind, keys, message) in CASES {
        let mut dims = models[kind].as_table().expect("dimensions").clone();
        dims.extend(keys.parse::<Table>().expect("keys"));
        let model: ModelSpec = Table::from_iter([(kind.to_owned(), dims.into())]).try_into().expect("a model");
        let messages: Vec<_> = WorkloadSpec::from(model).mistakes().into_iter().map(|(_, message)| message).collect();
        assert_eq!(messages.join("\n"), message, "{kind}: {keys}");
    }
}
