//! An allocator that counts: what is live, what was live at most, and how many allocations of each size.
//!
//! With feature `counting-allocator` it is the program's allocator: the system's own, a few atomic operations slower.

#![allow(unsafe_code)]

pub mod log;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};

/// Smaller allocations are the graph's nodes, not tensors, and are not counted by size.
pub const SMALLEST_TENSOR_BYTES: usize = 1024;
const SLOTS: usize = 1 << 14;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
// An open hash table from sizes to numbers of live allocations; an entry is never removed.
static SIZES: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];
static COUNTS: [AtomicI64; SLOTS] = [const { AtomicI64::new(0) }; SLOTS];

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call is forwarded to the system's allocator unchanged; counting touches atomics only, never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc`.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            gained(layout.size());
            log::allocated(pointer, layout, false);
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract of `alloc_zeroed`.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            gained(layout.size());
            log::allocated(pointer, layout, true);
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        log::freed(pointer, layout.size());
        // SAFETY: the pointer came from `System` with this layout, as every allocation is forwarded to it.
        unsafe { System.dealloc(pointer, layout) };
        lost(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Before, since another thread may be given the memory as soon as it is left.
        log::freed(pointer, layout.size());
        // SAFETY: the pointer came from `System` with this layout, as every allocation is forwarded to it.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        if moved.is_null() {
            log::allocated(pointer, layout, false);
            return moved;
        }
        lost(layout.size());
        gained(new_size);
        // The caller upholds that the new size with this alignment is a layout.
        if let Ok(layout) = Layout::from_size_align(new_size, layout.align()) {
            log::allocated(moved, layout, false);
        }
        moved
    }
}

fn gained(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(live, Relaxed);
    count(bytes, 1);
}

fn lost(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
    count(bytes, -1);
}

fn count(bytes: usize, change: i64) {
    if bytes < SMALLEST_TENSOR_BYTES {
        return;
    }
    let start = bytes.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    for step in 0..SLOTS {
        let slot = (start + step) % SLOTS;
        let held = SIZES[slot].compare_exchange(0, bytes, Relaxed, Relaxed).unwrap_or_else(|held| held);
        if held == 0 || held == bytes {
            COUNTS[slot].fetch_add(change, Relaxed);
            return;
        }
    }
}

/// Bytes allocated now.
pub fn live_bytes() -> usize {
    LIVE.load(Relaxed)
}

/// Bytes allocated at most since [`restart_peak`].
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed)
}

/// Forgets the peak so far.
pub fn restart_peak() {
    PEAK.store(live_bytes(), Relaxed);
}

/// Live allocations of at least [`SMALLEST_TENSOR_BYTES`] by their size in bytes.
pub fn live_by_size() -> BTreeMap<usize, i64> {
    let counts = SIZES.iter().zip(&COUNTS).map(|(size, count)| (size.load(Relaxed), count.load(Relaxed)));
    counts.filter(|(_, count)| *count != 0).collect()
}
