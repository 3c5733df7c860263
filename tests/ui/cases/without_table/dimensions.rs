use gpu_tuned::gpu_tuned;

#[gpu_tuned(transformer(seq = 256, vocab = 8192), target = "h200")]
#[derive(Debug)]
struct Missing {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(
    convnet(image = "8", classes = 0, stages = [[32, 2], [64]], batch_statistics = yes, block = "botleneck", channels),
    target = "h200"
)]
#[derive(Debug)]
struct Values {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(layers = 0, d_model = 512, vocab = 8192, seq = 256, seq = 128), target = "h200")]
#[derive(Debug)]
struct Ranges {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [784, "512", 10], optimizer = "sgd"), optimizer = "adamww", lora_targets = ["q"], target = "h200")]
#[derive(Debug)]
struct Training {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [784, 512, 10]), lora_rank = 8, frozen_weights = "q4", teacher = "other", target = "h200")]
#[derive(Debug)]
struct Contradictions {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(layers = 6, d_model = 500, heads = 8, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct Heads {
    #[tuned]
    batch_size: usize,
}

fn main() {}
