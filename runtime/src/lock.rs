//! `gpu-tuned.lock` on disk: read whole, updated by one writer at a time, never half-written.

#[doc(inline)]
pub use gpu_tuned_project::lock::{Lock, LockError, LockFile, LockedWorkload, Update};
