use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;

use super::PrefetchLoader;
use gpu_tuned_observe::log;

use crate::Session;

impl<C> Session<C> {
    /// Loads what one rank trains on: each batch holds its samples of a whole optimizer step, the last of an epoch those
    /// that are left, unless the goal drops them.
    ///
    /// Workers and the batches prepared ahead are as planned. What waits on the device takes no more bytes than the
    /// planned number of micro-batches: a step of more of them than that stays in the host's memory, and is uploaded
    /// as its micro-batches are trained on.
    ///
    /// With several GPUs each rank loads its part with [`Rank::loader`](crate::train::Rank::loader).
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
        let settings = &self.plan().settings;
        let ahead = settings.prefetch_depth.saturating_mul(settings.batch_size);
        if let Some(short) = short(dataset.len() as u64, self.schedule().global_batch, self.schedule().drop_last) {
            log::warn_user(&short);
        }
        PrefetchLoader::new(dataset, batcher, size(self.schedule().samples_per_rank()))
            .drop_last(self.schedule().drop_last)
            .depth(size(settings.prefetch_depth))
            .device_samples(size(ahead))
            .num_workers(size(settings.num_workers))
            .device(self.device())
            .seen_by(self.course.clone())
    }

    /// Loads batches for an evaluation, on the device without autodiff: of the planned size, in the dataset's order, and
    /// all of it.
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

/// That a dataset is no more than a step, if so.
fn short(samples: u64, step: u64, drop_last: bool) -> Option<String> {
    if samples == 0 {
        return Some("the training dataset has no samples: an epoch has no steps".to_owned());
    }
    let steps = if drop_last { "no step, as such a one is dropped" } else { "one step over all of them" };
    (samples < step).then(|| {
        format!("the training dataset has {samples} samples, fewer than the {step} of an optimizer step: an epoch is {steps}")
    })
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_dataset_of_less_than_a_step_is_told_of() {
        assert_eq!(short(512, 512, true), None);
        assert!(short(0, 512, false).is_some_and(|said| said.contains("no samples")));
        assert!(short(100, 512, false).is_some_and(|said| said.contains("one step over all")));
        assert!(short(100, 512, true).is_some_and(|said| said.contains("no step")));
    }
}
