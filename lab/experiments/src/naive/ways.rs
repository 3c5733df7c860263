//! The ways to train a task.

use anyhow::{Context, ensure};
use burn::{
    data::dataloader::{DataLoader, DataLoaderBuilder},
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer},
    tensor::DType,
};
use gpu_tuned::{Session, train::Step};
use hardware_tests::device::alone;

use super::{
    run_stats::{Endless, RunStats, run_for},
    task::Task,
    utilisation::Watch,
};

/// Seed of the order of samples.
const SEED: u64 = 1;

/// Burn's own loop, as guides find it: batches are prepared by the thread that trains, and the loss is read in every step.
pub(super) fn naive<T: Task>(task: &T, session: &Session<T::Config>, seconds: f64) -> anyhow::Result<RunStats> {
    let device = session.device();
    let watch = Watch::for_session(session);
    let trained = alone(&session.inner_device(), || {
        device.seed(SEED);
        let mut model = Some(task.model(&device));
        let mut optimizer: ModuleOptimizer = AdamWConfig::new().init();
        let loader = DataLoaderBuilder::new(task.batcher(DType::F32))
            .batch_size(task.naive_batch())
            .shuffle(SEED)
            .set_device(device.clone())
            .build(task.samples());
        let step = |batch: T::Batch| {
            let samples = gpu_tuned::MicroBatch::len(&batch);
            let before = model.take().context("BUG: it was put back")?;
            let loss = T::loss(&before, batch);
            let read = loss.clone().try_into_scalar::<f32>()?;
            let gradients = GradientsParams::from_grads(loss.backward(), &before);
            model = Some(optimizer.step(task.learning_rate(), before, gradients));
            Ok((samples, read))
        };
        run_for(seconds, watch.as_ref(), &mut Endless::new(loader.as_ref()), step, || Ok(device.sync()?))
    });
    Ok(trained?)
}

/// The library's trainer and loader, as the session has them planned.
pub(super) fn tuned<T: Task>(task: &T, session: &Session<T::Config>, seconds: f64) -> anyhow::Result<RunStats> {
    let device = session.device();
    let watch = Watch::for_session(session);
    let trained = alone(&session.inner_device(), || {
        device.seed(SEED);
        let mut trainer = session.trainer(task.model(&device), AdamWConfig::new().init())?;
        let loader = loader(task, session);
        let step = |batch: T::Batch| {
            let Step { samples, loss, applied, rescues, .. } = trainer.step(task.learning_rate(), batch, T::loss)?;
            ensure!(rescues.is_empty(), "memory ran out, and micro-batches became smaller: {rescues:?}");
            // A loss scale has to be found.
            ensure!(applied || session.plan().settings.precision.is_mixed(), "the gradients were not finite");
            Ok((samples, loss))
        };
        run_for(seconds, watch.as_ref(), &mut Endless::new(loader.as_ref()), step, || Ok(device.sync()?))
    });
    Ok(trained?)
}

/// The session's loader; its workers make numbers of the type that the device computes in.
pub(super) fn loader<T: Task>(task: &T, session: &Session<T::Config>) -> std::sync::Arc<dyn DataLoader<T::Batch>> {
    let float = DType::from(session.inner_device().settings().float_dtype);
    session.loader(task.samples(), task.batcher(float)).shuffle(SEED).build()
}

#[cfg(test)]
mod tests {
    use gpu_tuned::{MicroBatch, Precision, Session};

    use super::{RunStats, Task, loader, naive, tuned};
    use crate::naive::{
        patches::Patches,
        plan::{planned, session},
        series::Series,
    };

    /// A session with the plan, and one with the build's plan.
    fn sessions<T: Task>(task: &T) -> [Session<T::Config>; 2] {
        let looking = session(task, 0, None).unwrap();
        let plan = planned(task, &looking, Precision::MixedF16, std::time::Instant::now()).unwrap();
        assert!(plan.half.precision == Precision::MixedF16 && plan.f32.precision == Precision::F32);
        assert_eq!((plan.half.batch_size, plan.half.gradient_accumulation), (plan.f32.batch_size, 1));
        let planned = session(task, 0, Some(&plan.f32)).unwrap();
        assert_eq!(
            (planned.plan().settings.batch_size, planned.schedule().global_batch),
            (plan.f32.batch_size, plan.f32.batch_size)
        );
        [looking, planned]
    }

    /// Checks that the loss falls; retries with a longer run on a busy machine.
    fn learns(way: impl Fn(f64) -> RunStats) {
        let lowers = |seconds| {
            let stats = way(seconds);
            assert!(stats.samples_per_second > 0.0 && (0.0..1.0).contains(&stats.waiting_share));
            assert_eq!(stats.curve[0].learned, 0);
            // Losses of single batches scatter.
            let losses: Vec<f64> = stats.curve.iter().map(|point| point.loss).collect();
            let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
            let (begun, ended) = (mean(&losses[..4]), mean(&losses[losses.len() / 2..]));
            println!("{} steps: {ended} after {begun}", losses.len());
            ended < 0.95 * begun
        };
        assert!([3.0, 10.0, 30.0].into_iter().any(lowers), "the loss does not fall");
    }

    fn both_ways_learn<T: Task>(task: &T, samples: impl Fn(&T::Batch) -> Vec<u32>) {
        let [looking, planned] = sessions(task);
        learns(|seconds| naive(task, &looking, seconds).unwrap());
        learns(|seconds| tuned(task, &planned, seconds).unwrap());
        // An epoch of the loader has every sample, once.
        let all = burn::data::dataset::Dataset::len(&task.samples());
        let mut right: Vec<_> = samples(&task.first(all).unwrap());
        let (mut found, mut count) = (Vec::new(), 0);
        for batch in loader(task, &planned).iter() {
            let batch = batch.unwrap();
            count += MicroBatch::len(&batch);
            found.extend(samples(&batch));
        }
        assert_eq!(count, all);
        assert_ne!(found, right);
        found.sort_unstable();
        right.sort_unstable();
        assert_eq!(found, right);
    }

    #[test]
    fn both_ways_learn_from_every_window() {
        both_ways_learn(&Series::new(true), |(_, targets)| bits(targets.clone().into_data().iter::<f32>()));
    }

    #[test]
    fn both_ways_learn_from_every_patch() {
        both_ways_learn(&Patches::new(true), |(degraded, _)| bits(degraded.clone().into_data().iter::<f32>()));
    }

    fn bits(values: impl Iterator<Item = f32>) -> Vec<u32> {
        values.map(f32::to_bits).collect()
    }
}
