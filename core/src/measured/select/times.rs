//! Which times are worth keeping.

use super::{Sample, TOLERATED};
use crate::measured::Curve;

/// A micro-batch this much slower than the fastest is as good: the smallest of these is what plans are after.
const KNEE: f64 = 0.02;

/// No plan goes to what is slower than this share of the fastest.
const CONCERNS: f64 = 0.8;

/// What is known of the times at some samples.
pub(super) struct Times {
    timed: Vec<Timed>,
    /// Of steps; every micro-batch about as much.
    optimizer: f64,
    global: Option<u64>,
    fastest: f64,
    /// The smallest that is nearly as fast as the fastest, and that.
    needed: [usize; 2],
}

struct Timed {
    /// The number of the sample.
    at: usize,
    batch: u64,
    /// Of one micro-batch.
    seconds: f64,
}

impl Times {
    /// `None` where nothing was timed.
    pub(super) fn of(samples: &[Sample], global: Option<u64>) -> Option<Self> {
        let known = samples.iter().enumerate().filter_map(|(at, sample)| Some((at, sample.batch, sample.seconds?)));
        let timed: Vec<Timed> =
            known.clone().map(|(at, batch, known)| Timed { at, batch, seconds: known.micro_step }).collect();
        let mut optimizers: Vec<f64> = known.map(|(.., known)| known.optimizer).collect();
        optimizers.sort_unstable_by(f64::total_cmp);
        let optimizer = *optimizers.get(optimizers.len() / 2)?;
        let mut found = Self { timed, optimizer, global, fastest: 0.0, needed: [0; 2] };
        let rate = |timed: &Timed| found.rate(timed.batch, timed.seconds);
        let fastest = found.timed.iter().max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
        let knee = found.timed.iter().find(|timed| rate(timed) >= rate(fastest) * (1.0 - KNEE))?;
        (found.fastest, found.needed) = (rate(fastest), [knee.at, fastest.at]);
        Some(found)
    }

    /// Samples per second of steps of such micro-batches.
    fn rate(&self, batch: u64, seconds: f64) -> f64 {
        let samples = self.global.unwrap_or(batch) as f64;
        samples / (samples / batch as f64 * seconds + self.optimizer)
    }

    /// What speaks against keeping these: that the smallest good one is not among them, or the fastest; that what a plan for
    /// less memory may go to lies below all of them; and the error of lines between their times.
    pub(super) fn against(&self, chosen: &[usize]) -> (bool, bool, bool, f64) {
        let [knee, fastest] = self.needed.map(|at| !chosen.contains(&at));
        let is_kept = |timed: &Timed| chosen.contains(&timed.at);
        let mut below = self.timed.iter().take_while(|timed| !is_kept(timed));
        let is_below = below.any(|timed| self.rate(timed.batch, timed.seconds) >= CONCERNS * self.fastest);
        (knee, fastest, is_below, self.error(is_kept).unwrap_or(0.0).max(2.0 * TOLERATED))
    }

    /// The largest error of lines between the times of those that are kept, at the others that a plan may go to or would be
    /// led to; `None` where there are no others, infinite where none is kept.
    fn error(&self, is_kept: impl Fn(&Timed) -> bool) -> Option<f64> {
        let Some(curve) = self.curve(&is_kept) else { return Some(f64::INFINITY) };
        let first = curve.first();
        // Further below plans go by launches, as lines know nothing of them.
        let nearest = self.timed.iter().map(|timed| timed.batch).rfind(|batch| *batch < first);
        let others = self.timed.iter().filter(|timed| !is_kept(timed));
        let told = others.filter(|timed| timed.batch > first || Some(timed.batch) == nearest);
        let error = |timed: &Timed| {
            let share = (timed.batch as f64 / first as f64).min(1.0);
            let said = curve.at(timed.batch.max(first)) * share;
            // What is said below the first is no faster than that: only where that may be taken, it leads there.
            let is_no_lead = share < 1.0 && self.rate(timed.batch, said) < (1.0 - 2.0 * KNEE) * self.fastest;
            let said_to_be = if is_no_lead { timed.seconds } else { said };
            self.concerns(timed, said_to_be).then(|| (said / timed.seconds - 1.0).abs())
        };
        told.filter_map(error).reduce(f64::max)
    }

    /// The most by which others took longer than lines between the times of the micro-batches that are kept say.
    pub(super) fn residual(&self, kept: &[u64]) -> Option<f64> {
        let is_kept = |timed: &Timed| kept.contains(&timed.batch);
        let curve = self.curve(is_kept)?;
        let between = self.timed.iter().filter(|timed| !is_kept(timed) && timed.batch > curve.first());
        let missed = |timed: &Timed| {
            let said = curve.at(timed.batch);
            self.concerns(timed, said).then(|| 1.0 - said / timed.seconds)
        };
        between.filter_map(missed).reduce(f64::max).map(|missed| missed.max(0.0))
    }

    fn curve(&self, is_kept: impl Fn(&Timed) -> bool) -> Option<Curve> {
        Curve::through(self.timed.iter().filter(|timed| is_kept(timed)).map(|timed| (timed.batch, timed.seconds)))
    }

    /// Whether a plan may go there, or would be led there by what is `said` of it.
    fn concerns(&self, timed: &Timed, said: f64) -> bool {
        self.rate(timed.batch, said.min(timed.seconds)) >= CONCERNS * self.fastest
    }
}
