//! Llama's layout with what later models add: heads of their own width, norms of queries and keys (Qwen3), norms after
//! (Gemma 2), biases of queries, keys and values (Qwen2), and a mixture of experts (Mixtral).

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig, RotaryEncoding, RotaryEncodingConfig,
        SwiGlu, SwiGluConfig, attention::generate_autoregressive_mask,
    },
    tensor::{Bool, Device, IndexingUpdateOp, Int, Tensor, activation::softmax},
};
use gpu_tuned_core::workload::{self, Matrix, Norm, Positions};

use crate::{cross_entropy, transformer::unbiased};

/// The dimensions of such a transformer.
#[derive(Clone, Copy, Debug)]
pub struct Dimensions {
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Width of a feed-forward layer, or of an expert.
    pub d_ff: usize,
    /// Attention heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Tokens in a sequence.
    pub seq: usize,
    /// True if queries and keys have norms.
    pub qk_norm: bool,
    /// True if norms also follow attention and feed-forward layers.
    pub norms_after: bool,
    /// Experts, and those of a token.
    pub experts: Option<[usize; 2]>,
}

impl Dimensions {
    /// The model as core describes it.
    pub fn spec(&self) -> workload::Transformer {
        let [layers, d_model, vocab, seq] = [self.layers, self.d_model, self.vocab, self.seq].map(|size| size as u64);
        workload::Transformer {
            heads: Some(self.heads as u64),
            kv_heads: Some(self.kv_heads as u64),
            head_dim: Some(self.head_dim as u64),
            qk_norm: self.qk_norm,
            norms_per_layer: if self.norms_after { 4 } else { 2 },
            d_ff: Some(self.d_ff as u64),
            gated: true,
            experts: self.experts.map(|[experts, _]| experts as u64),
            experts_per_token: self.experts.map_or(2, |[_, active]| active as u64),
            dropout: false,
            biases: vec![Matrix::Query, Matrix::Key, Matrix::Value],
            norm: Norm::Rms,
            positions: Positions::Rotary,
            tied_head: false,
            ..workload::Transformer::new(layers, d_model, vocab, seq)
        }
    }
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

impl Llama {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        Self {
            tokens: EmbeddingConfig::new(dimensions.vocab, dimensions.d_model).init(device),
            layers: (0..dimensions.layers).map(|_| Layer::new(dimensions, device)).collect(),
            norm: RmsNormConfig::new(dimensions.d_model).init(device),
            head: unbiased(dimensions.d_model, dimensions.vocab, device),
            rotary: RotaryEncodingConfig::new(dimensions.seq, dimensions.head_dim).init(device),
        }
    }

    /// The loss over all tokens of some sequences.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let mut hidden = self.tokens.forward(Tensor::<2, Int>::zeros([samples, dimensions.seq], device));
        let mask = generate_autoregressive_mask(samples, dimensions.seq, device).unsqueeze_dim::<4>(1);
        for layer in &self.layers {
            hidden = layer.forward(dimensions, hidden, &mask, &self.rotary);
        }
        let logits = self.head.forward(self.norm.forward(hidden));
        cross_entropy(logits.reshape([samples * dimensions.seq, dimensions.vocab]))
    }
}

impl Layer {
    fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let (width, head_dim) = (dimensions.d_model, dimensions.head_dim);
        let norms = |count: usize, width| (0..count).map(|_| RmsNormConfig::new(width).init(device)).collect();
        let biased = |heads| LinearConfig::new(width, heads * head_dim).init(device);
        let expert = |_| Expert {
            swiglu: SwiGluConfig::new(width, dimensions.d_ff).init(device),
            down: unbiased(dimensions.d_ff, width, device),
        };
        Self {
            norms: norms(if dimensions.norms_after { 4 } else { 2 }, width),
            norms_of_heads: norms(if dimensions.qk_norm { 2 } else { 0 }, head_dim),
            query: biased(dimensions.heads),
            key: biased(dimensions.kv_heads),
            value: biased(dimensions.kv_heads),
            output: unbiased(dimensions.heads * head_dim, width, device),
            router: dimensions.experts.map(|[experts, _]| unbiased(width, experts, device)),
            experts: (0..dimensions.experts.map_or(1, |[experts, _]| experts)).map(expert).collect(),
        }
    }

    fn forward(
        &self,
        dimensions: &Dimensions,
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
        dimensions: &Dimensions,
        normed: Tensor<3>,
        mask: &Tensor<4, Bool>,
        rotary: &RotaryEncoding,
    ) -> Tensor<3> {
        let [samples, seq, _] = normed.dims();
        let Dimensions { heads, kv_heads, head_dim, .. } = *dimensions;
        let split = |projected: Tensor<3>, heads| projected.reshape([samples, seq, heads, head_dim]);
        let normed_head = |place: usize, projected| match self.norms_of_heads.get(place) {
            Some(norm) => norm.forward(projected),
            None => projected,
        };
        let query = normed_head(0, split(self.query.forward(normed.clone()), heads)).swap_dims(1, 2);
        let key = normed_head(1, split(self.key.forward(normed.clone()), kv_heads)).swap_dims(1, 2);
        let value = split(self.value.forward(normed), kv_heads).swap_dims(1, 2);
        let repeated = |shared: Tensor<4>| {
            let shared = shared.unsqueeze_dim::<5>(2).repeat_dim(2, heads / kv_heads);
            shared.reshape([samples, heads, seq, head_dim])
        };
        let (query, key, value) = (rotary.forward(query), repeated(rotary.forward(key)), repeated(value));
        let scores = query.matmul(key.transpose()) / (head_dim as f64).sqrt();
        let weights = softmax(scores.mask_fill(mask.clone(), -1.0e4), 3);
        self.output.forward(weights.matmul(value).swap_dims(1, 2).reshape([samples, seq, heads * head_dim]))
    }

    /// The feed-forward layer, or for each token the experts with the highest scores, weighted by them.
    fn feed_forward(&self, dimensions: &Dimensions, normed: Tensor<3>) -> Tensor<3> {
        let (Some(router), Some([_, active])) = (&self.router, dimensions.experts) else {
            return self.experts[0].forward(normed);
        };
        let [samples, seq, width] = normed.dims();
        let tokens = normed.reshape([samples * seq, width]);
        let scores = softmax(router.forward(tokens.clone()), 1);
        let (weights, chosen) = scores.topk_with_indices(active, 1);
        let weights = weights.reshape([samples * seq * active, 1]);
        let mut all = Tensor::<2>::zeros([samples * seq, width], &tokens.device());
        for (index, expert) in self.experts.iter().enumerate() {
            let is_chosen = chosen.clone().equal_scalar(i64::try_from(index).expect("BUG: there are few experts"));
            let pairs = is_chosen.reshape([samples * seq * active]).argwhere();
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
