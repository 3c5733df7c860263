//! What is trained.

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
    /// Puts samples together, each of which is a number to begin with.
    type Stack: Batcher<u64, Self::Batch> + Clone + 'static;

    /// The network with fresh weights.
    fn model(&self, device: &Device) -> Self::Model;

    /// What makes batches.
    fn stack(&self) -> Self::Stack;

    /// What the network makes of samples, and the mean loss.
    fn loss(&self, model: &Self::Model, batch: Self::Batch) -> Tensor<1>;

    /// A tensor of the network as large as one feature map of samples.
    fn kept(&self, batch: &Self::Batch) -> Tensor<1>;
}
