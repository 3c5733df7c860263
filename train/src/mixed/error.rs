use burn::tensor::DType;
use thiserror::Error;

/// Why a model cannot be trained in mixed precision as it is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MixedError {
    /// Running statistics, of a `BatchNorm` for example, whose updates would be rounded away.
    #[error(
        "running statistics would be kept in 16 bits, which rounds their updates away: {}; hold the module in an \
         `InF32`, or set precision = \"f32\"",
        .paths.join(", ")
    )]
    HalfStatistics {
        /// Paths of the statistics.
        paths: Vec<String>,
    },
    /// A gradient that does not have the type of its parameter: somewhere the forward pass mixed types, and what it
    /// computed there means nothing.
    #[error(
        "the gradient of `{path}` is {gradient:?} where the parameter is {parameter:?}: the forward pass mixes float types \
         there; convert the model's output and the targets with `in_f32` before the loss, or set precision = \"f32\""
    )]
    MixedTypes {
        /// Path of the parameter.
        path: String,
        /// The type of the parameter that computed.
        parameter: DType,
        /// The type of its gradient.
        gradient: DType,
    },
    /// A loss in 16 bits. It has two to three digits in bf16, and its gradients begin from rounded logits. PyTorch's autocast
    /// computes losses in fp32.
    #[error(
        "the loss is in {loss:?}, which rounds it to {} digits, and its gradients with it: call `in_f32` on the inputs of the \
         loss, such as the logits; or set precision = \"f32\"; or accept such losses with `Trainer::accept_half_loss`",
        if *.loss == DType::BF16 { 2 } else { 3 }
    )]
    HalfLoss {
        /// Type of the loss.
        loss: DType,
    },
}
