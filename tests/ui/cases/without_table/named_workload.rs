use gpu_tuned::gpu_tuned;

#[gpu_tuned(workload = "digits", target = "h200")]
#[derive(Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {}
