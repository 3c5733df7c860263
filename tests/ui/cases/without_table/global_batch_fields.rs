//! A field that is to hold the global batch: of no such name, planned, of another type, without a default, with one that is
//! no number.

use gpu_tuned::gpu_tuned;

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = batchsize, target = "generic")]
#[derive(Clone)]
struct Misspelled {
    #[tuned(default = 64)]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = batch_size, target = "generic")]
#[derive(Clone)]
struct Planned {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = batch_size, target = "generic")]
#[derive(Clone)]
struct OfAnotherType {
    #[tuned(default = 64.0)]
    batch_size: f64,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = batch_size, target = "generic")]
#[derive(Clone)]
struct WithoutDefault {
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = batch_size, target = "generic")]
#[derive(Clone)]
struct Computed {
    #[tuned(default = 8 * 8)]
    batch_size: usize,
}

fn main() {}
