//! Which batches are measured, and which of them are worth keeping.

use crate::Bytes;

/// What was measured at one batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The micro-batch in samples.
    pub batch: u64,
    /// Memory that was reserved.
    pub reserved: Bytes,
    /// Milliseconds of a micro-step; `None` when none was run.
    pub micro_step_ms: Option<f64>,
}

/// The batches to keep of those that were measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The batches, ascending.
    pub batches: Vec<u64>,
    /// The most memory that was found above the lines between them, at the batches that are not kept, as a share of what
    /// the lines say; at least [`LEAST_RESIDUAL`].
    pub residual: f64,
}

/// What memory is never known better than: a dry run of a step and the step itself differ by as much.
pub const LEAST_RESIDUAL: f64 = 0.002;

/// The most batches that are tried.
const MOST_BATCHES: usize = 20;

/// Batches to try, ascending, from 1 to `largest`: 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on, and `largest`.
///
/// At most twenty: of more, those between the powers of two go first, from the smallest on.
pub fn ladder(largest: u64) -> Vec<u64> {
    let rungs = (0..u64::BITS - 1).flat_map(|power| [1 << power, 3 << power]);
    let mut batches: Vec<u64> = rungs.filter(|batch| *batch < largest).chain([largest.max(1)]).collect();
    batches.sort_unstable();
    while batches.len() > MOST_BATCHES {
        let inner = 1..batches.len() - 1;
        let between = inner.clone().find(|&at| !batches[at].is_power_of_two());
        batches.remove(between.unwrap_or(inner.start));
    }
    batches
}

/// Keeps at most `most` samples, so that straight lines between them have the least largest relative error at the others,
/// in memory and in time.
///
/// Kept are always the smallest batch, the largest, and the largest that was run. Below that one only batches that were run
/// are kept. `samples` are sorted by batch; `most` is at least 3.
pub fn select(samples: &[Sample], most: usize) -> Kept {
    let Some(last) = samples.len().checked_sub(1) else {
        return Kept { batches: Vec::new(), residual: LEAST_RESIDUAL };
    };
    let at = best_path(samples, most.clamp(3, samples.len().max(3)));
    let residual = at.windows(2).map(|ends| worst(samples, ends[0], ends[1], above)).fold(LEAST_RESIDUAL, f64::max);
    debug_assert!(at.first() == Some(&0) && at.last() == Some(&last), "BUG: the ends are kept");
    Kept { batches: at.into_iter().map(|at| samples[at].batch).collect(), residual }
}

/// The most memory that was found at a sample above the line from the one before it to the one after it, as a share of what
/// the line says: what is known of lines between samples that are all kept. `None` for fewer than three.
pub fn left_out(samples: &[Sample]) -> Option<f64> {
    let errors = (2..samples.len()).map(|to| worst(samples, to - 2, to, above));
    errors.reduce(f64::max).map(|error| error.max(LEAST_RESIDUAL))
}

/// The best way from the first sample to the last with so many stops at most, found stop by stop.
fn best_path(samples: &[Sample], most: usize) -> Vec<usize> {
    let last = samples.len() - 1;
    let last_run = samples.iter().rposition(|sample| sample.micro_step_ms.is_some());
    let may_be_kept = |at: usize| at == 0 || samples[at].micro_step_ms.is_some() || last_run.is_none_or(|run| at > run);
    let is_passed_over = |from: usize, to: usize| last_run.is_some_and(|run| from < run && run < to);
    // The least largest error on the way to each sample, and that way.
    let mut ways: Vec<Option<(f64, Vec<usize>)>> = vec![None; samples.len()];
    ways[0] = Some((0.0, vec![0]));
    let mut best = ways[last].clone();
    for _ in 1..most {
        let mut longer: Vec<Option<(f64, Vec<usize>)>> = vec![None; samples.len()];
        for to in (1..samples.len()).filter(|to| may_be_kept(*to)) {
            let steps = (0..to).filter(|from| !is_passed_over(*from, to)).filter_map(|from| {
                let (error, way) = ways[from].as_ref()?;
                Some((error.max(worst(samples, from, to, either)), way))
            });
            let nearest = steps.min_by(|a, b| a.0.total_cmp(&b.0));
            longer[to] = nearest.map(|(error, way)| (error, way.iter().copied().chain([to]).collect()));
        }
        // More points that err no more are more points to choose a batch from.
        if let Some((error, _)) = &longer[last]
            && best.as_ref().is_none_or(|(least, _)| error <= least)
        {
            best.clone_from(&longer[last]);
        }
        ways = longer;
    }
    best.map_or_else(|| vec![0], |(_, way)| way)
}

/// The largest error between two samples of a line through them.
fn worst(samples: &[Sample], from: usize, to: usize, of: fn(Line<'_>, &Sample) -> f64) -> f64 {
    let line = Line { from: &samples[from], to: &samples[to] };
    samples[from + 1..to].iter().map(|sample| of(line, sample)).fold(0.0, f64::max)
}

#[derive(Clone, Copy)]
struct Line<'s> {
    from: &'s Sample,
    to: &'s Sample,
}

impl Line<'_> {
    /// A figure at a batch, from the figures at the ends.
    fn at(self, batch: u64, [from, to]: [f64; 2]) -> f64 {
        let share = (batch - self.from.batch) as f64 / (self.to.batch - self.from.batch) as f64;
        from + share * (to - from)
    }

    fn error(self, batch: u64, ends: [f64; 2], found: f64) -> f64 {
        (self.at(batch, ends) - found).abs() / found.max(f64::MIN_POSITIVE)
    }

    fn bytes(self) -> [f64; 2] {
        [self.from, self.to].map(|end| end.reserved.0 as f64)
    }
}

fn memory(line: Line<'_>, sample: &Sample) -> f64 {
    line.error(sample.batch, line.bytes(), sample.reserved.0 as f64)
}

fn above(line: Line<'_>, sample: &Sample) -> f64 {
    sample.reserved.0 as f64 / line.at(sample.batch, line.bytes()).max(1.0) - 1.0
}

fn time(line: Line<'_>, sample: &Sample) -> f64 {
    let ends = || Some([line.from.micro_step_ms?, line.to.micro_step_ms?]);
    ends().zip(sample.micro_step_ms).map_or(0.0, |(ends, found)| line.error(sample.batch, ends, found))
}

fn either(line: Line<'_>, sample: &Sample) -> f64 {
    memory(line, sample).max(time(line, sample))
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
