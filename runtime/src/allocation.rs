//! Allocator that counts live bytes, their peak, and live allocations by size.
//!
//! With feature `counting-allocator` it is the program's allocator: the system's own with a few atomic operations more.

#[doc(inline)]
pub use gpu_tuned_train::allocation::{SMALLEST_TENSOR_BYTES, live_by_size, live_bytes, peak_bytes, restart_peak};
