use gpu_tuned::gpu_tuned;

#[gpu_tuned(workload = "huge", world_size = 4)]
#[derive(Debug)]
struct DimensionOfNamedWorkload {
    #[tuned(dim = layers, default = 6)]
    layers: usize,
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(workload = "digits")]
#[derive(Debug)]
struct GoalOfTheFile {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(workload = "huge", world_size = 4)]
#[derive(Debug)]
struct NoSelectedTargetFits {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(workload = "digits", world_size = 4, target = "h200")]
#[derive(Debug)]
struct TargetWithBuildScript {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(workload = "digit", world_size = 4)]
#[derive(Debug)]
struct UnknownWorkload {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", TargetWithBuildScript::default());
}
