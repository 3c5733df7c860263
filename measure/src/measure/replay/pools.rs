//! The memory pools that `CubeCL` 0.11 keeps on CUDA, with nothing behind them.
//!
//! A pool allocates from pages of one size, in the first gap that is large enough, in the order of page creation. Small
//! allocations have their own pool. All others come from pages as large as the largest allocation so far. A larger one
//! starts a new pool, and a page of the old pool returns to the driver once nothing on it is live. Parameters are
//! allocated outside the pools, and their memory is not released.

use std::collections::HashMap;

/// Alignment of slices in a page, and of rows of a tensor.
pub(super) const ALIGNMENT: u64 = 512;
const SMALL_SLICE: u64 = 64 * 1024;
const MIB: u64 = 1 << 20;
/// Page size of small allocations.
const SMALL_PAGE: u64 = 8 * MIB;
/// Page size of all other allocations, until one is larger.
const FIRST_PAGE: u64 = 2 * MIB;

/// All pools of a device.
pub(super) struct Pools {
    small: Pool,
    current: Pool,
    /// Pools with live pages that take no new allocations.
    outdated: Vec<Pool>,
    /// Slice of each live allocation.
    live: HashMap<usize, Slice>,
    largest_page: u64,
    next_pool: u64,
    persistent: u64,
    /// Bytes of live allocations.
    pub(super) in_use: u64,
}

/// An allocation is larger than the largest page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

struct Pool {
    id: u64,
    page_bytes: u64,
    pages: Vec<Page>,
    next_page: u64,
}

struct Page {
    id: u64,
    /// Offset and length of what is free, in order, no two adjacent.
    gaps: Vec<(u64, u64)>,
    live: u64,
}

#[derive(Clone, Copy)]
struct Slice {
    /// `None` for what is made outside the pools.
    allocation: Option<Allocation>,
    bytes: u64,
}

#[derive(Clone, Copy)]
struct Allocation {
    pool: u64,
    page: u64,
    offset: u64,
}

const SMALL: u64 = 0;

impl Pools {
    /// Empty pools of a device that allocates at most so many bytes at once.
    pub(super) fn new(largest_page: u64) -> Self {
        Self {
            small: Pool::new(SMALL, SMALL_PAGE),
            current: Pool::new(SMALL + 1, FIRST_PAGE),
            outdated: Vec::new(),
            live: HashMap::new(),
            largest_page: largest_page / ALIGNMENT * ALIGNMENT,
            next_pool: SMALL + 2,
            persistent: 0,
            in_use: 0,
        }
    }

    pub(super) fn allocate(&mut self, id: usize, bytes: u64) -> Result<(), TooLarge> {
        self.outdated.retain_mut(|pool| {
            pool.pages.retain(|page| page.live > 0);
            !pool.pages.is_empty()
        });
        let aligned = bytes.next_multiple_of(ALIGNMENT);
        let pool = if bytes <= SMALL_SLICE {
            &mut self.small
        } else {
            if aligned > self.current.page_bytes {
                self.grow(aligned)?;
            }
            &mut self.current
        };
        let allocation = Some(pool.allocate(aligned));
        self.hold(id, Slice { allocation, bytes });
        Ok(())
    }

    pub(super) fn allocate_persistent(&mut self, id: usize, bytes: u64) {
        self.persistent += bytes.next_multiple_of(ALIGNMENT);
        self.hold(id, Slice { allocation: None, bytes });
    }

    /// Frees what `id` got; nothing when it got nothing.
    pub(super) fn free(&mut self, id: usize) {
        let Some(Slice { allocation, bytes }) = self.live.remove(&id) else { return };
        self.in_use -= bytes;
        if let Some(allocation) = allocation {
            let pools = [&mut self.small, &mut self.current].into_iter().chain(&mut self.outdated);
            let pool =
                pools.into_iter().find(|pool| pool.id == allocation.pool).expect("BUG: pages with live slices stay");
            pool.free(allocation, bytes.next_multiple_of(ALIGNMENT));
        }
    }

    /// Bytes taken from the device.
    pub(super) fn reserved(&self) -> u64 {
        let pools = [&self.small, &self.current].into_iter().chain(&self.outdated);
        self.persistent + pools.map(|pool| pool.page_bytes * pool.pages.len() as u64).sum::<u64>()
    }

    fn hold(&mut self, id: usize, slice: Slice) {
        self.in_use += slice.bytes;
        self.live.insert(id, slice);
    }

    fn grow(&mut self, bytes: u64) -> Result<(), TooLarge> {
        if bytes > self.largest_page {
            return Err(TooLarge);
        }
        let page_bytes = page_for(bytes).min(self.largest_page);
        let grown = Pool::new(self.next_pool, page_bytes);
        self.next_pool += 1;
        self.outdated.push(std::mem::replace(&mut self.current, grown));
        Ok(())
    }
}

/// Page size whose largest allocation has so many bytes: a mebibyte of slack, rounded up to the mebibyte.
const fn page_for(largest: u64) -> u64 {
    if largest <= FIRST_PAGE { FIRST_PAGE } else { (largest + MIB).next_multiple_of(MIB) }
}

impl Pool {
    fn new(id: u64, page_bytes: u64) -> Self {
        Self { id, page_bytes, pages: Vec::new(), next_page: 0 }
    }

    fn allocate(&mut self, bytes: u64) -> Allocation {
        for page in &mut self.pages {
            if let Some(offset) = page.take(bytes) {
                return Allocation { pool: self.id, page: page.id, offset };
            }
        }
        let id = self.next_page;
        self.next_page += 1;
        self.pages.push(Page { id, gaps: vec![(bytes, self.page_bytes - bytes)], live: 1 });
        Allocation { pool: self.id, page: id, offset: 0 }
    }

    fn free(&mut self, allocation: Allocation, bytes: u64) {
        let page =
            self.pages.iter_mut().find(|page| page.id == allocation.page).expect("BUG: a page with a live slice stays");
        page.give_back(allocation.offset, bytes);
    }
}

impl Page {
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let gap = self.gaps.iter_mut().find(|(_, length)| *length >= bytes)?;
        let offset = gap.0;
        *gap = (gap.0 + bytes, gap.1 - bytes);
        self.gaps.retain(|(_, length)| *length > 0);
        self.live += 1;
        Some(offset)
    }

    fn give_back(&mut self, offset: u64, bytes: u64) {
        let next = self.gaps.partition_point(|gap| gap.0 < offset);
        self.gaps.insert(next, (offset, bytes));
        self.live -= 1;
        self.gaps.dedup_by(|gap, before| {
            let touches = before.0 + before.1 == gap.0;
            if touches {
                before.1 += gap.1;
            }
            touches
        });
    }
}
