use gpu_tuned::gpu_tuned;

#[derive(Clone, Debug)]
struct Model;

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Clone, Debug)]
struct WithoutDefault<'a, T: Clone> {
    #[tuned]
    batch_size: usize,
    model: Model,
    name: &'a String,
    #[tuned(dims())]
    generic: Vec<T>,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Clone, Debug)]
struct NoDefaults<'a> {
    #[tuned]
    batch_size: usize,
    model: Model,
    name: &'a String,
    #[tuned(default = "four")]
    count: usize,
}

#[derive(Clone, Debug)]
enum Precision {
    Low,
    High,
}

#[gpu_tuned(mlp(widths = [8, 8]), global_batch = 64, target = "h200")]
#[derive(Clone, Debug)]
struct OwnPrecision {
    #[tuned]
    precision: Precision,
}

fn main() {}
