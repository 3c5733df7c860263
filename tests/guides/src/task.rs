//! The tasks.

use burn::data::dataloader::batcher::Batcher;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use gpu_tuned::{MicroBatch, Tuned};

/// A config, the network that it describes, and samples for it.
pub(crate) trait Task: Tuned + Clone + Send + Sync + 'static {
    /// The workload's name.
    const NAME: &'static str;
    /// The network.
    type Model: Module;
    /// Samples of a step.
    type Batch: MicroBatch + Clone + std::fmt::Debug;
    /// Builds batches of samples; a sample is a number at first.
    type Stack: Batcher<u64, Self::Batch> + Clone + 'static;

    /// The network with fresh weights.
    fn model(&self, device: &Device) -> Self::Model;

    /// The batcher.
    fn stack(&self) -> Self::Stack;

    /// Mean loss of the network on a batch.
    fn loss(&self, model: &Self::Model, batch: Self::Batch) -> Tensor<1>;

    /// A tensor of the network, as large as one feature map of the batch.
    fn kept(&self, batch: &Self::Batch) -> Tensor<1>;
}
