//! What `CubeCL`'s memory pools hold of what steps need at once.
//!
//! A pool has pages of one size and cuts allocations out of them. Small ones have a pool to themselves, with pages of 8 MiB; all
//! others share pages that are a little larger than the largest of them. What steps need at once grows with the micro-batch
//! in a straight line, and is held in whole pages. That is no line at all: at 160 samples an LSTM has 35 pages of 11 MiB, at 224 it has 36
//! of 15, at 320 it has 37 of 20 (on an H200, CubeCL 0.11.3). A page more or less is 3% of its memory, and 17% of a ResNet's.

mod fit;
mod known;
mod open;
mod other;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Measured;
use crate::Bytes;

pub(super) use fit::{Law, Seen};

/// A part of a page that is never known: what is needed is a straight line only nearly.
const BLUR: f64 = 0.3;
/// What differs by no more than this share of what is held is close to it.
const CLOSE: f64 = 0.02;

/// The pages that memory pools held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPages {
    /// Pages of small allocations.
    pub small_pages: u64,
    /// Pages of all others, without those of a size that was outgrown.
    pub pages: u64,
    /// The size of these.
    pub page_bytes: Bytes,
    /// The largest allocation, which that size follows.
    pub largest_bytes: Bytes,
}

/// What steps hold in pages, from a micro-batch on, and what each sample more adds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pages {
    /// The largest allocation: pages have a mebibyte more, in whole mebibytes, and at least two.
    pub largest_bytes: Bytes,
    /// What each sample adds to it.
    pub largest_bytes_per_sample: Bytes,
    /// In so many of these pages nothing uses what the largest allocations leave of them.
    pub unfilled_pages: u64,
    /// What is needed at once of such pages, besides.
    pub needed: Need,
    /// What is needed at once of pages of 8 MiB, for small allocations.
    pub small: Need,
    /// All that is in no such pages, as in those that were outgrown: by some micro-batches, with straight lines between them.
    pub other_bytes: BTreeMap<u64, Bytes>,
    /// The most that was found above what these figures say is held at most, as a share of what they say.
    pub residual: f64,
}

/// What is needed at once of pages of one kind, as far as counts of them tell: straight lines between three micro-batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// With the smallest that it tells of.
    pub few: Between,
    /// With one where it is known best.
    pub best: Between,
    /// With the largest that tells of it.
    pub many: Between,
}

/// What may be needed with a micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// The micro-batch in samples.
    pub batch: u64,
    /// At the least.
    pub least: Bytes,
    /// At the most.
    pub most: Bytes,
}

impl Default for Between {
    fn default() -> Self {
        Self { batch: 1, least: Bytes::ZERO, most: Bytes::ZERO }
    }
}

/// A figure by the micro-batch.
#[derive(Clone, Copy, Debug)]
pub(in crate::measured) struct Line {
    at_none: f64,
    each: f64,
}

impl InPages {
    /// The size of pages of small allocations, which are at most 64 KiB.
    pub const SMALL_PAGE: Bytes = Bytes::from_mib(8);
    /// The size of all others, until an allocation is larger.
    pub const FIRST_PAGE: Bytes = Bytes::from_mib(2);

    /// The size of pages whose largest allocation has so many bytes: a mebibyte of slack, rounded up to the mebibyte.
    pub fn page_for(largest: Bytes) -> Bytes {
        let mib = Bytes::from_mib(1).0;
        if largest <= Self::FIRST_PAGE { Self::FIRST_PAGE } else { Bytes((largest.0 + mib).next_multiple_of(mib)) }
    }

    /// What is left of a page when as many of the largest allocation lie in it as go into it.
    pub(in crate::measured) const fn rest(page: Bytes, largest: Bytes) -> Bytes {
        if largest.0 == 0 { Bytes::ZERO } else { Bytes(page.0 % largest.0) }
    }

    /// What pages of small allocations take.
    pub fn small_bytes(&self) -> Bytes {
        Self::SMALL_PAGE.times(self.small_pages)
    }

    /// What all other pages take.
    pub fn large_bytes(&self) -> Bytes {
        self.page_bytes.times(self.pages)
    }

    fn bytes(&self) -> f64 {
        (self.large_bytes() + self.small_bytes()).0 as f64
    }
}

impl Pages {
    /// The pages of steps with a micro-batch, where these figures tell of micro-batches `from` one on: the fewest and the most.
    pub fn at(&self, from: u64, batch: u64) -> [InPages; 2] {
        let [fewest, _, most] = self.counts(from, batch);
        [fewest, most]
    }

    /// What pools hold with a micro-batch. Where it may be a page more or less it is the middle, if that is close to both, or
    /// else what is likelier.
    pub fn bytes(&self, from: u64, batch: u64) -> f64 {
        let counts = self.counts(from, batch);
        let likely = counts[1].bytes() + self.other(batch);
        let middle = |of: fn(&InPages) -> Bytes| {
            let [fewest, likelier, most] = [0, 1, 2].map(|way| of(&counts[way]).0 as f64);
            if most - fewest <= 2.0 * CLOSE * likely { fewest.midpoint(most) - likelier } else { 0.0 }
        };
        likely + middle(InPages::large_bytes) + middle(InPages::small_bytes)
    }

    /// What they may hold more than that.
    pub fn open(&self, from: u64, batch: u64) -> f64 {
        let [.., most] = self.counts(from, batch);
        (most.bytes() + self.other(batch) - self.bytes(from, batch)).max(0.0)
    }

    fn other(&self, batch: u64) -> f64 {
        other::between(&self.other_bytes, batch).clamp(0.0, Measured::LARGEST as f64)
    }

    /// The fewest pages, the likeliest and the most.
    fn counts(&self, from: u64, batch: u64) -> [InPages; 3] {
        let largest = along(self.largest_bytes, self.largest_bytes_per_sample, from, batch);
        let page = InPages::page_for(Bytes(largest as u64));
        let [needed, small] = [&self.needed, &self.small].map(|need| need.at(batch));
        // Few pages, each of them much of all, follow the line more closely.
        let is_one_of_many = page.0 as f64 <= 2.0 * CLOSE * (needed[1] + small[1] + self.other(batch));
        let blur = if is_one_of_many { BLUR * page.0 as f64 } else { 0.0 };
        let empty = InPages::rest(page, Bytes(largest as u64)).times(self.unfilled_pages).0 as f64;
        let needed = [needed[0] - blur, needed[1], needed[2] + blur].map(|needed| needed + empty);
        [0, 1, 2].map(|way| InPages {
            small_pages: pages(small[way], InPages::SMALL_PAGE),
            pages: pages(needed[way], page),
            page_bytes: page,
            largest_bytes: Bytes(largest as u64),
        })
    }
}

impl Need {
    /// The least that may be needed, the likeliest and the most.
    fn at(&self, batch: u64) -> [f64; 3] {
        let (from, to) = if batch <= self.best.batch { (self.few, self.best) } else { (self.best, self.many) };
        let along = |of: fn(&Between) -> Bytes| {
            let ends = [&from, &to].map(|end| (end.batch, of(end).0 as f64));
            Line::through(ends[0], ends[1]).at(batch)
        };
        let (least, most) = (along(|end| end.least), along(|end| end.most));
        [least, least.midpoint(most), most]
    }
}

/// What is there with a micro-batch, of something that is on record for another.
fn along(bytes: Bytes, each: Bytes, from: u64, batch: u64) -> f64 {
    let away = batch as f64 - from as f64;
    (bytes.0 as f64 + each.0 as f64 * away).clamp(0.0, Measured::LARGEST as f64)
}

impl Line {
    /// Level where both are the same micro-batch.
    fn through(from: (u64, f64), to: (u64, f64)) -> Self {
        let apart = (to.0 as f64 - from.0 as f64).max(1.0);
        let each = (to.1 - from.1) / apart;
        Self { at_none: from.1 - each * from.0 as f64, each }
    }

    fn at(self, batch: u64) -> f64 {
        self.at_none + self.each * batch as f64
    }
}

/// How many pages hold so many bytes.
fn pages(bytes: f64, page: Bytes) -> u64 {
    (bytes.max(0.0) / page.0 as f64).ceil() as u64
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
