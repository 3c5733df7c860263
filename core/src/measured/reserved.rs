//! What memory pools hold by the micro-batch: what was measured at points, and beside them what counted pages tell, or lines.

use super::{Curve, InPages, Known, MeasuredMode, Pages, Point};
use crate::Bytes;

/// Bytes that memory pools hold.
#[derive(Clone, Debug)]
pub(crate) struct Reserved {
    points: Curve,
    /// What pages tell from a micro-batch on, up to that of the next.
    pages: Vec<(u64, Pages)>,
}

impl MeasuredMode {
    /// What memory pools hold with a micro-batch, by these measurements; `None` where they were not measured.
    pub fn reserved(&self, batch: u64) -> Option<Bytes> {
        Reserved::of(self).map(|reserved| Bytes(reserved.at(batch).ceil().max(0.0) as u64))
    }
}

impl Reserved {
    pub(crate) fn of(mode: &MeasuredMode) -> Option<Self> {
        let known = |(batch, point): (&u64, &Point)| {
            let slope = point.reserved_bytes_per_sample.map(|bytes| bytes.0 as f64);
            Some(Known { batch: *batch, figure: point.reserved_bytes?.0 as f64, slope, from: point.reserved_from })
        };
        let points = Curve::along(mode.batch.iter().filter_map(known))?;
        Some(Self { points, pages: mode.pages.iter().map(|(from, pages)| (*from, pages.clone())).collect() })
    }

    /// Bytes with a micro-batch.
    pub(crate) fn at(&self, batch: u64) -> f64 {
        self.told(batch).map_or_else(|| self.points.at(batch), |(from, pages)| pages.bytes(from, batch.max(from)))
    }

    /// Whether this micro-batch was measured.
    pub(crate) fn has(&self, batch: u64) -> bool {
        self.points.has(batch)
    }

    /// Whether a micro-batch is larger than every point.
    pub(crate) fn is_beyond(&self, batch: u64) -> bool {
        self.points.is_beyond(batch)
    }

    /// The point whose line passes this micro-batch.
    pub(crate) fn point(&self, batch: u64) -> u64 {
        self.points.point(batch)
    }

    /// What was found above what is said of a micro-batch, where that comes of pages, as a share.
    pub(crate) fn residual(&self, batch: u64) -> Option<f64> {
        self.told(batch).map(|(_, pages)| pages.residual)
    }

    /// The fewest pages and the most that make up the bytes, where that is what tells of them.
    pub(crate) fn pages(&self, batch: u64) -> Option<[InPages; 2]> {
        self.told(batch).map(|(from, pages)| pages.at(from, batch.max(from)))
    }

    /// What is held more where there are as many pages as there may be.
    pub(crate) fn open(&self, batch: u64) -> f64 {
        self.told(batch).map_or(0.0, |(from, pages)| pages.open(from, batch.max(from)))
    }

    /// What a micro-batch takes more if what tells of larger ones, or of smaller ones, tells of it: where the one gives way to
    /// the other is known only of micro-batches that were tried.
    pub(crate) fn beside_above(&self, batch: u64) -> f64 {
        if self.told(batch).is_none() {
            return if self.pages.is_empty() { self.points.next_above(batch) } else { 0.0 };
        }
        let counted = |(_, pages): &&(u64, Pages)| (pages.needed.few.batch..=pages.needed.many.batch).contains(&batch);
        if self.pages.iter().any(|told| counted(&told)) {
            return 0.0;
        }
        let next = self.pages.iter().find(|(_, pages)| pages.needed.few.batch > batch);
        let before = self.pages.iter().rfind(|(_, pages)| pages.needed.many.batch < batch);
        let most = |(from, pages): &(u64, Pages)| pages.bytes(*from, batch) + pages.open(*from, batch);
        let most = [before, next].into_iter().flatten().map(most).fold(0.0, f64::max);
        // Beyond all that was counted there is nothing beside.
        if next.is_none() { 0.0 } else { (most - self.at(batch) - self.open(batch)).max(0.0) }
    }

    /// What pages tell of a micro-batch that is no point.
    fn told(&self, batch: u64) -> Option<(u64, &Pages)> {
        let after = self.pages.partition_point(|(from, _)| *from <= batch).max(1);
        self.pages.get(after - 1).filter(|_| !self.has(batch)).map(|(from, pages)| (*from, pages))
    }
}

#[cfg(test)]
#[path = "reserved_tests.rs"]
mod tests;
