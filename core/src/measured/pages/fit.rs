//! What steps need of pages, found out from pages that were counted.

use super::{InPages, Pages, Room, SMALL_PAGE, page};
use crate::Bytes;

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

/// Pages of one kind, as they were counted with a micro-batch.
#[derive(Clone, Copy)]
struct Counted {
    batch: f64,
    bytes: f64,
    page: f64,
}

/// What is needed by the micro-batch.
#[derive(Clone, Copy)]
struct Line {
    at_none: f64,
    each: f64,
}

impl Seen {
    fn needed(&self) -> Counted {
        let bytes = self.held.large_bytes().0 as f64;
        Counted { batch: self.batch as f64, bytes, page: self.held.page_bytes.0 as f64 }
    }

    fn small(&self) -> Counted {
        let bytes = self.held.small_bytes().0 as f64;
        Counted { batch: self.batch as f64, bytes, page: SMALL_PAGE as f64 }
    }

    fn other(&self) -> f64 {
        (self.reserved.0 as f64 - self.needed().bytes - self.small().bytes).max(0.0)
    }
}

impl Pages {
    /// What steps need, by the pages that were seen with some micro-batches, for a point with one of these. `None` where there
    /// are fewer than two, or where the size of pages follows no allocation that grows in a straight line.
    pub(in crate::measured) fn of(seen: &[Seen], point: u64) -> Option<Self> {
        let [first, .., last] = seen else { return None };
        let largest = |seen: &Seen| seen.held.largest_bytes.0 as f64;
        let largest = Line::through((first.batch, largest(first)), (last.batch, largest(last)));
        if seen.iter().any(|seen| page(largest.at(seen.batch)) != seen.held.page_bytes.0) {
            return None;
        }
        let other = Line::through((first.batch, first.other()), (last.batch, last.other()));
        let [needed, small] = [Seen::needed, Seen::small].map(|counted| Line::within(seen.iter().map(counted)));
        let bytes = |figure: f64| Bytes(figure.max(0.0).round() as u64);
        Some(Self {
            largest_bytes: bytes(largest.at(point)),
            largest_bytes_per_sample: bytes(largest.each),
            needed_bytes: bytes(needed.at(point)),
            needed_bytes_per_sample: bytes(needed.each),
            small_bytes: bytes(small.at(point)),
            small_bytes_per_sample: bytes(small.each),
            other_bytes_per_sample: bytes(other.each),
        })
    }

    /// What may be needed beyond this if no more pages are to be had than were seen; with more of them all of a page.
    pub(in crate::measured) fn room(&self, seen: &[Seen], point: u64) -> Room {
        let [needed, small] = [
            (self.needed_bytes, self.needed_bytes_per_sample, Seen::needed as fn(&Seen) -> Counted),
            (self.small_bytes, self.small_bytes_per_sample, Seen::small),
        ]
        .map(|(bytes, each, counted)| {
            let line = Line { at_none: bytes.0 as f64 - each.0 as f64 * point as f64, each: each.0 as f64 };
            let left = |seen: &Seen| counted(seen).bytes - line.at(seen.batch).max(0.0);
            seen.iter().map(left).fold(f64::INFINITY, f64::min).max(0.0)
        });
        Room { needed, small }
    }
}

impl Line {
    /// No less for more samples.
    fn through(from: (u64, f64), to: (u64, f64)) -> Self {
        let each = ((to.1 - from.1) / (to.0 as f64 - from.0 as f64)).max(0.0);
        Self { at_none: from.1 - each * from.0 as f64, each }
    }

    fn at(self, batch: u64) -> f64 {
        self.at_none + self.each * batch as f64
    }

    /// The line that ends within the last page of every count, as far from the ends of these as can be, or the least beyond
    /// them where no line is within all.
    fn within(counted: impl Iterator<Item = Counted>) -> Self {
        let counted: Vec<_> = counted.collect();
        // The most that lines with such a slope may begin with at the least, and the least at the most.
        let span = |each: f64| {
            let ends = counted.iter().map(|Counted { batch, bytes, page }| {
                let begin = bytes - each * batch;
                (begin - page.min(*bytes), begin)
            });
            ends.fold((f64::NEG_INFINITY, f64::INFINITY), |(least, most), (from, to)| (least.max(from), most.min(to)))
        };
        let beyond = |each: f64| {
            let (least, most) = span(each);
            least - most
        };
        let steepest = counted.iter().map(|counted| counted.bytes / counted.batch).fold(0.0, f64::max);
        let each = lowest(0.0, steepest, beyond);
        let (least, most) = span(each);
        Self { at_none: least.midpoint(most), each }
    }
}

/// Where a figure that falls and then rises is the lowest, to one.
pub(in crate::measured) fn lowest(mut low: f64, mut high: f64, figure: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..40 {
        if high - low < 1.0 {
            break;
        }
        let third = (high - low) / 3.0;
        if figure(low + third) <= figure(high - third) { high -= third } else { low += third }
    }
    low.midpoint(high)
}
