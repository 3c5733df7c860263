use gpu_tuned::gpu_tuned;

#[derive(Clone, Copy, Debug)]
enum Numbers {
    F32,
    Bf16,
    F16,
}

#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    precision = "bf16_params",
    target = "h200"
)]
#[derive(Debug)]
struct Config {
    #[tuned(setting = precision)]
    numbers: Numbers,
}

fn main() {}
