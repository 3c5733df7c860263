//! Costs of a training step: user-specified, or computed from a model's dimensions.

mod convnet;
mod encoder_decoder;
mod recurrent;
mod spec;
mod tensors;
mod training;
mod transformer;
mod unet;

use serde::{Deserialize, Serialize};

pub use convnet::{Activation, Block, Convnet, Stage};
pub use encoder_decoder::EncoderDecoder;
pub use recurrent::{Cell, Mlp, Recurrent};
pub use spec::{Declared, ModelKind, ModelSpec, WorkloadSpec};
pub use tensors::{Optimizer, Role, Role as Matrix, Tensors};
pub use training::{Teacher, Training, WeightFormat};
pub use transformer::{Norm, Positions, Transformer, Vit};
pub use unet::Unet;

use crate::dims::choices;
use crate::measured::Measured;
use crate::{Bytes, Provenance};

/// Costs of one training step on any device, in fp32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Description that the costs are computed from.
    pub spec: WorkloadSpec,
    /// Memory of the model for the whole training.
    pub parameters: Parameters,
    /// The optimizer of the trained parameters.
    pub optimizer: Optimizer,
    /// Costs of each sample of a micro-batch.
    pub sample: SampleCost,
    /// Kernels launched by one forward and backward pass; each costs a fixed time for any batch.
    pub kernels: u64,
    /// The kind of network; selects calibration constants.
    pub family: Family,
    /// True if the model computes statistics over the micro-batch (BatchNorm). Then another micro-batch changes the
    /// results.
    pub batch_statistics: bool,
    /// Pixels of the smallest image that batch statistics are computed over; `None` without such statistics, or where
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statistics_pixels: Option<u64>,
    /// The matrix product with most of the arithmetic, if available.
    pub dominant_product: Option<Product>,
    /// Output channels of the convolutions, as the harmonic mean over the arithmetic. `None` without convolutions or
    /// without their shapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<f64>,
    /// Source of the figures.
    pub provenance: Provenance,
    /// Measurements of this workload. They replace the figures above on measured devices and modes.
    #[serde(default, skip_serializing_if = "Measured::is_empty")]
    pub measured: Measured,
}

impl Workload {
    /// Adds measurements. Parameters counted in the model beyond the described ones are taken as trained.
    #[must_use]
    pub fn with_measured(mut self, measured: Measured) -> Self {
        self.sample.host_ms = self.sample.host_ms.or(measured.host_ms_per_sample);
        let left_out = measured.parameters.saturating_sub(self.parameters.trained());
        if left_out > 0 {
            // Optimizers store most for vectors, so parameters of unknown shape get an upper bound.
            self.parameters.trained.push(Tensors::vectors(left_out, 1));
        }
        self.measured = measured;
        self
    }

    /// Returns true if a considerable part of the model is frozen: by its description, or because fewer trained
    /// parameters were counted than described.
    pub fn is_partly_frozen(&self) -> bool {
        let Parameters { frozen, packed, .. } = self.parameters;
        let (trained, counted) = (self.parameters.trained(), self.measured.parameters);
        // Running statistics count as frozen, and are few.
        let considerable = trained / 10;
        packed > Bytes::ZERO || frozen > considerable || counted > 0 && counted < trained - considerable
    }

    /// Width of the products, by which they reach more or less of a peak: the mean of the convolutions' channels, else that of
    /// the dominant product. `None` without shapes.
    pub fn width(&self) -> Option<f64> {
        self.channels.or_else(|| self.dominant_product.map(Product::width))
    }

    /// Fewest samples of a micro-batch: 2 where a sample has one value a channel for batch statistics, whose variance would be
    /// zero, else 1.
    pub fn least_micro_batch(&self) -> u64 {
        if self.batch_statistics && self.statistics_pixels == Some(1) { 2 } else { 1 }
    }

    /// Number of trained values with its source: counted in a measured model, else computed.
    pub fn trained_parameters(&self) -> (u64, Provenance) {
        if self.measured.parameters > 0 {
            (self.measured.parameters, Provenance::Measured)
        } else {
            (self.parameters.trained(), self.provenance)
        }
    }
}

/// Memory of a model for the whole training.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The tensors that training changes; each has a gradient of its size.
    pub trained: Vec<Tensors>,
    /// Values that training leaves alone, in the number format of the trained ones: frozen weights, a teacher, the
    /// running statistics of norms.
    pub frozen: u64,
    /// Bytes of frozen weights packed to 8 or 4 bits, their scales included.
    pub packed: Bytes,
    /// Values of weight copies that the forward pass makes for the backward pass: dense copies of packed or adapted
    /// weights, transposed copies of tied weights.
    pub copies: u64,
    /// Values of weight copies under activation checkpointing.
    pub copies_checkpointed: u64,
    /// Values of the largest single tensor, trained or not.
    pub largest: u64,
}

impl Parameters {
    /// Values that training changes.
    pub fn trained(&self) -> u64 {
        tensors::values(&self.trained)
    }

    /// Values that the optimizer keeps.
    pub fn state(&self, optimizer: Optimizer) -> u64 {
        self.trained.iter().fold(0, |sum, group| sum.saturating_add(optimizer.state_values(group)))
    }
}

/// Costs of each sample of a micro-batch, in fp32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleCost {
    /// Bytes kept from the forward for the backward pass.
    pub activations: Bytes,
    /// Bytes kept under Burn's activation checkpointing; `None` if unavailable.
    pub checkpointed_activations: Option<Bytes>,
    /// Temporary bytes of one layer, beyond the reserve of Burn's allocator.
    pub scratch: Bytes,
    /// The largest single tensor; `None` if unavailable.
    pub largest_tensor: Option<Bytes>,
    /// Logits over a vocabulary; 0 for other results.
    pub logits: Bytes,
    /// Words of that vocabulary; 0 for other results.
    pub words: u64,
    /// Bytes of the input as the loader delivers it; `None` if unavailable.
    pub input: Option<Bytes>,
    /// Floating-point operations of the forward and backward pass.
    pub flops: f64,
    /// Tokens in a sample; `None` for models without tokens.
    pub tokens: Option<u64>,
    /// Milliseconds that one host core takes to prepare the sample; `None` if unavailable.
    pub host_ms: Option<f64>,
}

/// A matrix product `[rows, inner] x [inner, columns]`; the rows are those of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Rows that each sample contributes.
    pub rows_per_sample: u64,
    /// The dimension summed over.
    pub inner: u64,
    /// Columns of the result.
    pub columns: u64,
}

impl Product {
    /// Half of the operations for each value of the operands with rows: `inner x columns / (inner + columns)`.
    pub fn width(self) -> f64 {
        let [inner, columns] = [self.inner, self.columns].map(|size| size.max(1) as f64);
        1.0 / (1.0 / inner + 1.0 / columns)
    }
}

choices! {
    /// A kind of network.
    #[derive(Default)]
    pub enum Family: "family", "workload::Family" {
        /// Attention and dense layers over sequences.
        Transformer = "transformer",
        /// Convolutions over images.
        Convnet = "convnet",
        /// Cells over sequences.
        Recurrent = "recurrent",
        /// Anything else.
        #[default]
        Other = "other",
    }
}

/// Costs computed from a model's dimensions, before the training method is applied.
#[derive(Default)]
pub(crate) struct ModelCosts {
    /// Every parameter tensor.
    pub tensors: Vec<Tensors>,
    /// Values without gradients: running statistics.
    pub buffers: u64,
    /// Values that each sample keeps from the forward for the backward pass.
    pub kept: u64,
    /// Values kept under Burn's activation checkpointing.
    pub kept_checkpointed: Option<u64>,
    /// Parts of `kept` used only for gradients of some weights: their roles, and the values.
    pub kept_for: Vec<(&'static [Role], u64)>,
    /// Values of copies of weights that the forward pass makes for the backward pass; checkpointing saves them.
    pub copies: u64,
    /// Values of the largest tensor of one sample.
    pub largest: Option<u64>,
    /// Values of the result for one sample: the logits.
    pub result: u64,
    /// Words of the vocabulary that the result has logits for; 0 for other results.
    pub words: u64,
    /// Bytes of one sample as the loader delivers it.
    pub input: Option<Bytes>,
    /// Multiplications of the forward pass for one sample.
    pub multiplications: f64,
    pub tokens: Option<u64>,
    pub kernels: u64,
    pub family: Family,
    pub batch_statistics: bool,
    pub statistics_pixels: Option<u64>,
    pub dominant_product: Option<Product>,
    /// Output channels of convolutions, the harmonic mean over the multiplications.
    pub channels: Option<f64>,
    pub provenance: Provenance,
}
