//! What counts of pages tell of what is needed: the lines that agree with all of them.

use super::{Between, Line, Need};
use crate::Bytes;

/// Pages of one kind, as they were counted with a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub batch: u64,
    pub bytes: f64,
    pub page: f64,
    /// What as many of the largest allocation as go into a page leave of it.
    pub rest: f64,
}

/// By what part of a page counts may disagree that follow one line.
const AGREED: f64 = 0.25;

/// So many micro-batches between two tell of all.
const LOOKS: u64 = 64;

/// The rests of no more pages than these are taken for empty: where there are more pages, one is little of all.
const UNFILLED: u64 = 64;

/// Of the numbers that agree, such a part is below the one that is taken: of those that were tried, it told most of an LSTM in four
/// modes whose counts are known at all micro-batches.
const LIKELY: usize = 4;

/// Misses that differ by no more than this part of a page are alike.
const ALIKE: f64 = 0.01;

/// Lines that agree with what was counted, as the corners of a convex polygon in the plane of all lines.
#[derive(Clone, Debug)]
pub(super) struct Known {
    corners: Vec<Line>,
    /// Pages of which nothing uses the rest; lines are of what is needed besides.
    unfilled: u64,
    /// By what part of a page the counts disagree.
    missed: f64,
}

impl Known {
    /// Of at least one count. Where no line agrees with all of them, those that miss them least; `None` where they miss them
    /// by more than so much of a page.
    pub(super) fn by(counted: impl Iterator<Item = Counted>) -> Option<Self> {
        let counted: Vec<_> = counted.collect();
        let has_rests = counted.iter().any(|counted| counted.rest > 0.0);
        let fewest = counted.iter().map(|counted| counted.bytes / counted.page).fold(f64::INFINITY, f64::min);
        let most = if has_rests { UNFILLED.min(fewest as u64) } else { 0 };
        let agreeing = |missed: f64| {
            let ways =
                (0..=most).map(|unfilled| Self { corners: agreeing(&counted, unfilled, missed), unfilled, missed });
            let mut ways: Vec<_> = ways.filter(|way| way.corners.len() > 2).collect();
            (!ways.is_empty()).then(|| ways.swap_remove(ways.len() / LIKELY))
        };
        let mut low = 0.0;
        let mut known = agreeing(low).or_else(|| agreeing(AGREED))?;
        while known.missed - low > ALIKE {
            let middle = f64::midpoint(low, known.missed);
            match agreeing(middle) {
                Some(nearer) => known = nearer,
                None => low = middle,
            }
        }
        Some(known)
    }

    /// So many pages are likely to be those of which nothing uses the rest.
    pub(super) const fn unfilled(&self) -> u64 {
        self.unfilled
    }

    /// The least and the most that may be needed besides.
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

/// The lines that miss no count by more than such a part of a page, if nothing uses the rests of so many.
fn agreeing(counted: &[Counted], unfilled: u64, missed: f64) -> Vec<Line> {
    let most = counted.iter().map(|counted| counted.bytes + counted.page).fold(1.0, f64::max);
    let steepest = counted.iter().map(|counted| counted.bytes / counted.batch as f64).fold(1.0, f64::max);
    let at = |at_none, each| Line { at_none, each };
    let mut corners = vec![at(-most, 0.0), at(most, 0.0), at(most, steepest), at(-most, steepest)];
    for Counted { batch, bytes, page, rest } in counted {
        // What is needed is more than all pages but one, and no more than all.
        let (slack, empty) = (missed * page, unfilled as f64 * rest);
        let (least, most) = (bytes - page.min(*bytes) + 1.0 - slack - empty, bytes + slack - empty);
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

#[cfg(test)]
mod tests {
    use super::{Counted, Known};
    use crate::Bytes;
    use crate::measured::InPages;

    /// Pages of an LSTM by the micro-batch, in f32; each sample has 60 KiB of the largest allocation (H100, Burn 0.22.1, `CubeCL`
    /// 0.11.3).
    const LSTM: [(u64, u64); 9] =
        [(65, 33), (80, 34), (128, 35), (160, 36), (224, 36), (256, 37), (320, 37), (364, 37), (512, 38)];

    fn counted((batch, pages): (u64, u64)) -> Counted {
        let largest = Bytes(60 * 1024 * batch);
        let page = InPages::page_for(largest);
        let rest = InPages::rest(page, largest).0 as f64;
        Counted { batch, bytes: page.times(pages).0 as f64, page: page.0 as f64, rest }
    }

    #[test]
    fn lines_agree_with_counts_once_rests_of_pages_are_left_empty() {
        let known = Known::by(LSTM.into_iter().map(counted)).expect("lines of what is needed besides");
        assert!(known.unfilled() > 0 && known.missed() < 0.1, "{known:?}");
        for Counted { batch, bytes, page, rest } in LSTM.map(counted) {
            let empty = known.unfilled() as f64 * rest;
            let (least, most) = known.band(batch);
            let fits = |needed: f64| (bytes - needed - empty).abs() <= page * (1.0 + known.missed());
            assert!(fits(least) && fits(most), "{batch}: {least} to {most} and {empty} in {bytes}");
        }
        let filled = LSTM.into_iter().map(|pages| Counted { rest: 0.0, ..counted(pages) });
        assert!(Known::by(filled).is_none());
    }
}
