use gpu_tuned::gpu_tuned;

#[gpu_tuned(workload = "digits")]
#[derive(Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {}
