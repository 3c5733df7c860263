use gpu_tuned::gpu_tuned;

#[gpu_tuned(crate = facade::tuning, mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {}
