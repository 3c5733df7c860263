use gpu_tuned::gpu_tuned;

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct Mistakes {
    #[tuned(per_rank)]
    batch_size: usize,
    #[tuned(setting = num_workers, per_rank)]
    threads: usize,
    #[tuned(dim = layers, default = 6, per_rank)]
    depth: usize,
    #[tuned(per_rank = true)]
    log: String,
    #[tuned(per_rank, default = 3)]
    seed: usize,
    #[tuned]
    precision: gpu_tuned::Precision,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct NothingTuned {
    #[tuned(per_rank)]
    log: String,
}

fn main() {}
