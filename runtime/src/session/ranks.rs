//! Ranks of a session.

use burn::tensor::Device;

use gpu_tuned_measure::measure::MeasureError;
use gpu_tuned_train::train::{Ranks, TrainerError};

use super::Session;
use crate::tuned::Tuned;

impl<C: Tuned> Session<C> {
    /// Returns the ranks of the plan, each on one of the session's [`devices`](Self::devices), to train on several GPUs. Without
    /// GPUs, all ranks share the CPU.
    ///
    /// ```
    /// # use burn::data::dataloader::batcher::Batcher;
    /// # use burn::data::dataset::InMemDataset;
    /// # use burn::nn::{Linear, LinearConfig};
    /// # use burn::optim::SgdConfig;
    /// # use burn::tensor::{Device, Tensor};
    /// # use gpu_tuned::gpu_tuned;
    /// #[gpu_tuned(mlp(widths = [1, 1]), global_batch = 4, world_size = 2, target = "generic")]
    /// #[derive(Clone, Debug)]
    /// struct Training {
    ///     #[tuned]
    ///     batch_size: usize,
    /// }
    /// # #[derive(Clone)]
    /// # struct Numbers;
    /// # impl Batcher<f32, Tensor<2>> for Numbers {
    /// #     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<2> {
    /// #         Tensor::<1>::from_floats(&items[..], device).unsqueeze_dim(1)
    /// #     }
    /// # }
    ///
    /// let session = gpu_tuned::Options::default().cpu().start(Training::default())?;
    /// let models = session.ranks()?.run(|rank| {
    ///     let model = LinearConfig::new(1, 1).init(rank.device());
    ///     let mut trainer = rank.trainer(model, SgdConfig::new().init())?;
    ///     let dataset = InMemDataset::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    ///     for batch in rank.loader(dataset, Numbers).shuffle(42).iter() {
    ///         trainer.step(0.1, batch?, |model: &Linear, batch| model.forward(batch).powi_scalar(2).mean())?;
    ///     }
    ///     Ok(trainer.into_parts().0)
    /// })?;
    /// # assert_eq!(models[0].weight.val().into_data(), models[1].weight.val().into_data());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TrainerError::OtherProcesses`] for a plan of more ranks than this process has devices.
    /// [`TrainerError::Sharded`] for a plan that shards the optimizer's state. [`TrainerError::Measure`] under `cargo
    /// gpu-tuned measure`, which needs a call of [`measure_if_asked`](Self::measure_if_asked) before.
    pub fn ranks(&self) -> Result<Ranks, TrainerError> {
        if self.requested_measurement().is_some() {
            return Err(TrainerError::Measure(Box::new(MeasureError::Undescribed)));
        }
        if self.config.asked().shard_optimizer {
            return Err(TrainerError::Sharded);
        }
        let world_size = self.schedule().world_size;
        let mut devices = self.devices();
        if let [device] = &devices[..]
            && device.clone().without_autodiff() == Device::flex()
        {
            devices = (0..world_size).map(|_| device.clone()).collect();
        }
        if devices.len() as u64 != world_size {
            return Err(TrainerError::OtherProcesses { world_size, devices: devices.len() });
        }
        let recipes = devices.iter().enumerate().map(|(rank, device)| self.recipe(rank, device.clone())).collect();
        Ok(Ranks::with_recipes(devices, recipes))
    }
}
