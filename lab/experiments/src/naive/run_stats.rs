//! Optimizer steps for some seconds, and their measurements.

use std::time::Instant;

use anyhow::{Context, ensure};
use burn::data::dataloader::{DataLoader, DataLoaderIterator};
use serde::Serialize;

use super::utilisation::{Utilisation, Watch, watched};

/// Steps before the clock runs: the second one brings the optimizer's state.
const WARM_UPS: usize = 3;
/// Steps that are timed at least.
const FEWEST: usize = 2;
/// Points of a loss curve.
const POINTS: usize = 40;

/// Measurements of the steps.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunStats {
    pub(super) samples_per_second: f64,
    /// GPU utilisation; `None` without a driver.
    utilisation: Option<Utilisation>,
    /// Share of the time in which a batch was waited for; where nothing is prepared ahead, in which it was prepared.
    pub(super) waiting_share: f64,
    /// In which kernels are compiled and tuned, if no step before was alike.
    first_step_seconds: f64,
    seconds: f64,
    steps: usize,
    /// In those seconds.
    samples: usize,
    /// With the steps before.
    samples_seen: usize,
    /// Mean over the last tenth of the steps.
    pub(super) loss: f64,
    pub(super) curve: Vec<Point>,
}

/// Mean loss of some steps, for the model before the last one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Point {
    /// Samples trained on before.
    pub(super) learned: usize,
    /// Since the clock runs.
    pub(super) seconds: f64,
    pub(super) loss: f64,
}

/// A log of steps.
#[derive(Default)]
struct Log {
    points: Vec<Point>,
    learned: usize,
    waiting: f64,
}

/// Batches without end: one epoch after the other.
pub(super) struct Endless<'l, B> {
    loader: &'l dyn DataLoader<B>,
    epoch: Option<Box<dyn DataLoaderIterator<B> + 'l>>,
}

impl<'l, B> Endless<'l, B> {
    pub(super) fn new(loader: &'l dyn DataLoader<B>) -> Self {
        Self { loader, epoch: None }
    }

    fn next(&mut self) -> anyhow::Result<B> {
        if let Some(batch) = self.epoch.as_mut().and_then(Iterator::next) {
            return Ok(batch?);
        }
        let batch = self.epoch.insert(self.loader.iter()).next();
        Ok(batch.context("there are no samples")??)
    }
}

/// Takes steps for some seconds. `step` returns the number of samples and their loss; `sync` waits for the device.
pub(super) fn run_for<B>(
    seconds: f64,
    watch: Option<&Watch>,
    batches: &mut Endless<'_, B>,
    mut step: impl FnMut(B) -> anyhow::Result<(usize, f32)>,
    sync: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<RunStats> {
    let mut log = Log::default();
    let mut first_step_seconds = 0.0;
    for warm_up in 0..WARM_UPS {
        let batch = batches.next()?;
        let begin = Instant::now();
        log.take(0.0, step(batch)?)?;
        if warm_up == 0 {
            sync()?;
            first_step_seconds = begin.elapsed().as_secs_f64();
        }
    }
    sync()?;
    let begin = Instant::now();
    let (done, utilisation) = watched(watch, || {
        while begin.elapsed().as_secs_f64() < seconds || log.points.len() < WARM_UPS + FEWEST {
            let asked = Instant::now();
            let batch = batches.next()?;
            log.waiting += asked.elapsed().as_secs_f64();
            log.take(begin.elapsed().as_secs_f64(), step(batch)?)?;
        }
        sync()
    });
    let seconds = begin.elapsed().as_secs_f64();
    done?;
    Ok(log.finish(seconds, first_step_seconds, utilisation))
}

impl Log {
    fn take(&mut self, seconds: f64, (samples, loss): (usize, f32)) -> anyhow::Result<()> {
        ensure!(loss.is_finite(), "the loss is {loss} after {} samples", self.learned);
        self.points.push(Point { learned: self.learned, seconds, loss: f64::from(loss) });
        self.learned += samples;
        Ok(())
    }

    fn finish(self, seconds: f64, first_step_seconds: f64, utilisation: Option<Utilisation>) -> RunStats {
        let samples = self.learned - self.points[WARM_UPS].learned;
        let last = self.points.len() - self.points.len().div_ceil(10);
        // The first step is a group of its own: its loss is that of an untrained model.
        let (first, others) = self.points.split_at(1);
        let chunks = others.chunks(others.len().div_ceil(POINTS).max(1));
        RunStats {
            samples_per_second: samples as f64 / seconds,
            utilisation,
            waiting_share: self.waiting / seconds,
            first_step_seconds,
            seconds,
            steps: self.points.len() - WARM_UPS,
            samples,
            samples_seen: self.learned,
            loss: Point::from_steps(&self.points[last..]).loss,
            curve: std::iter::once(first).chain(chunks).map(Point::from_steps).collect(),
        }
    }
}

impl Point {
    /// Some steps in one point.
    fn from_steps(steps: &[Self]) -> Self {
        let last = steps[steps.len() - 1];
        Self { loss: steps.iter().map(|step| step.loss).sum::<f64>() / steps.len() as f64, ..last }
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use burn::{
        data::{
            dataloader::{DataLoaderBuilder, batcher::Batcher},
            dataset::InMemDataset,
        },
        tensor::Device,
    };

    use super::{Endless, WARM_UPS, run_for};

    struct Same;

    impl Batcher<usize, Vec<usize>> for Same {
        fn batch(&self, items: Vec<usize>, _: &Device) -> Vec<usize> {
            thread::sleep(Duration::from_millis(4));
            items
        }
    }

    #[test]
    fn samples_and_times_are_those_of_the_steps_behind_the_warm_ups() {
        let loader = DataLoaderBuilder::new(Same).batch_size(4).build(InMemDataset::new((0..10).collect()));
        let mut seen = Vec::new();
        let step = |batch: Vec<usize>| {
            thread::sleep(Duration::from_millis(4));
            seen.extend_from_slice(&batch);
            Ok((batch.len(), batch[0] as f32))
        };
        let stats = run_for(0.05, None, &mut Endless::new(loader.as_ref()), step, || Ok(())).unwrap();
        assert_eq!((stats.samples_seen, &seen[..12]), (seen.len(), &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1][..]));
        // Two steps of four and one of two are the warm-ups.
        assert_eq!(stats.samples, seen.len() - 10);
        let rate = stats.samples as f64 / stats.seconds;
        assert!((stats.samples_per_second - rate).abs() < 1e-9 && stats.seconds >= 0.05);
        assert!((0.2..0.8).contains(&stats.waiting_share), "{}", stats.waiting_share);
        assert_eq!(stats.curve.len(), stats.steps + WARM_UPS);
        let second = stats.curve[1];
        assert_eq!((second.learned, second.seconds), (4, 0.0));
        assert!((second.loss - 4.0).abs() < 1e-9, "{second:?}");
    }
}
