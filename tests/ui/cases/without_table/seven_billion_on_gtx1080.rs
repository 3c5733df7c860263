use gpu_tuned::gpu_tuned;

// 6.7 billion parameters.
#[gpu_tuned(transformer(layers = 32, d_model = 4096, vocab = 32000, seq = 2048, tied_head = false), target = "gtx1080")]
#[derive(Debug)]
struct LlmConfig {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", LlmConfig::default());
}
