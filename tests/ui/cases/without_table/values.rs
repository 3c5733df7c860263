use gpu_tuned::gpu_tuned;

#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 0,
    world_size = -2,
    precision = f32,
    memory_headroom,
    throughput_tolerance = "2%",
    target = h200,
    target = "h200"
)]
#[derive(Debug)]
struct Kinds {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    precision = "bf16",
    world_size(2),
    global_batch =,
    "h200",
    target = "h200"
)]
#[derive(Debug)]
struct Shapes {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mpl(widths = [784, 10]), target = "h200")]
#[derive(Debug)]
struct Misspelled {
    #[tuned]
    batch_size: usize,
}

/// Units, and a dimension beside the model.
#[gpu_tuned(mlp(widths = [784, 10]), memory_headroom = 0.5percent, host_ms_per_sample = 300us, layers = 6, widths = [1], target = "h200")]
#[derive(Debug)]
struct Units {
    #[tuned]
    batch_size: usize,
}

fn main() {}
