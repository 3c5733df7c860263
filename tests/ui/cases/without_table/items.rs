use gpu_tuned::gpu_tuned;

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
enum Either {
    Small {
        #[tuned]
        batch_size: usize,
    },
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct Tuple(#[tuned] usize);

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct Unit;

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Clone, Copy)]
union Overlaid {
    #[tuned]
    batch_size: usize,
}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
fn function() {}

#[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), target = "h200")]
#[derive(Debug)]
struct NothingTuned {
    batch_size: usize,
}

fn main() {
    function();
    println!("{:?}", Tuple::default());
}
