//! What `CubeCL`'s memory pools hold of what steps need at once.
//!
//! A pool has pages of one size and cuts allocations out of them. Small ones have a pool to themselves, with pages of 8 MiB; all
//! others share pages that are a little larger than the largest of them. What steps need at once grows with the micro-batch
//! in a straight line, and is held in whole pages. That is no line at all: at 160 samples an LSTM has 35 pages of 11 MiB, at 224 it has 36
//! of 15, at 320 it has 37 of 20 (on an H200, CubeCL 0.11.3). A page more or less is 3% of its memory, and 17% of a ResNet's.

mod fit;

use serde::{Deserialize, Serialize};

use super::Measured;
use crate::Bytes;

pub(super) use fit::{Seen, lowest};

const MIB: u64 = 1 << 20;
/// Of small allocations, which are at most 64 KiB.
const SMALL_PAGE: u64 = 8 * MIB;
/// Of all others, until one is larger.
const FIRST_PAGE: u64 = 2 * MIB;
/// What a larger page has beyond the largest allocation, and what its size is a multiple of.
const SLACK: u64 = MIB;

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

/// What steps with the micro-batch of a point need of pages, and what each sample more adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    /// The largest allocation: pages have a mebibyte more, in whole mebibytes, and at least two.
    pub largest_bytes: Bytes,
    /// What each sample adds to it.
    pub largest_bytes_per_sample: Bytes,
    /// What is needed at once of such pages.
    pub needed_bytes: Bytes,
    /// What each sample adds to it.
    pub needed_bytes_per_sample: Bytes,
    /// What is needed at once of pages of 8 MiB, for small allocations.
    pub small_bytes: Bytes,
    /// What each sample adds to it.
    pub small_bytes_per_sample: Bytes,
    /// What each sample adds to all that is in no such pages.
    pub other_bytes_per_sample: Bytes,
}

impl InPages {
    /// What pages of small allocations take.
    pub const fn small_bytes(&self) -> Bytes {
        Bytes(self.small_pages * SMALL_PAGE)
    }

    /// What all other pages take.
    pub const fn large_bytes(&self) -> Bytes {
        Bytes(self.pages * self.page_bytes.0)
    }
}

impl Pages {
    /// The pages of steps with a micro-batch, where these figures are of the micro-batch `point`.
    pub fn at(&self, point: u64, batch: u64) -> InPages {
        self.with(Room::default(), point, batch)
    }

    /// Bytes that pools hold with a micro-batch beyond what they hold with that of the point; less than 0 where they hold less.
    pub fn more(&self, point: u64, batch: u64) -> f64 {
        self.more_with(Room::default(), point, batch)
    }

    /// The same where more is needed of pages than is known.
    pub(super) fn more_with(&self, room: Room, point: u64, batch: u64) -> f64 {
        let bytes = |pages: InPages| (pages.large_bytes() + pages.small_bytes()).0 as f64;
        let other = self.other_bytes_per_sample.0 as f64 * (batch as f64 - point as f64);
        bytes(self.with(room, point, batch)) - bytes(self.at(point, point)) + other
    }

    fn with(&self, room: Room, point: u64, batch: u64) -> InPages {
        let away = batch as f64 - point as f64;
        let along =
            |bytes: Bytes, each: Bytes| (bytes.0 as f64 + each.0 as f64 * away).clamp(0.0, Measured::LARGEST as f64);
        let largest = along(self.largest_bytes, self.largest_bytes_per_sample);
        let page = page(largest);
        let needed = along(self.needed_bytes, self.needed_bytes_per_sample) + room.needed;
        let small = along(self.small_bytes, self.small_bytes_per_sample) + room.small;
        InPages {
            small_pages: pages(small, SMALL_PAGE),
            pages: pages(needed, page),
            page_bytes: Bytes(page),
            largest_bytes: Bytes(largest as u64),
        }
    }
}

/// Bytes that may be needed beyond what is known, without a page more where pages were counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    needed: f64,
    small: f64,
}

/// The size of pages whose largest allocation has so many bytes.
fn page(largest: f64) -> u64 {
    if largest <= FIRST_PAGE as f64 {
        FIRST_PAGE
    } else {
        (largest as u64).saturating_add(SLACK).next_multiple_of(SLACK)
    }
}

/// How many pages hold so many bytes.
fn pages(bytes: f64, page: u64) -> u64 {
    (bytes / page as f64).ceil() as u64
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
