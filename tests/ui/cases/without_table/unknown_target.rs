use gpu_tuned::gpu_tuned;

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "rtx4900")]
#[derive(Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {}
