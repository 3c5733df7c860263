//! Loaders of a session.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;

use gpu_tuned_core::plan::{STATISTICS_FLOOR, Schedule};
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
    /// A step compares the epochs that the ranks are reading: number of items, seed, and number of the epoch. Batches that another
    /// thread reads are not compared.
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
        let samples = dataset.len() as u64;
        let short = short_epoch(samples, schedule.global_batch, schedule.drop_last);
        let warning =
            short.or_else(|| few_for_statistics(samples, schedule).filter(|_| self.workload().batch_statistics));
        if let Some(warning) = warning {
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

/// Warning for a last step of an epoch with a micro-batch that is too small for batch statistics.
fn few_for_statistics(samples: u64, schedule: &Schedule) -> Option<String> {
    let rest = samples % schedule.global_batch;
    let on_rank = match schedule.share {
        Some(share) => share.part(rest, schedule.global_batch).count() as u64,
        None => rest / schedule.world_size,
    };
    let least = schedule.split(on_rank).last().filter(|least| *least < STATISTICS_FLOOR && !schedule.drop_last)?;
    Some(format!(
        "the last step of an epoch has a micro-batch of size {least}, and batch statistics need {STATISTICS_FLOOR} \
         samples: set `drop_last = true` in `#[gpu_tuned(…)]` or in `[goal]` to leave the step out"
    ))
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::plan::Schedule;

    use super::{few_for_statistics, short_epoch};

    #[test]
    fn a_last_step_with_a_small_micro_batch_is_warned_of_unless_it_is_left_out() {
        let schedule = Schedule { global_batch: 64, world_size: 1, share: None, micro_batch: 32, drop_last: false };
        let warned = |samples, schedule: &Schedule| few_for_statistics(samples, schedule).is_some();
        assert!(few_for_statistics(65, &schedule).is_some_and(|text| text.contains("of size 1,")));
        // 40 samples are 32 + 8; 48 are 32 + 16.
        assert!(warned(104, &schedule) && !warned(112, &schedule) && !warned(128, &schedule));
        assert!(!warned(65, &Schedule { drop_last: true, ..schedule }));
        // Ranks have 15 samples each, or none.
        let ranks = Schedule { world_size: 2, ..schedule };
        assert!(warned(64 + 30, &ranks) && !warned(64 + 32, &ranks) && !warned(65, &ranks));
    }

    #[test]
    fn a_dataset_of_less_than_a_step_is_warned_of() {
        assert_eq!(short_epoch(512, 512, true), None);
        assert!(short_epoch(0, 512, false).is_some_and(|text| text.contains("is empty")));
        assert!(short_epoch(100, 512, false).is_some_and(|text| text.contains("one step over all")));
        assert!(short_epoch(100, 512, true).is_some_and(|text| text.contains("dropped")));
    }
}
