use gpu_tuned::gpu_tuned;

#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 512,
    world_size = 3,
    target = "h200"
)]
#[derive(Debug)]
struct Ranks {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    precision = "bf16_params",
    target = "gtx1080"
)]
#[derive(Debug)]
struct NotSupported {
    #[tuned]
    batch_size: usize,
}

fn main() {}
