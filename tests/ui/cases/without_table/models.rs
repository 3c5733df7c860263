use gpu_tuned::gpu_tuned;

// A model without a description of its own, and those that another kind describes.
#[gpu_tuned(moe(layers = 2), target = "h200")]
#[derive(Clone, Debug)]
struct Mixture {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(resnet50(image = 224), target = "h200")]
#[derive(Clone, Debug)]
struct Resnet {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mamba(layers = 2), target = "h200")]
#[derive(Clone, Debug)]
struct Mamba {
    #[tuned]
    batch_size: usize,
}

// Keys of other libraries.
#[gpu_tuned(transformer(num_layers = 2, hidden_size = 64, vocab_size = 100, seq_len = 8, num_heads = 2), target = "h200")]
#[derive(Clone, Debug)]
struct Names {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(lstm(hidden_size = 64), target = "h200")]
#[derive(Clone, Debug)]
struct Recurrent {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer { layers = 2 }, target = "h200")]
#[derive(Clone, Debug)]
struct Braces {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(layers = 2 d_model = 64, vocab = 100, seq = 8), target = "h200")]
#[derive(Clone, Debug)]
struct CommaInList {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(mlp(widths = [2, 2]) global_batch = 64, target = "h200")]
#[derive(Clone, Debug)]
struct CommaAfterList {
    #[tuned]
    batch_size: usize,
}

fn main() {}
