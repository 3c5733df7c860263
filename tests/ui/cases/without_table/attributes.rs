use gpu_tuned::gpu_tuned;

#[derive(Debug)]
#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
struct BelowDerive {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug, Default)]
struct DeriveDefault {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(workload = "digits")]
#[derive(Debug)]
struct NoTarget {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "rtx4900")]
#[derive(Debug)]
struct UnknownTarget {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(workload = "digits", target = "h200")]
#[derive(Debug)]
struct NamedWorkload {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", BelowDerive::default());
    println!("{:?}", DeriveDefault::default());
}
