use gpu_tuned::gpu_tuned;

#[gpu_tuned(transformer(seq = 256, vocab = 8192), target = "h200")]
#[derive(Debug)]
struct Mistakes {
    #[tuned(dim = layrs, default = 6)]
    n_layers: usize,
    #[tuned(dim = d_model)]
    d_model: usize,
    #[tuned(dim = seq, default = 128)]
    seq: usize,
    #[tuned(dim = heads, default = 8)]
    heads: f32,
    #[tuned(dim = d_ff, default = 4 * 512)]
    d_ff: u32,
    #[tuned(dim = optimizer, default = "sgd")]
    optimizer: String,
    #[cfg(all())]
    #[tuned(dim = tied_head, default = true)]
    tied_head: bool,
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192, d_model = 512), target = "h200")]
#[derive(Debug)]
struct Both {
    #[tuned(setting = batch_size, dim = layers, default = 6)]
    layers: usize,
}

#[gpu_tuned(transformer(seq = 256, layers = 2, d_model = 512), target = "h200")]
#[derive(Debug)]
struct TooSmall {
    #[tuned(dim = vocab, default = 4294967295)]
    vocab: i32,
}

fn main() {}
