use gpu_tuned::gpu_tuned;

#[gpu_tuned(workload = "huge", world_size = 4)]
#[derive(Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {}
