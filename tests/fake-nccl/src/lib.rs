//! A library that exports the C functions of NVIDIA's NCCL which `gpu-tuned-kernels` loads. Processes of one host sum
//! host memory over sockets.
//!
//! The crate builds two libraries from one source, like the fake cuDNN. `libfake_nccl.so` replaces `libnccl.so.2`; the
//! Rust library installs copies of it into a folder: see [`Fake`].
//!
//! - Communicators do not block: joins and sums run in a thread, and are in progress until all ranks take part.
//! - A sum waits without end for a rank that was lost, as on a GPU. A loss of the first rank, which adds, is a remote error.
//! - A call while another one is in progress, an unknown type, and a configuration that blocks are refused.

mod exports;
mod root;

use std::ops::Deref;

use fake_library::Installed;

/// Environment variable with a file that gets a line for each sum that this process begins: its bytes.
pub const SUMS_VARIABLE: &str = "FAKE_NCCL_SUMS";

/// Name of an installed copy.
pub const NAME: &str = "libnccl.so.2";

/// A copy of the library. [`Installed`] has its folder and file.
pub struct Fake(Installed);

impl Fake {
    /// Installs a copy.
    ///
    /// # Panics
    ///
    /// If the library is missing or the temporary folder cannot be written.
    pub fn new() -> Self {
        Self(Installed::new("fake_nccl", NAME))
    }

    /// Lets a function of the copy fail in this process, breaks its connections, or reports another version:
    /// `ncclAllReduce`, `connection`, `version=21000`. It lasts while the copy is loaded: load it before.
    ///
    /// # Panics
    ///
    /// If the copy cannot be loaded.
    pub fn behave(&self, fault: &str) {
        self.0.behave(fault);
    }
}

impl Deref for Fake {
    type Target = Installed;

    fn deref(&self) -> &Installed {
        &self.0
    }
}

impl Default for Fake {
    fn default() -> Self {
        Self::new()
    }
}
