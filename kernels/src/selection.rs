//! Kernels of the operations in this process.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use burn::tensor::Device;

use crate::cublaslt::CublasLt;
use crate::find::{self, NotFound};
#[cfg(feature = "cuda")]
use crate::operations::planned_products;

mod check;

/// Kernels of operations on CUDA devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernels {
    /// Burn's own.
    #[default]
    Burn,
    /// NVIDIA's cuBLASLt for products, and one kernel each for norms and losses.
    Library {
        /// Tensor cores may round the factors of f32 products to 10 bits of fraction.
        tf32: bool,
    },
}

impl Kernels {
    const ALL: [Self; 3] = [Self::Burn, Self::Library { tf32: false }, Self::Library { tf32: true }];
}

/// Position in [`Kernels::ALL`].
static SELECTED: AtomicU8 = AtomicU8::new(0);
static LIBRARY: OnceLock<CublasLt> = OnceLock::new();

/// Kernels of the next operations.
pub fn selected() -> Kernels {
    Kernels::ALL[usize::from(SELECTED.load(Ordering::Relaxed))]
}

/// The library, once it is loaded.
pub fn library() -> Option<&'static CublasLt> {
    LIBRARY.get()
}

/// Reason why the library is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The program was built without CUDA, or the device is another one.
    #[error("{device} is no CUDA device")]
    NoCuda {
        /// The device.
        device: String,
    },
    /// No file of the library can be loaded.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// An operation failed or has another result than Burn's.
    #[error("{operation} by {path} {fault}")]
    Wrong {
        /// The operation that was tried.
        operation: &'static str,
        /// The library's file.
        path: String,
        /// What happened.
        fault: String,
    },
}

/// Selects Burn's kernels for all operations from now on. Backward passes use the kernels of their forward passes.
pub fn select_burn() {
    SELECTED.store(0, Ordering::Relaxed);
}

/// Selects the library for all operations from now on, once small operations on the device had Burn's results.
///
/// `tf32` lets tensor cores round the factors of f32 products.
///
/// # Errors
///
/// When the device is no CUDA device, no library is found, the library does not support the device, or a result differs;
/// the selection stays as it was.
pub fn select_library(device: &Device, tf32: bool) -> Result<&'static CublasLt, SelectError> {
    if !is_cuda(device) {
        return Err(SelectError::NoCuda { device: format!("{device:?}") });
    }
    if LIBRARY.get().is_none() {
        let found = find::cublaslt()?;
        LIBRARY.get_or_init(|| found);
    }
    let library = LIBRARY.get().expect("BUG: initialised above");
    // One check at a time: it counts the products that the library computes.
    static CHECKING: Mutex<()> = Mutex::new(());
    let _alone = CHECKING.lock().unwrap_or_else(PoisonError::into_inner);
    let tried = Tried::new(Kernels::Library { tf32 });
    let planned = planned_products();
    let checked = check::all(device).and_then(|()| {
        // A library for another driver or device has no algorithms: Burn's kernels would compute all, with right results.
        let is_used = planned_products() > planned;
        if is_used { Ok(()) } else { Err(("a product", "is not supported on this device".to_owned())) }
    });
    if let Err((operation, fault)) = checked {
        return Err(SelectError::Wrong { operation, path: library.path().display().to_string(), fault });
    }
    tried.keep();
    Ok(library)
}

/// A selection that ends when it is dropped.
struct Tried {
    before: u8,
}

impl Tried {
    fn new(kernels: Kernels) -> Self {
        let position = Kernels::ALL.iter().position(|other| *other == kernels).expect("BUG: all are listed");
        Self { before: SELECTED.swap(position as u8, Ordering::Relaxed) }
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        SELECTED.store(self.before, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "cuda"))]
fn planned_products() -> usize {
    0
}

#[cfg(not(feature = "cuda"))]
pub(crate) fn is_cuda(_device: &Device) -> bool {
    false
}

#[cfg(feature = "cuda")]
pub(crate) fn is_cuda(device: &Device) -> bool {
    use burn::backend::DispatchDevice;

    let dispatch = device.as_dispatch();
    // Of the GPUs' runtimes, this crate builds CUDA's only; the CPU has Burn's other backend.
    matches!(dispatch, DispatchDevice::Cube(_))
        || matches!(dispatch, DispatchDevice::Autodiff(_)) && is_cuda(&device.clone().inner())
}
