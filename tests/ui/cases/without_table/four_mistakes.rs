use gpu_tuned::gpu_tuned;

#[gpu_tuned(
    transformer(seq = 256, vocabs = 8192, layers = 6, d_model = 512),
    global_batch = "512",
    precison = "f32",
    memory_headroom = 1.5,
    target = "h200"
)]
#[derive(Clone, Debug)]
struct LmConfig {
    #[tuned]
    batch_size: usize,
    #[tuned]
    gradient_accumulation: usize,
}

fn tuned<C: gpu_tuned::Tuned>(config: C) -> u64 {
    config.workload();
    C::BUILT.settings.batch_size
}

fn main() {
    let config = LmConfig { batch_size: 1, ..LmConfig::default() };
    println!("{}", config.batch_size + config.gradient_accumulation);
    tuned(config);
}
