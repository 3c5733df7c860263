use gpu_tuned::gpu_tuned;

const BATCH: u64 = 64;

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = BATCH, optimizer = "AdamW", target = "RTX4090")]
#[derive(Debug)]
struct Spelled {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(
    transformer(layers = 2.0, d_model = 64f32, vocab = 18446744073709551616, seq = crate::BATCH * 2, heads = -4, d_ff = "2e3"),
    global_batch = 18446744073709551615,
    memory_headroom = "10%",
    world_size = 1e1,
    target = "h200"
)]
#[derive(Debug)]
struct Numbers {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 32, target = "h200")]
#[derive(Debug)]
struct Doubled {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(crate = 4, mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct NoPath {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(crate, mlp(widths = [8, 8]), global_batch = 64, target = "H-200")]
#[derive(Debug)]
struct NoValue {
    #[tuned]
    batch_size: usize,
}

fn main() {}
