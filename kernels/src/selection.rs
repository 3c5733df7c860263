//! Which kernels compute products in this process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::cublaslt::CublasLt;

const BURN: u8 = 0;
const LIBRARY: u8 = 1;
const LIBRARY_TF32: u8 = 2;

static SELECTED: AtomicU8 = AtomicU8::new(BURN);
static LIBRARIES: OnceLock<&'static CublasLt> = OnceLock::new();

/// Kernels that compute products on CUDA devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Burn's own.
    #[default]
    Burn,
    /// NVIDIA's cuBLASLt.
    Library {
        /// Tensor cores may round the factors of f32 products to 10 bits of fraction.
        tf32: bool,
    },
}

/// Kernels of the modules' next products.
pub fn selected() -> Kernels {
    match SELECTED.load(Ordering::Relaxed) {
        LIBRARY => Kernels::Library { tf32: false },
        LIBRARY_TF32 => Kernels::Library { tf32: true },
        _ => Kernels::Burn,
    }
}

/// Selects kernels for all products that modules compute from now on. Backward passes use the kernels of their forward
/// passes.
///
/// # Errors
///
/// When cuBLASLt is not found; Burn's kernels stay selected.
pub fn select(kernels: Kernels) -> Result<(), crate::find::NotFound> {
    if let Kernels::Library { .. } = kernels
        && LIBRARIES.get().is_none()
    {
        let library = crate::find::cublaslt()?;
        LIBRARIES.get_or_init(|| Box::leak(Box::new(library)));
    }
    let number = match kernels {
        Kernels::Burn => BURN,
        Kernels::Library { tf32: false } => LIBRARY,
        Kernels::Library { tf32: true } => LIBRARY_TF32,
    };
    SELECTED.store(number, Ordering::Relaxed);
    Ok(())
}

/// The library, once it is loaded.
pub fn library() -> Option<&'static CublasLt> {
    LIBRARIES.get().copied()
}
