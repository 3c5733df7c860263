//! Log of a thread's allocations and frees, in order.

use std::alloc::Layout;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::SMALLEST_TENSOR_BYTES;

/// The most events that are kept: three optimizer steps of a network of a hundred layers take a tenth.
const MOST_EVENTS: usize = 1 << 20;

// Two words an event: an address or a number, and what happened to it. Set once, before the first event, so that logging
// never allocates.
static EVENTS: OnceLock<Box<[[AtomicU64; 2]]>> = OnceLock::new();
static NEXT: AtomicUsize = AtomicUsize::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);
// Locked by the recording thread.
static WATCHING: Mutex<()> = Mutex::new(());

thread_local! {
    // Without a destructor and with a constant at first, so that no access to it allocates.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Something that happened while a thread was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The watched thread allocated.
    Allocated {
        /// Where.
        address: u64,
        /// How much.
        bytes: u64,
        /// Aligned to so many bytes.
        align: u64,
        /// True if the memory was requested zeroed.
        zeroed: bool,
    },
    /// Any thread freed.
    Freed {
        /// Where.
        address: u64,
    },
    /// Position in the program, set by the thread.
    Marked(u64),
}

const FREED: u64 = 0;
const MARKED: u64 = 1;
const ALLOCATED: u64 = 2;
const ZEROED: u64 = 3;

impl Event {
    fn from_words([word, what]: [u64; 2]) -> Self {
        match what & 3 {
            FREED => Self::Freed { address: word },
            MARKED => Self::Marked(word),
            kind => Self::Allocated {
                address: word,
                bytes: what >> 8,
                align: 1 << (what >> 2 & 63),
                zeroed: kind == ZEROED,
            },
        }
    }
}

/// Watches this thread while `run` runs, once no other is; `None` when more happened than is kept.
pub fn watched(run: impl FnOnce()) -> Option<Vec<Event>> {
    let _alone = WATCHING.lock().unwrap_or_else(PoisonError::into_inner);
    let events = EVENTS.get_or_init(|| (0..MOST_EVENTS).map(|_| [const { AtomicU64::new(0) }; 2]).collect());
    let watch = Watch::start();
    run();
    drop(watch);
    let logged = events.get(..NEXT.load(Relaxed))?;
    Some(logged.iter().map(|words| Event::from_words([words[0].load(Relaxed), words[1].load(Relaxed)])).collect())
}

// Ends when `run` panics as well.
struct Watch;

impl Watch {
    fn start() -> Self {
        NEXT.store(0, Relaxed);
        WATCHED.set(true);
        IS_ON.store(true, Relaxed);
        Self
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        IS_ON.store(false, Relaxed);
        WATCHED.set(false);
    }
}

/// Notes in the log where the watched thread is.
pub fn mark(number: u64) {
    if WATCHED.get() {
        push([number, MARKED]);
    }
}

pub(super) fn allocated(pointer: *mut u8, layout: Layout, zeroed: bool) {
    // A thread that is being torn down is not the one that is watched.
    if is_logged(layout.size()) && WATCHED.try_with(Cell::get).unwrap_or(false) {
        let align = u64::from(layout.align().trailing_zeros());
        let kind = if zeroed { ZEROED } else { ALLOCATED };
        push([pointer.addr() as u64, (layout.size() as u64) << 8 | align << 2 | kind]);
    }
}

// Comes before the memory is given back, since another thread may take it at once.
pub(super) fn freed(pointer: *mut u8, bytes: usize) {
    if is_logged(bytes) {
        push([pointer.addr() as u64, FREED]);
    }
}

fn is_logged(bytes: usize) -> bool {
    bytes >= SMALLEST_TENSOR_BYTES && IS_ON.load(Relaxed)
}

fn push(words: [u64; 2]) {
    let index = NEXT.fetch_add(1, Relaxed);
    if let Some(event) = EVENTS.get().and_then(|events| events.get(index)) {
        event[0].store(words[0], Relaxed);
        event[1].store(words[1], Relaxed);
    }
}
