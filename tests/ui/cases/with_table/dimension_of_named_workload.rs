use gpu_tuned::gpu_tuned;

#[gpu_tuned(workload = "huge", world_size = 4)]
#[derive(Debug)]
struct Config {
    #[tuned(dim = layers, default = 6)]
    layers: usize,
    #[tuned]
    batch_size: usize,
}

fn main() {}
