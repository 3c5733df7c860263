use gpu_tuned::gpu_tuned;

#[gpu_tuned(workload = "digits", world_size = 4, target = "h200")]
#[derive(Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", Config::default());
}
