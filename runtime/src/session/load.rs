//! Loaders of a session.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;

use gpu_tuned_observe::log::warn_user;
use gpu_tuned_train::load::PrefetchLoader;

use super::Session;

impl<C> Session<C> {
    /// Loads the training data of one rank. Each batch has the samples of a whole optimizer step; the last of an epoch may have
    /// fewer, unless the goal drops it.
    ///
    /// Workers and prefetch are as planned. Batches that wait on the device take at most the bytes of the planned number of
    /// micro-batches. A larger step stays in host memory, and is uploaded micro-batch by micro-batch.
    ///
    /// With several ranks, each loads its part of every step. Give [`shuffle`](PrefetchLoader::shuffle) the same seed on all.
    /// The last step of an epoch is shared in proportion, and dropped if it has too few samples for every rank. A
    /// [`strategy`](PrefetchLoader::strategy) forms one batch a rank for each step.
    ///
    /// ```
    /// # use burn::data::dataloader::batcher::Batcher;
    /// use burn::data::dataset::InMemDataset;
    /// # use burn::tensor::{Device, Tensor};
    /// # use gpu_tuned::{MicroBatch, gpu_tuned};
    /// # #[gpu_tuned(mlp(widths = [1, 1]), global_batch = 4, target = "generic")]
    /// # #[derive(Clone, Debug)]
    /// # struct Training {
    /// #     #[tuned]
    /// #     batch_size: usize,
    /// # }
    /// # #[derive(Clone)]
    /// # struct Numbers;
    /// # impl Batcher<f32, Tensor<1>> for Numbers {
    /// #     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
    /// #         Tensor::from_floats(&items[..], device)
    /// #     }
    /// # }
    /// let session = gpu_tuned::start(Training::default())?;
    /// let dataset = InMemDataset::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// # let mut sizes = Vec::new();
    /// for batch in session.loader(dataset, Numbers).shuffle(42).iter() {
    ///     let batch: Tensor<1> = batch?;
    ///     // trainer.step(learning_rate, batch, |model, micro| model.loss(micro))?;
    ///     # sizes.push(MicroBatch::len(&batch));
    /// }
    /// # assert_eq!(sizes, [4, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn loader<I, B>(
        &self,
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, B> + 'static,
    ) -> PrefetchLoader<I, B> {
        let schedule = self.schedule();
        if let Some(warning) = short_epoch(dataset.len() as u64, schedule.global_batch, schedule.drop_last) {
            warn_user(&warning);
        }
        self.planned_steps().loader(dataset, batcher)
    }

    /// Loads the whole dataset for evaluation, in order and in batches of the planned size, on the device without autodiff.
    pub fn eval_loader<I, B>(
        &self,
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, B> + 'static,
    ) -> PrefetchLoader<I, B> {
        let settings = &self.plan().settings;
        PrefetchLoader::new(dataset, batcher, size(settings.eval_batch_size))
            .depth(size(settings.prefetch_depth))
            .num_workers(size(settings.num_workers))
            .device(self.inner_device())
    }
}

/// Warning for a dataset of less than one step.
fn short_epoch(samples: u64, step: u64, drop_last: bool) -> Option<String> {
    if samples == 0 {
        return Some("the training dataset is empty: an epoch has no steps".to_owned());
    }
    let steps = if drop_last { "empty, because an incomplete step is dropped" } else { "one step over all of them" };
    (samples < step).then(|| {
        format!("the training dataset has {samples} samples, fewer than the {step} of an optimizer step: an epoch is {steps}")
    })
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::short_epoch;

    #[test]
    fn a_dataset_of_less_than_a_step_is_warned_of() {
        assert_eq!(short_epoch(512, 512, true), None);
        assert!(short_epoch(0, 512, false).is_some_and(|text| text.contains("is empty")));
        assert!(short_epoch(100, 512, false).is_some_and(|text| text.contains("one step over all")));
        assert!(short_epoch(100, 512, true).is_some_and(|text| text.contains("dropped")));
    }
}
