use gpu_tuned::gpu_tuned;

#[gpu_tuned(target = "h200")]
#[derive(Debug)]
struct None {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(
    target = "h200",
    convnet(image = 8, classes = 10, stages = [[32, 2]]),
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256)
)]
#[derive(Debug)]
struct Two {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(target = "h200", transformer = "small")]
#[derive(Debug)]
struct NotAList {
    #[tuned]
    batch_size: usize,
}

fn main() {}
