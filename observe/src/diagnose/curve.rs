//! The planner's curve: predicted speed by micro-batch.

use crate::recording::{Expected, Run};
use gpu_tuned_core::Provenance;

/// Speed over the best that is as good as the best: the planner's own margin.
const NEAR_BEST: f64 = 0.98;

/// Predictions for micro-batches, smallest first, with or without checkpointing.
#[derive(Clone, Debug)]
pub(super) struct Curve<'a> {
    points: Vec<&'a Expected>,
}

impl<'a> Curve<'a> {
    /// Returns `None` if the planner made no predictions.
    pub(super) fn new(run: &'a Run, checkpointing: bool) -> Option<Self> {
        let is_meant =
            |point: &&Expected| point.checkpointing == checkpointing && point.samples_per_s > 0.0 && point.batch > 0;
        let mut points: Vec<_> = run.expected.iter().filter(is_meant).collect();
        points.sort_by_key(|point| point.batch);
        points.dedup_by_key(|point| point.batch);
        (!points.is_empty()).then_some(Self { points })
    }

    /// Seconds per sample in a micro-batch of `batch`. The time of a micro-batch is interpolated linearly between points.
    pub(super) fn seconds(&self, batch: f64) -> f64 {
        let time = |point: &Expected| point.batch as f64 / point.samples_per_s;
        let after = self.points.partition_point(|point| (point.batch as f64) < batch);
        let micro = match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (Some(low), Some(high)) => {
                let along = (batch - low.batch as f64) / (high.batch - low.batch) as f64;
                time(low) + along * (time(high) - time(low))
            }
            // Smaller micro-batches take as long: their time is overhead.
            (None, Some(first)) => time(first),
            (Some(last), None) => batch / last.samples_per_s,
            (None, None) => return f64::NAN,
        };
        micro / batch
    }

    /// Returns the smallest eligible micro-batch up to `most` that is about as fast as the best of them.
    pub(super) fn smallest_near_best(
        &self,
        most: u64,
        is_eligible: impl Fn(&Expected) -> bool,
    ) -> Option<&'a Expected> {
        let fit = || self.points.iter().copied().filter(|point| point.batch <= most && is_eligible(point));
        let best = fit().map(|point| point.samples_per_s).reduce(f64::max)?;
        fit().find(|point| point.samples_per_s >= NEAR_BEST * best)
    }

    /// Micro-batches of this size that would be prefetched to the device, where the planner predicted it.
    pub(super) fn prefetch_depth(&self, batch: f64) -> Option<u64> {
        self.points.iter().find(|point| point.batch == batch as u64)?.prefetch_depth
    }

    /// The weakest source of the predictions.
    pub(super) fn provenance(&self) -> Provenance {
        self.points.iter().filter_map(|point| point.provenance).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use crate::recording::{Expected, Run};

    use super::Curve;

    fn run() -> Run {
        let mut run = Run::new(0.0, 1);
        for (batch, samples_per_s, fits) in
            [(64, 640.0, true), (8, 200.0, true), (128, 645.0, true), (256, 900.0, false)]
        {
            let mut point = Expected::default();
            (point.batch, point.samples_per_s, point.fits) = (batch, samples_per_s, fits);
            run.expected.push(point);
        }
        run
    }

    #[test]
    fn the_smallest_that_is_about_as_fast_as_the_best_is_taken() {
        let run = run();
        let curve = Curve::new(&run, false).unwrap();
        let near_best =
            |most, all: bool| curve.smallest_near_best(most, |point| all || point.fits).map(|point| point.batch);
        assert_eq!(near_best(1000, false), Some(64));
        assert_eq!(near_best(32, false), Some(8));
        assert_eq!(near_best(1000, true), Some(256));
        assert_eq!(near_best(4, true), None);
        assert!(Curve::new(&run, true).is_none());
    }

    #[test]
    fn the_time_of_a_micro_batch_is_interpolated() {
        let run = run();
        let curve = Curve::new(&run, false).unwrap();
        for (batch, milliseconds) in [(1.0, 40.0), (8.0, 40.0), (36.0, 70.0), (64.0, 100.0), (512.0, 512.0 / 0.9)] {
            let micro = curve.seconds(batch) * batch * 1e3;
            assert!((micro - milliseconds).abs() < 1e-6, "{batch}: {micro}");
        }
    }
}
