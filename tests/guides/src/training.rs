//! The training loop.

use std::time::{Duration, Instant};

use burn::{
    data::{
        dataloader::batcher::Batcher,
        dataset::{Dataset, DatasetError},
    },
    optim::AdamWConfig,
    tensor::Device,
};
use gpu_tuned::{Session, measure::Subject};
use models_tests::work::Work;

use crate::Run;
use crate::fault::FaultInjector;
use crate::task::Task;

const LEARNING_RATE: f64 = 1e-3;

/// Samples that take the host some time to get.
#[derive(Clone, Copy, Debug)]
struct Samples {
    count: usize,
    work: Work,
}

impl Dataset<u64> for Samples {
    fn get(&self, index: usize) -> Result<u64, DatasetError> {
        self.work.run();
        Ok(index as u64)
    }

    fn len(&self) -> usize {
        self.count
    }
}

fn work(host_ms: f64) -> Work {
    Work::for_duration(Duration::from_secs_f64(host_ms.clamp(0.0, 1e4) / 1e3))
}

/// The parts of a step.
pub(crate) fn subject<C: Task>(config: &C, host_ms: f64) -> Subject<'_, C::Model, C::Batch> {
    let (stack, samples) = (config.stack(), Samples { count: usize::MAX, work: work(host_ms) });
    let prepare = stack.clone();
    Subject::new(
        |device| config.model(device),
        || AdamWConfig::new().init(),
        move |samples, device| stack.batch((0..samples as u64).collect(), device),
        |model, batch| config.loss(model, batch),
    )
    .host_batch(move |count| {
        let seeds = (0..count).filter_map(|index| samples.get(index).ok()).collect();
        prepare.batch(seeds, &Device::flex())
    })
}

/// Takes the steps, and returns a summary.
pub(crate) fn train<C: Task>(session: &Session<C>, run: Run) -> anyhow::Result<String> {
    let (config, device) = (session.config(), session.device());
    let mut trainer = session.trainer(config.model(&device), AdamWConfig::new().init())?;
    let count = run.steps * session.schedule().global_batch as usize;
    let loader = session.loader(Samples { count, work: work(run.host_ms) }, config.stack()).build();
    let (injector, begin) = (FaultInjector::new(run.faults), Instant::now());
    let (mut steps, mut samples, mut rescues, mut last) = (0, 0, 0, f32::NAN);
    for batch in loader.iter() {
        let step = trainer.step(LEARNING_RATE, batch?, |model: &C::Model, micro: C::Batch| {
            injector.keep(|| config.kept(&micro));
            let loss = config.loss(model, micro);
            injector.read(&loss);
            loss
        })?;
        (steps, samples, rescues, last) = (steps + 1, samples + step.samples, rescues + step.rescues.len(), step.loss);
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok(format!(
        "{steps} steps in {seconds:.1} s, {:.0} samples/s with warm-up, loss {last:.4}, {rescues} times out of memory",
        samples as f64 / seconds
    ))
}
