use gpu_tuned::gpu_tuned;
use ui_derives::Config;

#[derive(Debug)]
struct Model {
    n_layers: usize,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192), target = "h200")]
#[derive(Debug)]
struct Mistakes {
    #[tuned(dims(layrs: n_layers = 4, d_model: width()= 256, heads: n_heads, d_ff: ff = 4 * 512, vocab = 100, seq:))]
    model: Model,
    #[tuned(dims(optimizer = "sgd", gated: 0 = 1, causal = false, causal: masked = true, dropout: = true))]
    layout: Model,
    #[tuned(dims())]
    nothing: usize,
    #[tuned(dims = 4)]
    value: usize,
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192, d_model = 512), target = "h200")]
#[derive(Debug)]
struct Both {
    #[tuned(dim = layers, dims(layers = 4), default = 6)]
    layers: usize,
    #[cfg(all())]
    #[tuned(setting = batch_size, dims(heads = 8))]
    batch_size: usize,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192, layers = 2, d_model = 512), target = "h200")]
#[derive(Debug)]
struct Contradictory {
    #[tuned(dims(heads = 7, kv_heads = 0))]
    model: Model,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192, layers = 2), target = "h200")]
#[derive(Config, Debug)]
struct OfBurn {
    #[tuned(dims(d_model = 256), default = Model { n_layers: 2 })]
    model: Model,
}

fn main() {}
