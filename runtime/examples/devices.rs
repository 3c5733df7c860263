//! Shows the plan for all GPUs of this machine together, opens them, and lets each compute something.
//!
//! `cargo run --example devices -p gpu-tuned --features cuda`; without `cuda`, or without a GPU, it is the CPU that is opened.

use burn::tensor::{Distribution, Tensor};
use gpu_tuned::{Options, gpu_tuned};

/// A transformer of 27 million parameters.
#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256, dropout = false),
    global_batch = 512,
    target = "generic"
)]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
    #[tuned]
    gradient_accumulation: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let session = Options::default().all_gpus().start(Config::default())?;
    println!("{session}");
    for device in session.devices() {
        let values = Tensor::<2>::random([1024, 1024], Distribution::Default, &device);
        let mean = values.mean().try_into_scalar::<f32>()?;
        println!("{device:?}: the mean of 2^20 random numbers from 0 to 1 is {mean:.3}");
    }
    let config = session.config();
    println!("on each: {} x {} samples", config.gradient_accumulation, config.batch_size);
    Ok(())
}
