//! Where pages were counted: few laws that agree with all counts.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::Pages;
use super::super::pages::{Law, Seen};
use super::{LEAST_RESIDUAL, MATTERS, Sample};

/// Laws of samples.
pub(super) struct Laws<'s> {
    samples: &'s [Sample],
    /// In ascending order of the micro-batches.
    parts: Vec<Part>,
}

/// Neighbours that one law agrees with.
struct Part {
    /// Those that it was made of.
    samples: Range<usize>,
    /// The first micro-batch that it tells of.
    from: u64,
    law: Law,
}

impl<'s> Laws<'s> {
    /// The fewest that agree with all samples but single ones; those of the largest micro-batches are made first. `None` where
    /// pages were not counted everywhere.
    pub(super) fn of(samples: &'s [Sample]) -> Option<Self> {
        let seen = |sample: &Sample| Some(Seen { batch: sample.batch, reserved: sample.reserved, held: sample.held? });
        let seen: Vec<Seen> = samples.iter().map(seen).collect::<Option<_>>()?;
        let mut parts = Vec::new();
        for alike in downwards(0..seen.len(), |part| Law::is_of_small(&seen[part])) {
            let law = |part: Range<usize>| Law::of(&seen[part], &seen[alike.clone()]);
            for part in downwards(alike.clone(), |part| law(part).is_some()) {
                // A single one tells nothing of others.
                let Some(law) = law(part.clone()) else { continue };
                let own = samples[part.start].batch;
                let before = part.start.checked_sub(1).map(|before| samples[before].batch);
                let from = before.map_or(own, |before| begin(before, own));
                parts.push(Part { samples: part, from, law });
            }
        }
        parts.reverse();
        (!parts.is_empty()).then_some(Self { samples, parts })
    }

    /// How many there are.
    pub(super) const fn count(&self) -> usize {
        self.parts.len()
    }

    /// The micro-batch, of those in steps of `even` `from` one on that are worth it, at which a count would tell most, and by how
    /// much of what is held.
    pub(super) fn undecided(&self, from: u64, even: u64, is_worth: impl Fn(u64) -> bool) -> Option<(f64, u64)> {
        let open = self.parts.iter().filter_map(|part| {
            let counted = &self.samples[part.samples.clone()];
            let [first, .., end] = counted else { return None };
            let new = |batch: &u64| is_worth(*batch) && counted.iter().all(|sample| sample.batch != *batch);
            let begin = first.batch.max(from).next_multiple_of(even);
            part.law.undecided((begin..end.batch).step_by(even as usize).filter(new))
        });
        open.max_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// What they tell from their first micro-batch on.
    pub(super) fn pages(&self) -> BTreeMap<u64, Pages> {
        let ends = self.parts.iter().skip(1).map(|next| next.from).chain([u64::MAX]);
        self.parts
            .iter()
            .zip(ends)
            .enumerate()
            .map(|(number, (part, end))| {
                // What is smaller than all that any tells of, is taken for its first.
                let begin = if number == 0 { 0 } else { part.from };
                let told = self.samples.iter().filter(|sample| (begin..end).contains(&sample.batch));
                (part.from, part.pages(self.samples, told))
            })
            .collect()
    }
}

impl Part {
    /// What the law says, and what was found above the most of it in the samples that it tells of.
    fn pages<'s>(&self, all: &[Sample], told: impl Iterator<Item = &'s Sample>) -> Pages {
        let ends = [self.samples.start, self.samples.end - 1].map(|at| all[at].batch);
        let pages = self.law.pages(self.from, ends);
        let above = told.map(|sample| {
            let batch = sample.batch.max(self.from);
            let said = pages.bytes(self.from, batch);
            (sample.reserved.0 as f64 - said - pages.open(self.from, batch)) / said.max(MATTERS.0 as f64)
        });
        Pages { residual: above.fold(LEAST_RESIDUAL, f64::max), ..pages }
    }
}

/// The first micro-batch of a law, somewhere after the last that follows another one and up to the first that follows it: rows are
/// mostly as wide as powers of two, and are too large for the pages that they were in right after one.
fn begin(before: u64, own: u64) -> u64 {
    let power = 1 << (own - 1).ilog2();
    if power >= before { power + 1 } else { before.midpoint(own) + 1 }
}

/// Parts of a range, from its end on, each as long as it can be.
fn downwards(range: Range<usize>, is_one: impl Fn(Range<usize>) -> bool) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut to = range.end;
    while to > range.start {
        let single = to - 1..to;
        let longer = (range.start..to - 1).rev().map(|from| from..to).take_while(|part| is_one(part.clone()));
        let part = longer.last().unwrap_or(single);
        to = part.start;
        parts.push(part);
    }
    parts
}

#[cfg(test)]
#[path = "laws_tests.rs"]
mod tests;
