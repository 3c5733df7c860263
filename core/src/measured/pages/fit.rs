//! What steps need of pages, found out from pages that were counted.

use super::known::{Counted, Known};
use super::other::{Other, telling};
use super::{InPages, Line, Pages};
use crate::Bytes;

/// By what share of what was held a law may be off where not all counts agree with it. Where pages are few, one is much of all, and lines
/// that miss one count by little may be a page off with many others.
const TOLD: f64 = 0.05;

/// What was held with a micro-batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::measured) struct Seen {
    /// The micro-batch in samples.
    pub batch: u64,
    /// In pages or not.
    pub reserved: Bytes,
    /// In which.
    pub held: InPages,
}

/// What pages that were counted tell of others.
#[derive(Clone, Debug)]
pub(in crate::measured) struct Law {
    pub(super) largest: Line,
    pub(super) needed: Known,
    pub(super) small: Known,
    others: Vec<Other>,
}

impl Seen {
    fn needed(&self) -> Counted {
        let bytes = self.held.large_bytes().0 as f64;
        let (page, largest) = (self.held.page_bytes, self.held.largest_bytes);
        Counted { batch: self.batch, bytes, page: page.0 as f64, rest: InPages::rest(page, largest).0 as f64 }
    }

    fn small(&self) -> Counted {
        let bytes = self.held.small_bytes().0 as f64;
        Counted { batch: self.batch, bytes, page: InPages::SMALL_PAGE.0 as f64, rest: 0.0 }
    }

    /// What is in no such pages.
    fn other(&self) -> Other {
        let all = self.reserved.0 as f64;
        let bytes = (all - self.needed().bytes - self.small().bytes).max(0.0);
        Other { batch: self.batch, bytes, all: all.max(1.0) }
    }
}

impl Law {
    /// What was seen with some micro-batches, in ascending order; those of `alike`, which are among them, tell of small
    /// allocations, too. `None` where there are fewer than two, where the size of pages follows no allocation that grows in a
    /// straight line, or where what is needed of them does not, or so little that the law is off by much.
    pub(in crate::measured) fn of(seen: &[Seen], alike: &[Seen]) -> Option<Self> {
        let law = Self {
            largest: largest(seen)?,
            needed: Known::by(seen.iter().map(Seen::needed))?,
            small: Known::by(alike.iter().map(Seen::small))?,
            others: seen.iter().map(Seen::other).collect(),
        };
        (law.agrees() || law.tells(seen)).then_some(law)
    }

    /// Whether all counts agree with it.
    fn agrees(&self) -> bool {
        self.needed.missed() == 0.0 && self.small.missed() == 0.0
    }

    /// Whether it says nearly what was held in pages.
    fn tells(&self, seen: &[Seen]) -> bool {
        let [first, .., last] = seen else { return false };
        let pages = self.pages(first.batch, [first.batch, last.batch]);
        let is_told = |seen: &Seen| {
            let said = pages.bytes(first.batch, seen.batch) - pages.other(seen.batch);
            (said - seen.held.bytes()).abs() <= TOLD * seen.reserved.0 as f64
        };
        seen.iter().all(is_told)
    }

    /// Whether pages of small allocations follow what is needed of them.
    pub(in crate::measured) fn is_of_small(seen: &[Seen]) -> bool {
        Known::by(seen.iter().map(Seen::small)).is_some()
    }

    /// What it says of micro-batches from this one on, by what was seen with some from the `first` to the `last`.
    pub(in crate::measured) fn pages(&self, from: u64, [first, last]: [u64; 2]) -> Pages {
        let bytes = |figure: f64| Bytes(figure.max(0.0).round() as u64);
        Pages {
            largest_bytes: bytes(self.largest.at(from)),
            largest_bytes_per_sample: bytes(self.largest.each),
            unfilled_pages: self.needed.unfilled(),
            needed: self.needed.need(first, last),
            small: self.small.need(first, last),
            other_bytes: telling(&self.others),
            residual: 0.0,
        }
    }
}

/// What the largest allocation is by the micro-batch, if that is a line and pages are as large as follows from it.
fn largest(seen: &[Seen]) -> Option<Line> {
    let [first, .., last] = seen else { return None };
    let largest = |seen: &Seen| (seen.batch, seen.held.largest_bytes.0 as f64);
    let line = Line::through(largest(first), largest(last));
    if line.each < 0.0 {
        return None;
    }
    let page = |seen: &Seen| InPages::page_for(Bytes(line.at(seen.batch).max(0.0) as u64));
    seen.iter().all(|seen| page(seen) == seen.held.page_bytes).then_some(line)
}
