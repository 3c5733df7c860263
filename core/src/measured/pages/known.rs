//! What counts of pages tell of what is needed: the lines that agree with all of them.

use super::{Between, Line, Need};
use crate::Bytes;

/// Pages of one kind, as they were counted with a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub batch: u64,
    pub bytes: f64,
    pub page: f64,
}

/// By what part of a page counts may disagree that follow one line.
const AGREED: f64 = 0.25;

/// So many micro-batches between two tell of all.
const LOOKS: u64 = 64;

/// Lines that agree with what was counted, as the corners of a convex polygon in the plane of all lines.
#[derive(Clone, Debug)]
pub(super) struct Known {
    corners: Vec<Line>,
    /// By what part of a page the counts disagree.
    missed: f64,
}

impl Known {
    /// Of at least one count. Where no line agrees with all of them, those that miss them least; `None` where they miss them
    /// by more than so much of a page.
    pub(super) fn by(counted: impl Iterator<Item = Counted>) -> Option<Self> {
        let counted: Vec<_> = counted.collect();
        let agreeing = |missed: f64| Some(agreeing(&counted, missed)).filter(|corners| corners.len() > 2);
        let (mut low, mut high) = (0.0, AGREED);
        agreeing(high)?;
        if agreeing(low).is_some() {
            high = low;
        }
        while high - low > 0.01 {
            let middle = f64::midpoint(low, high);
            if agreeing(middle).is_some() { high = middle } else { low = middle }
        }
        Some(Self { corners: agreeing(high)?, missed: high })
    }

    /// The least and the most that may be needed.
    pub(super) fn band(&self, batch: u64) -> (f64, f64) {
        let needed = self.corners.iter().map(|line| line.at(batch));
        needed.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), needed| (least.min(needed), most.max(needed)))
    }

    /// By what part of a page the counts disagree.
    pub(super) const fn missed(&self) -> f64 {
        self.missed
    }

    /// The same at three micro-batches, from the first that it is to tell of to the last.
    pub(super) fn need(&self, from: u64, to: u64) -> Need {
        let between = |batch: u64| {
            let (least, most) = self.band(batch);
            let bytes = |figure: f64| Bytes(figure.max(0.0).round() as u64);
            Between { batch, least: bytes(least), most: bytes(most) }
        };
        let width = |batch: u64| {
            let (least, most) = self.band(batch);
            (most - least) / least.midpoint(most)
        };
        let looks = (0..LOOKS).map(|look| from + (to - from) * look / LOOKS);
        let best = looks.min_by(|a, b| width(*a).total_cmp(&width(*b))).unwrap_or(from);
        Need { few: between(from), best: between(best), many: between(to) }
    }
}

/// The lines that miss no count by more than such a part of a page.
fn agreeing(counted: &[Counted], missed: f64) -> Vec<Line> {
    let most = counted.iter().map(|counted| counted.bytes + counted.page).fold(1.0, f64::max);
    let steepest = counted.iter().map(|counted| counted.bytes / counted.batch as f64).fold(1.0, f64::max);
    let at = |at_none, each| Line { at_none, each };
    let mut corners = vec![at(-most, 0.0), at(most, 0.0), at(most, steepest), at(-most, steepest)];
    for Counted { batch, bytes, page } in counted {
        // What is needed is more than all pages but one, and no more than all.
        let slack = missed * page;
        let (least, most) = (bytes - page.min(*bytes) + 1.0 - slack, bytes + slack);
        corners = cut(&corners, |line| line.at(*batch) - least);
        corners = cut(&corners, |line| most - line.at(*batch));
    }
    corners
}

/// The part of a convex polygon where a figure is no less than 0.
fn cut(corners: &[Line], figure: impl Fn(Line) -> f64) -> Vec<Line> {
    let mut kept = Vec::with_capacity(corners.len() + 1);
    for (at, &corner) in corners.iter().enumerate() {
        let next = corners[(at + 1) % corners.len()];
        let (here, there) = (figure(corner), figure(next));
        if here >= 0.0 {
            kept.push(corner);
        }
        if (here < 0.0) != (there < 0.0) {
            let way = here / (here - there);
            let on = |from: f64, to: f64| from + (to - from) * way;
            kept.push(Line { at_none: on(corner.at_none, next.at_none), each: on(corner.each, next.each) });
        }
    }
    kept
}
