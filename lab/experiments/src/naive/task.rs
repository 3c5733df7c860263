//! The interface of a trained task.

use std::fmt::Debug;

use burn::{
    data::{dataloader::batcher::Batcher, dataset::Dataset},
    module::Module,
    tensor::{DType, Device, Tensor},
};
use gpu_tuned::{MicroBatch, Tuned};

/// A model and the samples it learns from; a copy is cheap.
pub(super) trait Task: Clone + Send + Sync + 'static {
    /// The config that is tuned.
    type Config: Tuned + Sync;
    /// The network.
    type Model: Module;
    /// A sample in the host's memory.
    type Item: Clone + Debug + Send + Sync + 'static;
    /// Samples of a step.
    type Batch: MicroBatch + Debug;

    /// Batch of the guides' naive configuration.
    fn naive_batch(&self) -> usize;

    /// Micro-batches to be timed for a plan, from the naive one upwards.
    fn batch_sizes(&self) -> Vec<usize>;

    /// Learning rate of every step, with every method.
    fn learning_rate(&self) -> f64 {
        1e-3
    }

    /// The config with the values that its build planned.
    fn config(&self) -> Self::Config;

    /// The network with fresh weights.
    fn model(&self, device: &Device) -> Self::Model;

    /// All samples, prepared on access.
    fn samples(&self) -> impl Dataset<Self::Item> + 'static;

    /// Puts samples together, as numbers of this type.
    fn batcher(&self, float: DType) -> impl Batcher<Self::Item, Self::Batch> + 'static;

    /// The mean loss over some samples, in f32.
    fn loss(model: &Self::Model, batch: Self::Batch) -> Tensor<1>;

    /// The first samples in host memory, repeated if there are fewer.
    fn first(&self, samples: usize) -> anyhow::Result<Self::Batch> {
        let all = self.samples();
        let items = (0..samples).map(|index| all.get(index % all.len())).collect::<Result<Vec<_>, _>>()?;
        Ok(self.batcher(DType::F32).batch(items, &Device::flex()))
    }
}
