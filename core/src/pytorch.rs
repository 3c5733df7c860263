//! Memory that PyTorch needs to train a transformer, by [`peak`].
//!
//! Counted are weights, gradients, optimizer state, tensors kept for the backward pass, the logits with their loss, and
//! buffers of data parallelism. `torch.compile`, and offloading of weights and optimizer state are not modelled. The table in `published_memory.toml`
//! compares the estimate with published measurements.

use serde::Deserialize;

use crate::device::DeviceFacts;
use crate::workload::{ModelSpec, Norm, Parameters, Role, Teacher, Tensors, Training, Transformer, WorkloadSpec};
use crate::{Bytes, Precision};

/// A PyTorch training run, but for the model and the training method.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a training script")]
pub struct Run {
    /// Sequences that one GPU processes at a time.
    pub micro_batch: u64,
    /// Number formats of the trained parameters and of the step.
    pub precision: Precision,
    /// Format of frozen weights.
    pub frozen: Weights,
    /// True if PEFT's `prepare_model_for_kbit_training` converted norms, so that values between layers are fp32.
    pub prepared: bool,
    /// True if attention runs without a matrix of scores: flash attention, or PyTorch's scaled dot-product attention.
    pub flash_attention: bool,
    /// True if each layer keeps its input only, and is computed again in the backward pass.
    pub checkpointing: bool,
    /// True if the inputs that checkpointed layers keep lie in the host's memory.
    pub offloads: bool,
    /// Computation of the loss.
    pub loss: Loss,
    /// True if the gradients of several micro-batches are summed.
    pub accumulates: bool,
    /// True if sharded gradients stay whole on each GPU until the last micro-batch of a step (`no_sync` of FSDP).
    pub unsynced: bool,
    /// True if each parameter is updated in the backward pass, and its gradient freed.
    pub step_in_backward: bool,
    /// True if the optimizer updates all parameters together, as `torch.optim` does unless `fused` or `foreach=False` is
    /// given.
    pub foreach: bool,
    /// Storage of the optimizer state.
    pub state: OptimizerState,
    /// GPUs that train together; 0 counts as 1.
    pub devices: u64,
    /// Distribution of the training state over the GPUs.
    pub sharding: Sharding,
    /// GPUs that share one copy of a sharded state, such as those of a node in hybrid sharding; 0 for all.
    pub shards: u64,
    /// Sequences of a batch of evaluation between the steps; 0 without evaluation.
    pub eval_batch: u64,
    /// Computation of the loss in evaluation.
    pub eval_loss: Loss,
}

/// Format of frozen weights. Packed formats are those of bitsandbytes; embeddings, norms and the head stay in 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// fp32.
    Full,
    /// bf16 or fp16.
    #[default]
    Half,
    /// 8 bits, with a scale for each row. No published figure was compared.
    Int8,
    /// 4 bits, with a scale in fp32 for each 64 values.
    Nf4,
    /// 4 bits with double quantisation: scales in 8 bits, and a second scale in fp32 for each 256 of them.
    Nf4Double,
}

impl Weights {
    /// Bytes of a value in a matrix of a layer (Dettmers et al., 2023, section 3).
    const fn bytes(self) -> f64 {
        match self {
            Self::Full => 4.0,
            Self::Half => 2.0,
            Self::Int8 => 1.0,
            Self::Nf4 => 0.5 + 4.0 / 64.0,
            Self::Nf4Double => 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0),
        }
    }

    const fn is_packed(self) -> bool {
        !matches!(self, Self::Full | Self::Half)
    }
}

/// Computation of the cross-entropy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// `torch.nn.functional.cross_entropy` over all logits, in fp32.
    #[default]
    Whole,
    /// In chunks, from the output layer's input (Liger, compiled losses of torchtune).
    Chunked,
    /// In chunks, whose log-probabilities in fp32 stay for the backward pass (torchtune's `LinearCrossEntropyLoss`).
    KeptChunks,
    /// In chunks, whose logits stay, too (torchtune's `CEWithChunkedOutputLoss`).
    KeptLogits,
    /// Over all logits, whose gradients replace them (`flash_attn`'s `CrossEntropyLoss` with `inplace_backward`).
    InPlace,
}

/// Storage of the optimizer state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerState {
    /// The format of the trained parameters.
    #[default]
    Full,
    /// 8 bits, with a scale in fp32 for each 256 values (bitsandbytes).
    EightBit,
    /// 8 bits but for embeddings, which have fp32, as with bitsandbytes in `Trainer` of transformers.
    EightBitMatrices,
    /// 8 bits in unified memory, which the driver moves to the host. PyTorch does not count it.
    Paged,
}

/// Distribution of the training state over GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// All on each GPU: `DistributedDataParallel`.
    #[default]
    None,
    /// `DeepSpeed`, optimizer state sharded.
    Zero1,
    /// `DeepSpeed`, gradients sharded too.
    Zero2,
    /// `DeepSpeed`, weights sharded too.
    Zero3,
    /// `FullyShardedDataParallel` with full sharding.
    Fsdp,
    /// `FullyShardedDataParallel` with `SHARD_GRAD_OP`: as [`Fsdp`](Self::Fsdp), with all weights gathered during a step.
    FsdpGradients,
}

/// Peak memory of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Bytes in tensors, as `torch.cuda.max_memory_allocated()` reports them.
    pub allocated: Bytes,
    /// Bytes that the caching allocator reserves where they fill the GPU.
    pub reserved: Bytes,
    /// Bytes that the caching allocator reserves where lengths vary and memory is free. It frees blocks before it fails.
    pub reserved_freely: Bytes,
}

impl Peak {
    /// Bytes that the driver counts, with the CUDA context.
    #[must_use]
    pub fn on_device(self, device: &DeviceFacts) -> Bytes {
        self.reserved + device.context
    }
}

/// Reserved over allocated memory in runs that fill a GPU: the median of 28 published runs on one A100 that fill 85% or more
/// of it (`fms-acceleration`, `scripts/benchmarks/refs`). The allocator reserves more where memory is free.
const RESERVED: f64 = 1.11;

/// Reserved over allocated memory of the tensors kept for the backward pass, in runs of varying lengths with free memory: fitted
/// on every other of 61 published runs on one A100 (ms-swift, benchmark).
const RESERVED_FREELY: f64 = 2.5;

/// Estimates the peak memory of a GPU. Returns `None` unless the model is a transformer over tokens without experts, trained
/// without a teacher and without pruning.
pub fn peak(spec: &WorkloadSpec, run: &Run) -> Option<Peak> {
    let ModelSpec::Transformer(model) = &spec.model else { return None };
    let Training { teacher, pruned, .. } = spec.training;
    if model.experts.is_some() || teacher != Teacher::None || pruned > 0.0 {
        return None;
    }
    let layout = Layout::new(spec, model, run);
    let state = layout.state();
    let gradients = if run.step_in_backward { layout.largest_gradient() } else { state.gradients };
    let tokens = run.micro_batch as f64 * model.seq as f64;
    // Gradients grow while kept tensors are freed, so that the peak is at the loss or in the optimizer's step.
    let kept = tokens * layout.kept();
    let is_unsynced =
        run.unsynced && run.devices > 1 && matches!(run.sharding, Sharding::Fsdp | Sharding::FsdpGradients);
    let summed = if is_unsynced { layout.compute() * layout.parameters.trained() as f64 } else { gradients };
    let beside = if run.accumulates { summed } else { 0.0 } + layout.casts() + layout.temporary();
    // An update of all parameters together needs a copy of them (documentation of `torch.optim.AdamW`, `foreach`).
    let at_step = gradients * if run.foreach { 2.0 } else { 1.0 };
    let evaluation =
        run.eval_batch as f64 * model.seq as f64 * layout.evaluated() + layout.casts() + layout.temporary();
    let beyond = at_step.max(if run.eval_batch > 0 { evaluation } else { 0.0 });
    let allocated = state.fixed + (kept + beside).max(beyond);
    let freely = state.fixed + (kept * RESERVED_FREELY + beside).max(beyond);
    let [allocated, reserved, reserved_freely] =
        [allocated, allocated * RESERVED, freely].map(|bytes| Bytes(bytes as u64));
    Some(Peak { allocated, reserved, reserved_freely })
}

/// Chunks of a loss that is computed in chunks: torchtune's default.
const LOSS_CHUNKS: f64 = 8.0;

/// Bytes of a value in 8 bits with its part of a scale.
const EIGHT_BITS: f64 = 1.0 + 4.0 / 256.0;

/// Memory of the training state, in bytes.
struct TrainingState {
    /// Weights, optimizer state, and buffers of the whole training.
    fixed: f64,
    gradients: f64,
}

/// Widths and formats of a model in a run.
struct Layout<'a> {
    model: &'a Transformer,
    training: &'a Training,
    run: &'a Run,
    parameters: Parameters,
    /// Values of the layers' matrices, and of everything else.
    matrices: f64,
    other: f64,
    /// Values of the largest matrix of a layer.
    largest: f64,
    /// Values of the matrix that makes the result.
    head: f64,
    query: f64,
    key: f64,
    feed_forward: f64,
}

impl<'a> Layout<'a> {
    fn new(spec: &'a WorkloadSpec, model: &'a Transformer, run: &'a Run) -> Self {
        let parameters = spec.workload().parameters;
        let tensors = spec.model.tensors();
        let columns = |role| tensors.iter().find(|group| group.role == role).map_or(0.0, |group| group.columns as f64);
        let hidden = || tensors.iter().filter(|group| group.role.is_hidden_matrix());
        let matrices = hidden().map(|group| group.values() as f64).sum();
        let largest = hidden().map(Tensors::values_each).max().unwrap_or(0) as f64;
        let values = |role| tensors.iter().find(|group| group.role == role).map(|group| group.values() as f64);
        let head = values(Role::Head).or_else(|| values(Role::Embedding)).unwrap_or_default();
        let [query, key, feed_forward] = [Role::Query, Role::Key, Role::Up].map(columns);
        let other = spec.parameters() as f64 - matrices;
        let training = &spec.training;
        Self { model, training, run, parameters, matrices, other, largest, head, query, key, feed_forward }
    }

    const fn has_adapters(&self) -> bool {
        self.training.lora_rank.is_some()
    }

    fn is_trained(&self, roles: &[Role]) -> bool {
        self.parameters.trained.iter().any(|group| roles.contains(&group.role))
    }

    const fn is_sharded(&self) -> bool {
        matches!(self.run.sharding, Sharding::Zero3 | Sharding::Fsdp | Sharding::FsdpGradients)
    }

    /// `DeepSpeed` computes with 16-bit weights, and keeps fp32 ones beside the optimizer state (Rajbhandari et al., 2020,
    /// section 3.1: 2 + 2 + 12 bytes a parameter).
    fn has_master_weights(&self) -> bool {
        !matches!(self.run.sharding, Sharding::None | Sharding::Fsdp | Sharding::FsdpGradients)
            && self.run.precision.is_mixed()
    }

    /// Bytes of a value in the forward pass.
    fn compute(&self) -> f64 {
        self.run.precision.compute_bytes() as f64
    }

    /// Bytes of a value between layers: the format of the embedding, unless `DeepSpeed` or FSDP convert the weights. Adapters
    /// under FSDP in mixed precision need fp32: 0.77 MB a token of Llama 3 8B on four GPUs, 0.53 MB on one
    /// (`fms-acceleration`).
    fn residual(&self) -> f64 {
        let Run { sharding, frozen, prepared, precision, .. } = self.run;
        let is_full = match (sharding, self.has_adapters()) {
            (Sharding::None, true) => *frozen == Weights::Full || *prepared,
            (Sharding::None, false) => precision.parameter_bytes() == 4,
            (Sharding::Fsdp | Sharding::FsdpGradients, true) => precision.is_mixed(),
            _ => false,
        };
        if is_full { 4.0 } else { self.compute() }
    }

    /// Bytes of frozen weights.
    fn frozen(&self) -> f64 {
        let frozen = self.run.frozen;
        let all = self.matrices + self.other;
        match self.has_adapters() {
            true if frozen.is_packed() => frozen.bytes() * self.matrices + 2.0 * self.other,
            true => frozen.bytes() * all,
            false => (all - self.parameters.trained() as f64).max(0.0) * self.run.precision.parameter_bytes() as f64,
        }
    }

    fn state(&self) -> TrainingState {
        let run = self.run;
        let devices = run.devices.max(1) as f64;
        let shards = if run.shards > 0 { run.shards as f64 } else { devices };
        let trained = self.parameters.trained() as f64;
        let moments = self.parameters.state(self.training.optimizer) as f64;
        let full = run.precision.parameter_bytes() as f64;
        let [each, master] = if self.has_master_weights() { [2.0, 4.0] } else { [full, 0.0] };
        let moment = match run.state {
            OptimizerState::Full if self.training.optimizer.keeps_f32() => 4.0,
            OptimizerState::Full => full,
            OptimizerState::EightBit | OptimizerState::EightBitMatrices => EIGHT_BITS,
            OptimizerState::Paged => 0.0,
        };
        let has_apart = run.state == OptimizerState::EightBitMatrices && self.training.lora_rank.is_none();
        let apart = if has_apart { (self.model.vocab * self.model.d_model) as f64 } else { 0.0 };
        let beyond = (4.0 - EIGHT_BITS) * moments * apart / trained.max(1.0);
        let share = |is_sharded: bool| if is_sharded { 1.0 / shards } else { 1.0 };
        let weights = (self.frozen() + each * trained) * share(self.is_sharded());
        let optimizer = (moment * moments + beyond + master * trained) * share(run.sharding != Sharding::None);
        let gradients = each * trained * share(self.is_sharded() || run.sharding == Sharding::Zero2);
        // DistributedDataParallel copies gradients into buckets that stay (`gradient_as_bucket_view=False`).
        let buckets = if run.sharding == Sharding::None && devices > 1.0 { gradients } else { 0.0 };
        TrainingState { fixed: weights + optimizer + buckets, gradients }
    }

    /// Copies in 16 bits of fp32 matrices at the loss. Autocast keeps those of trained weights until the forward pass ends, and
    /// operations keep those of frozen weights for the backward pass, unless their layer is checkpointed.
    fn casts(&self) -> f64 {
        let is_full = !self.has_adapters() || self.run.frozen == Weights::Full;
        if !is_full || !self.run.precision.is_mixed() || self.run.sharding != Sharding::None {
            return 0.0;
        }
        let is_freed = self.has_adapters() && self.run.checkpointing;
        2.0 * (self.head + if is_freed { self.matrices / self.model.layers as f64 } else { self.matrices })
    }

    /// Gradients of the largest tensor.
    fn largest_gradient(&self) -> f64 {
        self.parameters.largest as f64 * self.run.precision.parameter_bytes() as f64
    }

    /// Buffers of a layer: a packed matrix unpacked, and sharded weights gathered, for this layer and the next. Embedding and
    /// head stay gathered. Trained weights have gradients of the layer's size, too.
    fn temporary(&self) -> f64 {
        let unpacked = if self.has_adapters() && self.run.frozen.is_packed() { 2.0 * self.largest } else { 0.0 };
        if !self.is_sharded() || self.run.devices <= 1 {
            return unpacked;
        }
        let each = if self.has_adapters() { self.run.frozen.bytes().min(self.compute()) } else { self.compute() };
        let layers = if self.has_adapters() { 2.0 } else { 3.0 };
        if self.run.sharding == Sharding::FsdpGradients {
            return unpacked + each * self.matrices + self.compute() * self.other;
        }
        unpacked + layers * each * self.matrices / self.model.layers as f64 + self.compute() * self.other
    }

    /// Bytes that a token keeps for the backward pass, at its start.
    fn kept(&self) -> f64 {
        let layers = self.model.layers as f64;
        let result = self.logits(self.run.loss, [4.0, 8.0]) + self.norm() + self.compute() * self.model.d_model as f64;
        if self.run.checkpointing {
            // One input at a time comes back from the host.
            let inputs = if self.run.offloads { 1.0 } else { layers };
            inputs * self.residual() * self.model.d_model as f64 + self.layer().max(result)
        } else {
            layers * self.layer() + result
        }
    }

    /// Bytes of the loss: logits in the format of the step, a copy in fp32, and results. Those are log-probabilities in fp32,
    /// which chunks keep, and in training their gradients.
    fn logits(&self, loss: Loss, [kept, results]: [f64; 2]) -> f64 {
        if self.model.classes.is_some() {
            return 0.0;
        }
        let copy = if self.compute() < 4.0 { 4.0 } else { 0.0 };
        let each = self.compute() + copy + results;
        self.model.vocab as f64
            * match loss {
                Loss::Whole => each,
                Loss::Chunked => each / LOSS_CHUNKS,
                Loss::KeptChunks => kept + (self.compute() + copy) / LOSS_CHUNKS,
                Loss::KeptLogits => kept + self.compute() + copy / LOSS_CHUNKS,
                Loss::InPlace => self.compute(),
            }
    }

    /// Bytes that a token needs in evaluation, which keeps nothing: those of a layer, or of the logits with a copy and
    /// log-probabilities in fp32.
    fn evaluated(&self) -> f64 {
        let logits = self.logits(self.run.eval_loss, [0.0, 4.0]);
        self.layer().max(logits + self.norm() + self.compute() * self.model.d_model as f64)
    }

    /// Bytes of a norm. `LayerNorm` keeps its input. Implementations of RMS norms convert the input to fp32 first, and keep
    /// the normalised values for a trained scale.
    fn norm(&self) -> f64 {
        let each = match self.model.norm {
            Norm::Layer | Norm::Plain => self.residual(),
            Norm::Rms if self.is_trained(&[Role::Vector]) => 4.0 + self.residual(),
            Norm::Rms => 4.0,
        };
        each * self.model.d_model as f64
    }

    /// Bytes that a layer keeps for a token: with layer norms, GELU and dropout in 16 bits, 34 d + 5 heads seq (Korthikanti et
    /// al., 2022, equation 1). Frozen matrices do not keep their inputs.
    fn layer(&self) -> f64 {
        let (model, each) = (self.model, self.compute());
        let d = model.d_model as f64;
        let input = |roles: &[Role], width: f64| if self.is_trained(roles) { each * width } else { 0.0 };
        let readers =
            [&[Role::Query, Role::Key, Role::Value][..], &[Role::Gate, Role::Up]].map(|roles| input(roles, d));
        // One norm for attention and feed-forward layer: both read one tensor.
        let inputs = if model.norms_per_layer == 1 { readers[0].max(readers[1]) } else { readers[0] + readers[1] };
        let gates = if model.gated { 3.0 } else { 1.0 };
        let feed_forward = gates * each * self.feed_forward + input(&[Role::Down], self.feed_forward);
        let masks = if model.dropout { 2.0 * d } else { 0.0 };
        model.norms_per_layer as f64 * self.norm() + inputs + self.attention() + feed_forward + masks
    }

    /// Bytes of queries, keys, values, and the result; without flash attention also of scores, and of keys and values
    /// repeated for each head.
    fn attention(&self) -> f64 {
        let each = self.compute();
        if self.run.flash_attention {
            return each * (2.0 * self.query + 2.0 * self.key);
        }
        let heads = self.model.heads.unwrap_or((self.model.d_model / 64).max(1)) as f64;
        // The softmax is fp32 unless all is 16 bits. Dropout keeps a mask of bytes and its result.
        let is_mixed = self.run.precision.is_mixed();
        let softmax = if is_mixed { 4.0 } else { each };
        let dropout = if self.model.dropout { 1.0 } else { 0.0 };
        let weights = if self.model.dropout || is_mixed { each } else { 0.0 };
        let output = if self.is_trained(&[Role::Output]) { each * self.query } else { 0.0 };
        3.0 * each * self.query + output + heads * self.model.seq as f64 * (softmax + dropout + weights)
    }
}

#[cfg(test)]
mod tests;
