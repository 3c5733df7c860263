use gpu_tuned::{Precision, gpu_tuned};

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct Mistakes {
    #[tuned]
    batchsize: usize,
    #[tuned(setting = num_worker)]
    threads: usize,
    #[tuned]
    allow_tf32: Option<bool>,
    #[tuned]
    precision: u8,
    #[tuned]
    kernels: usize,
    #[tuned]
    gradient_accumulation: f32,
    #[tuned(settings = prefetch_depth)]
    queue: usize,
    #[tuned]
    #[tuned]
    num_workers: usize,
    #[tuned(setting = "eval_batch_size")]
    eval: usize,
    #[tuned = 4]
    seed: usize,
    #[tuned(default)]
    name: String,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct Twice {
    #[tuned]
    batch_size: usize,
    #[tuned(setting = batch_size)]
    micro_batch: usize,
    #[tuned(default = 4)]
    num_workers: usize,
    #[tuned]
    precision: Precision,
}

fn main() {}
