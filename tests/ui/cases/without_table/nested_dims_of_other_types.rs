use gpu_tuned::gpu_tuned;

#[derive(Clone, Default)]
struct Model {
    n_layers: usize,
    d_model: Option<usize>,
    causal: u8,
    d_ff: f32,
    heads: bool,
}

#[gpu_tuned(transformer(seq = 256, vocab = 8192), target = "h200")]
#[derive(Clone)]
struct Types {
    #[tuned(dims(layers: n_layer = 4, d_model = 256, causal = true, d_ff = 1024, heads = 4))]
    model: Model,
    #[tuned]
    batch_size: usize,
}

fn main() {}
