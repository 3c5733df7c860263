use gpu_tuned::gpu_tuned;

// 6.7 billion parameters.
#[gpu_tuned(transformer(layers = 32, d_model = 4096, vocab = 32000, seq = 2048, tied_head = false), target = "gtx1080")]
#[derive(Debug)]
struct SevenBillionOnGtx1080 {
    #[tuned]
    batch_size: usize,
}

// 6.7 billion parameters.
#[gpu_tuned(transformer(layers = 32, d_model = 4096, vocab = 32000, seq = 2048, tied_head = false), target = "rtx4090")]
#[derive(Debug)]
struct SevenBillionOnRtx4090 {
    #[tuned]
    batch_size: usize,
}

// 13.1 billion parameters.
#[gpu_tuned(transformer(layers = 40, d_model = 5120, vocab = 50257, seq = 2048, tied_head = false), target = "h200")]
#[derive(Debug)]
struct ThirteenBillionOnH200 {
    #[tuned]
    batch_size: usize,
}

fn main() {
    println!("{:?}", SevenBillionOnGtx1080::default());
    println!("{:?}", SevenBillionOnRtx4090::default());
    println!("{:?}", ThirteenBillionOnH200::default());
}
