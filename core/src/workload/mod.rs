//! What one training step costs: declared by the user, or computed from a model's dimensions.

mod convnet;
mod declared;
mod dims;
mod optimizer;
mod transformer;

use serde::{Deserialize, Serialize};

pub use convnet::{Convnet, Stage};
pub use declared::Declared;
pub use dims::{Dim, DimKind};
pub use optimizer::Optimizer;
pub use transformer::Transformer;

use crate::{Bytes, Provenance};

/// What one training step costs on any device, in f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Trainable parameters.
    pub parameters: u64,
    /// What the optimizer keeps for each of them.
    pub optimizer: Optimizer,
    /// What each sample of a micro-batch adds.
    pub sample: SampleCost,
    /// Kernels launched by one forward and backward pass; each costs a fixed time whatever the batch.
    pub kernels: u64,
    /// What kind of network this is, for what is calibrated by kind.
    pub family: Family,
    /// Whether the model computes statistics over the micro-batch (BatchNorm): the micro-batch is then part of what
    /// the run means.
    pub batch_statistics: bool,
    /// The matrix product that takes most of the arithmetic, where known.
    pub dominant_product: Option<Product>,
    /// Where the figures come from.
    pub provenance: Provenance,
}

/// What each sample of a micro-batch costs, in f32.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampleCost {
    /// Bytes kept from the forward for the backward pass.
    pub activations: Bytes,
    /// The same under Burn's gradient checkpointing; `None` when it is not known.
    pub checkpointed_activations: Option<Bytes>,
    /// The largest single tensor; `None` when it is not known.
    pub largest_tensor: Option<Bytes>,
    /// Bytes of the input as the loader delivers it; `None` when it is not known.
    pub input: Option<Bytes>,
    /// Floating-point operations of the forward and backward pass.
    pub flops: f64,
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

/// A kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Attention and dense layers over sequences.
    Transformer,
    /// Convolutions over images.
    Convnet,
    /// Anything else.
    Other,
}

/// A workload as people write it: costs, or dimensions to compute them from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadSpec {
    /// Costs stated by the user.
    Declared(Declared),
    /// A transformer's dimensions.
    Transformer(Transformer),
    /// A convnet's dimensions.
    Convnet(Convnet),
}

impl WorkloadSpec {
    /// The names under which dimensions are given.
    pub const FAMILIES: [&'static str; 2] = ["transformer", "convnet"];

    /// The dimensions of a family, by its name.
    pub fn dims(family: &str) -> Option<&'static [Dim]> {
        match family {
            "transformer" => Some(Transformer::DIMS),
            "convnet" => Some(Convnet::DIMS),
            _ => None,
        }
    }

    /// What one training step costs.
    pub fn workload(&self) -> Workload {
        match self {
            Self::Declared(declared) => declared.workload(),
            Self::Transformer(transformer) => transformer.workload(),
            Self::Convnet(convnet) => convnet.workload(),
        }
    }

    /// What is wrong with the dimensions, as `(dimension, message)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Declared(declared) => declared.mistakes(),
            Self::Transformer(transformer) => transformer.mistakes(),
            Self::Convnet(convnet) => convnet.mistakes(),
        }
    }
}
