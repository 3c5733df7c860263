use clap::Parser;
use gpu_tuned::gpu_tuned;
use ui_derives::Config;

#[gpu_tuned(transformer(seq = 256, vocab = 8192, d_model = 512), target = "h200")]
#[derive(Config, Debug)]
struct BurnConfig {
    #[tuned]
    #[config(default = 64)]
    batch_size: usize,
    #[config(default = 4)]
    #[tuned]
    num_workers: usize,
    #[config(default = 6)]
    #[tuned(dim = layers, default = 8)]
    n_layers: usize,
    #[tuned(default = 10)]
    epochs: usize,
}

#[gpu_tuned(transformer(d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Parser, Debug)]
struct Arguments {
    #[tuned]
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    #[arg(long, default_value = "4")]
    #[tuned(setting = num_workers)]
    workers: usize,
    #[arg(long, default_value = "6")]
    #[tuned(dim = layers)]
    layers: usize,
}

/// A second default that differs, and one that is the same.
#[gpu_tuned(mlp(widths = [784, 10]), global_batch = 64, target = "h200")]
#[derive(Parser, Debug)]
struct Own {
    #[tuned]
    batch_size: usize,
    #[tuned(default = 3)]
    #[arg(long, default_value_t = 4)]
    other: u8,
    #[tuned(default = 3)]
    #[arg(long, default_value_t = 3)]
    same: u8,
}

fn main() {
    println!("{:?}", Arguments::parse());
}
