use gpu_tuned::gpu_tuned;

// 13.1 billion parameters.
#[gpu_tuned(transformer(layers = 40, d_model = 5120, vocab = 50257, seq = 2048, tied_head = false), target = "h200")]
#[derive(Debug)]
struct LlmConfig {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", LlmConfig::default());
}
