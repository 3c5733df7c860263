use gpu_tuned::gpu_tuned;

#[derive(Debug)]
#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", Config::default());
}
