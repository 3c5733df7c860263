use gpu_tuned::gpu_tuned;

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug, Default)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", Config::default());
}
