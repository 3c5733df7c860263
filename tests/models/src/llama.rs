//! Llama's layout (RMS norms, rotary positions, grouped-query attention, a gated feed-forward layer, no biases), and what
//! later models add: heads of their own width, norms of queries and keys (Qwen3), norms after (Gemma 2), biases of queries,
//! keys and values (Qwen2), and a mixture of experts (Mixtral).

use burn::{
    module::Module,
    nn::{
        Embedding, Linear, LinearConfig, RmsNorm, RmsNormConfig, RotaryEncoding, RotaryEncodingConfig, SwiGlu,
        SwiGluConfig, attention::generate_autoregressive_mask,
    },
    tensor::{Bool, Device, IndexingUpdateOp, Int, Tensor, activation::softmax},
};
use gpu_tuned_core::workload::{Matrix, Norm, Positions, Transformer};

use crate::{Network, cross_entropy, sizes, transformer::embedding};

/// Llama's layout in this size, with the widths of the feed-forward layer, and the heads of queries and of keys.
pub fn llama([layers, d_model, vocab, seq]: [u64; 4], d_ff: u64, [heads, kv_heads]: [u64; 2]) -> Transformer {
    Transformer {
        heads: Some(heads),
        kv_heads: Some(kv_heads),
        d_ff: Some(d_ff),
        gated: true,
        dropout: false,
        bias: false,
        norm: Norm::Rms,
        positions: Positions::Rotary,
        tied_head: false,
        ..Transformer::new(layers, d_model, vocab, seq)
    }
}

/// The heads of queries, those of keys and values, and the width of a head.
fn heads(dimensions: &Transformer) -> [usize; 3] {
    let heads = dimensions.heads.unwrap_or(dimensions.d_model / 64);
    let width = dimensions.head_dim.unwrap_or(dimensions.d_model / heads);
    sizes([heads, dimensions.kv_heads.unwrap_or(heads), width])
}

/// The model.
#[derive(Module, Debug)]
pub struct Llama {
    tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    rotary: RotaryEncoding,
}

#[derive(Module, Debug)]
struct Layer {
    norms: Vec<RmsNorm>,
    norms_of_heads: Vec<RmsNorm>,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    router: Option<Linear>,
    experts: Vec<Expert>,
}

#[derive(Module, Debug)]
struct Expert {
    swiglu: SwiGlu,
    down: Linear,
}

impl Network for Llama {
    type Dimensions = Transformer;

    fn new(dimensions: &Transformer, device: &Device) -> Self {
        let [_, _, head_width] = heads(dimensions);
        let [width, vocab, seq] = sizes([dimensions.d_model, dimensions.vocab, dimensions.seq]);
        Self {
            tokens: embedding(dimensions.vocab, dimensions.d_model, device),
            layers: (0..dimensions.layers).map(|_| Layer::new(dimensions, device)).collect(),
            norm: RmsNormConfig::new(width).init(device),
            head: LinearConfig::new(width, vocab).with_bias(false).init(device),
            rotary: RotaryEncodingConfig::new(seq, head_width).init(device),
        }
    }

    /// The loss over all tokens of some sequences.
    fn loss(&self, dimensions: &Transformer, samples: usize, device: &Device) -> Tensor<1> {
        let [seq, vocab] = sizes([dimensions.seq, dimensions.vocab]);
        let mut hidden = self.tokens.forward(Tensor::<2, Int>::zeros([samples, seq], device));
        let mask = generate_autoregressive_mask(samples, seq, device).unsqueeze_dim::<4>(1);
        for layer in &self.layers {
            hidden = layer.forward(dimensions, hidden, &mask, &self.rotary);
        }
        let logits = self.head.forward(self.norm.forward(hidden));
        cross_entropy(logits.reshape([samples * seq, vocab]))
    }
}

impl Layer {
    fn new(dimensions: &Transformer, device: &Device) -> Self {
        let [heads, kv_heads, head_width] = heads(dimensions);
        let d_ff = dimensions.d_ff.unwrap_or(4 * dimensions.d_model);
        let [width, d_ff, norms] = sizes([dimensions.d_model, d_ff, dimensions.norms_per_layer]);
        let several = |count: usize, width| (0..count).map(|_| RmsNormConfig::new(width).init(device)).collect();
        let unbiased = |inputs, outputs| LinearConfig::new(inputs, outputs).with_bias(false).init(device);
        let of_heads = |matrix, heads| {
            let linear = LinearConfig::new(width, heads * head_width);
            linear.with_bias(dimensions.biases.contains(&matrix)).init(device)
        };
        let expert = |_| Expert { swiglu: SwiGluConfig::new(width, d_ff).init(device), down: unbiased(d_ff, width) };
        Self {
            norms: several(norms, width),
            norms_of_heads: several(if dimensions.qk_norm { 2 } else { 0 }, head_width),
            query: of_heads(Matrix::Query, heads),
            key: of_heads(Matrix::Key, kv_heads),
            value: of_heads(Matrix::Value, kv_heads),
            output: unbiased(heads * head_width, width),
            router: dimensions.experts.map(|experts| unbiased(width, experts as usize)),
            experts: (0..dimensions.experts.unwrap_or(1)).map(expert).collect(),
        }
    }

    fn forward(
        &self,
        dimensions: &Transformer,
        input: Tensor<3>,
        mask: &Tensor<4, Bool>,
        rotary: &RotaryEncoding,
    ) -> Tensor<3> {
        let after = |place: usize, hidden| match self.norms.get(place) {
            Some(norm) => norm.forward(hidden),
            None => hidden,
        };
        let normed = self.norms[0].forward(input.clone());
        let attended = input + after(2, self.attention(dimensions, normed, mask, rotary));
        let normed = self.norms[1].forward(attended.clone());
        attended + after(3, self.feed_forward(dimensions, normed))
    }

    fn attention(
        &self,
        dimensions: &Transformer,
        normed: Tensor<3>,
        mask: &Tensor<4, Bool>,
        rotary: &RotaryEncoding,
    ) -> Tensor<3> {
        let [samples, seq, _] = normed.dims();
        let [heads, kv_heads, head_width] = heads(dimensions);
        let split = |projected: Tensor<3>, heads| projected.reshape([samples, seq, heads, head_width]);
        let normed_head = |place: usize, projected| match self.norms_of_heads.get(place) {
            Some(norm) => norm.forward(projected),
            None => projected,
        };
        let query = normed_head(0, split(self.query.forward(normed.clone()), heads)).swap_dims(1, 2);
        let key = normed_head(1, split(self.key.forward(normed.clone()), kv_heads)).swap_dims(1, 2);
        let value = split(self.value.forward(normed), kv_heads).swap_dims(1, 2);
        // Every head of keys or values as often as query heads share it.
        let repeated = |shared: Tensor<4>| match heads / kv_heads {
            1 => shared,
            times => {
                let shared = shared.unsqueeze_dim::<5>(2).repeat_dim(2, times);
                shared.reshape([samples, heads, seq, head_width])
            }
        };
        let (query, key, value) = (rotary.forward(query), repeated(rotary.forward(key)), repeated(value));
        let scores = query.matmul(key.transpose()) / (head_width as f64).sqrt();
        let weights = softmax(scores.mask_fill(mask.clone(), -1.0e4), 3);
        self.output.forward(weights.matmul(value).swap_dims(1, 2).reshape([samples, seq, heads * head_width]))
    }

    /// The feed-forward layer, or for each token the experts with the highest scores, weighted by them.
    fn feed_forward(&self, dimensions: &Transformer, normed: Tensor<3>) -> Tensor<3> {
        let Some(router) = &self.router else { return self.experts[0].forward(normed) };
        let [samples, seq, width] = normed.dims();
        let active = dimensions.experts_per_token as usize;
        let tokens = normed.reshape([samples * seq, width]);
        let scores = softmax(router.forward(tokens.clone()), 1);
        let (weights, chosen) = scores.topk_with_indices(active, 1);
        let weights = weights.reshape([samples * seq * active, 1]);
        let mut all = Tensor::<2>::zeros([samples * seq, width], &tokens.device());
        for (index, expert) in (0_i64..).zip(&self.experts) {
            let pairs = chosen.clone().equal_scalar(index).reshape([samples * seq * active]).argwhere();
            if pairs.dims()[0] == 0 {
                continue;
            }
            let pairs = pairs.flatten::<1>(0, 1);
            let rows = pairs.clone() / i64::try_from(active).expect("BUG: few experts are active");
            let output = expert.forward(tokens.clone().select(0, rows.clone()));
            all = all.select_assign(0, rows, output * weights.clone().select(0, pairs), IndexingUpdateOp::Add);
        }
        all.reshape([samples, seq, width])
    }
}

impl Expert {
    fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        self.down.forward(self.swiglu.forward(input))
    }
}
