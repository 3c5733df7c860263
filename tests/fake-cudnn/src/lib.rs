//! A library that exports the C functions of NVIDIA's cuDNN which `gpu-tuned-kernels` loads. Convolutions, batch
//! norms, recurrent layers, graphs of attention and all gradients are computed on host memory.
//!
//! The crate builds two libraries from one source, like the fake cuBLASLt. `libfake_cudnn.so` replaces `libcudnn.so.9`;
//! the Rust library installs copies of it into a folder: see [`Fake`].
//!
//! - Types are f32 and bf16, sums are f32. With TF32, factors are rounded to 10 bits of fraction.
//! - Unknown objects, shapes that do not match, null pointers and missing workspace are refused. Each refusal of such a call
//!   counts as a mistake.
//! - The algorithm needs [`WORKSPACE_BYTES`] of workspace, and overwrites them.

mod behaviour;
mod exports;
mod graph;
mod norm;
mod objects;
mod passes;
mod recurrent;

use std::ops::Deref;

use fake_library::Installed;

pub use behaviour::{Behaviour, VARIABLE};
pub use fake_library::Counts;
pub use objects::WORKSPACE_BYTES;

/// Name of an installed copy.
pub const NAME: &str = "libcudnn.so.9";

/// A copy of the library. [`Installed`] has its folder and file and what it counts.
pub struct Fake(Installed);

impl Fake {
    /// Installs a copy.
    ///
    /// # Panics
    ///
    /// If the library is missing or the temporary folder cannot be written.
    pub fn new() -> Self {
        Self(Installed::new("fake_cudnn", NAME))
    }

    /// Installs a copy that does not export a function.
    ///
    /// # Panics
    ///
    /// If the library has no such function.
    pub fn without(function: &str) -> Self {
        Self(Installed::without("fake_cudnn", NAME, function))
    }

    /// Changes the behaviour of the copy in this process, as [`Installed::behave`].
    ///
    /// # Panics
    ///
    /// If the copy cannot be loaded.
    pub fn behave(&self, behaviour: &Behaviour) {
        self.0.behave(&behaviour.to_string());
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
