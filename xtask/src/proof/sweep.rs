//! Throughput of a model at each batch of the sweep.

use std::collections::BTreeMap;

use gpu_tuned_core::measured::Mode;

use super::data::Line;
use crate::figures::{max, median, min};

/// Timed steps of one model, without accumulation.
#[derive(Default)]
pub(super) struct Sweep(BTreeMap<Mode, BTreeMap<u64, Timed>>);

/// The repeats of one batch.
#[derive(Clone, Default)]
pub(super) struct Timed {
    /// Samples per second of each successful repeat.
    rates: Vec<f64>,
    /// Repeats that ran out of memory.
    pub out_of_memory: usize,
    /// Repeats that failed otherwise.
    pub failed: usize,
}

/// Throughput of a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub samples_per_s: f64,
    pub source: RateSource,
}

/// Source of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateSource {
    /// Median of the repeats at this batch.
    Sweep,
    /// Step time interpolated between two batches of the sweep.
    Interpolated,
    /// Step time extrapolated beyond the sweep.
    Extrapolated,
}

impl Sweep {
    /// Collects the sweep of one model.
    pub(super) fn new(lines: &[Line], model: &str) -> Self {
        let mut sweep = Self::default();
        for line in lines.iter().filter(|line| line.model == model && line.test == "sweep") {
            let timed = sweep.0.entry(line.mode()).or_default().entry(line.batch).or_default();
            match line.samples_per_second {
                Some(rate) => timed.rates.push(rate),
                None if line.out_of_memory => timed.out_of_memory += 1,
                None => timed.failed += 1,
            }
        }
        sweep
    }

    pub(super) fn modes(&self) -> impl Iterator<Item = (Mode, &BTreeMap<u64, Timed>)> {
        self.0.iter().map(|(mode, batches)| (*mode, batches))
    }

    /// Batches whose repeats all ran, ascending, with the median samples per second.
    pub(super) fn medians(&self, mode: Mode) -> Vec<(u64, f64)> {
        let batches = self.0.get(&mode).into_iter().flatten();
        batches.filter_map(|(batch, timed)| Some((*batch, timed.median().filter(|_| timed.ran())?))).collect()
    }

    /// Returns true if a repeat of the batch ran out of memory.
    pub(super) fn ran_out_of_memory(&self, mode: Mode, batch: u64) -> bool {
        self.0.get(&mode).and_then(|batches| batches.get(&batch)).is_some_and(|timed| timed.out_of_memory > 0)
    }

    /// Throughput at a batch: the median, or else from linearly interpolated step times. `None` if fewer than two batches were
    /// timed.
    pub(super) fn rate(&self, mode: Mode, batch: u64) -> Option<Rate> {
        let medians = self.medians(mode);
        if let Some((_, samples_per_s)) = medians.iter().find(|(timed, _)| *timed == batch) {
            return Some(Rate { samples_per_s: *samples_per_s, source: RateSource::Sweep });
        }
        let after = medians.partition_point(|(timed, _)| *timed < batch);
        let low = after.max(1).min(medians.len().checked_sub(1)?) - 1;
        let [(below, slow), (above, fast)] = medians.get(low..low + 2)?.try_into().ok()?;
        let (here, below, above) = (batch as f64, below as f64, above as f64);
        let (from, to) = (below / slow, above / fast);
        let seconds = from + (to - from) * (here - below) / (above - below);
        let is_between = (below..=above).contains(&here);
        // A batch below the sweep has at most the throughput of the smallest batch.
        let seconds = if here < below { seconds.max(here / slow) } else { seconds };
        let source = if is_between { RateSource::Interpolated } else { RateSource::Extrapolated };
        (seconds > 0.0).then(|| Rate { samples_per_s: here / seconds, source })
    }
}

impl Timed {
    pub(super) fn median(&self) -> Option<f64> {
        median(&self.rates)
    }

    /// The slowest and the fastest repeat.
    pub(super) fn interval(&self) -> Option<(f64, f64)> {
        Some((min(&self.rates)?, max(&self.rates)?))
    }

    pub(super) fn repeats(&self) -> usize {
        self.rates.len()
    }

    /// Returns true if every repeat ran.
    pub(super) fn ran(&self) -> bool {
        !self.rates.is_empty() && self.out_of_memory == 0 && self.failed == 0
    }
}

impl Rate {
    /// Prefix of the figure in tables.
    pub(super) const fn mark(self) -> &'static str {
        match self.source {
            RateSource::Sweep => "",
            RateSource::Interpolated => "~",
            RateSource::Extrapolated => "≈",
        }
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Precision;
    use gpu_tuned_core::measured::Mode;

    use super::{RateSource, Sweep};
    use crate::results::lines;

    const MODE: Mode = Mode::new(Precision::F32, false);

    /// Steps of 10 ms and 1 ms for each sample, with a slow and a fast repeat; 64 does not always fit.
    fn sweep() -> Sweep {
        let mut text = String::new();
        for batch in [8, 32, 64] {
            for (repeat, factor) in [0.9, 1.0, 1.3].into_iter().enumerate() {
                let rate = factor * f64::from(batch) / (0.01 + 0.001 * f64::from(batch));
                let figure = match (batch, repeat) {
                    (64, 2) => r#""out_of_memory":true,"message":"out of device memory""#.to_owned(),
                    _ => format!(r#""samples_per_second":{rate}"#),
                };
                let line = format!(
                    "{{\"model\":\"lstm\",\"precision\":\"f32\",\"checkpointing\":false,\"accumulate\":1,\"batch\":{batch},\
                     \"way\":\"sweep\",\"repeat\":{repeat},{figure}}}\n"
                );
                text.push_str(&line);
            }
        }
        Sweep::new(&lines("sweep.jsonl", &text).expect("they are valid"), "lstm")
    }

    #[test]
    fn rates_are_medians_and_between_them_lines_of_seconds() {
        let sweep = sweep();
        let at =
            |batch: u64| sweep.rate(MODE, batch).map(|rate| (rate.source, (rate.samples_per_s * 10.0).round() / 10.0));
        assert_eq!(at(8), Some((RateSource::Sweep, 444.4)));
        assert_eq!(at(32), Some((RateSource::Sweep, 761.9)));
        assert_eq!(at(16), Some((RateSource::Interpolated, 615.4)));
        assert_eq!(at(48), Some((RateSource::Extrapolated, 827.6)));
        // Extrapolation gives 230.8 at 3 samples. That is less than the rate at 8, and is not capped.
        assert_eq!(at(3), Some((RateSource::Extrapolated, 230.8)));
        assert_eq!(sweep.rate(Mode { checkpointing: true, ..MODE }, 8), None);
    }

    #[test]
    fn a_batch_that_did_not_always_fit_is_ignored() {
        let sweep = sweep();
        assert_eq!(sweep.medians(MODE).iter().map(|(batch, _)| *batch).collect::<Vec<_>>(), [8, 32]);
        let (_, batches) = sweep.modes().next().expect("a mode");
        assert_eq!((batches[&64].out_of_memory, batches[&64].repeats(), batches[&8].repeats()), (1, 2, 3));
    }
}
