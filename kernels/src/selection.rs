//! Kernels of the operations in this process.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use burn::tensor::Device;

use crate::cublaslt::CublasLt;
use crate::cudnn::Cudnn;
use crate::find::{self, NotFound};
#[cfg(feature = "cuda")]
use crate::operations::{planned_convolutions, planned_products};

mod check;

/// The library with or without TF32, or Burn's kernels.
static SELECTED: AtomicU8 = AtomicU8::new(BURN);
const BURN: u8 = 0;
const LIBRARY_F32: u8 = 1;
const LIBRARY_TF32: u8 = 2;

/// True once an operation that the library can compute was called on a CUDA device.
static WAS_CALLED: AtomicBool = AtomicBool::new(false);

/// cuDNN computes while the library is selected.
static HAS_CUDNN: AtomicBool = AtomicBool::new(false);

/// True if no operation may add in an order that changes.
static DETERMINISTIC: AtomicBool = AtomicBool::new(false);

static LIBRARY: OnceLock<CublasLt> = OnceLock::new();
/// `None` if there is no cuDNN.
static CUDNN: OnceLock<Option<Cudnn>> = OnceLock::new();
/// One check at a time: it counts the products that the library computes.
static CHECKING: Mutex<()> = Mutex::new(());

/// Returns `true` if the library computes the next operations on CUDA devices.
pub fn is_library_selected() -> bool {
    SELECTED.load(Ordering::Relaxed) != BURN
}

/// Returns `true` if this process has called an operation on a CUDA device that the library can compute, whatever kernels
/// were selected. The operations of [`select_library`]'s check do not count.
///
/// Programs without such operations take as long with both kernels.
pub fn was_library_operation_called() -> bool {
    WAS_CALLED.load(Ordering::Relaxed)
}

/// Remembers that an operation was called that the library can compute.
#[cfg(feature = "cuda")]
pub(crate) fn remember_call() {
    WAS_CALLED.store(true, Ordering::Relaxed);
}

/// Returns `true` if tensor cores may round the factors of f32 products by the library to 10 bits of fraction.
#[cfg(feature = "cuda")]
pub(crate) fn has_tf32() -> bool {
    SELECTED.load(Ordering::Relaxed) == LIBRARY_TF32
}

/// Leaves operations to Burn from now on whose kernels here add in an order that changes from run to run: gradients of
/// embeddings.
pub fn set_deterministic(is_deterministic: bool) {
    DETERMINISTIC.store(is_deterministic, Ordering::Relaxed);
}

/// Returns `true` after [`set_deterministic`].
pub fn is_deterministic() -> bool {
    DETERMINISTIC.load(Ordering::Relaxed)
}

/// The library, once it is loaded.
pub fn library() -> Option<&'static CublasLt> {
    LIBRARY.get()
}

/// Loads the library, unless it is loaded, and selects no kernels.
///
/// # Errors
///
/// When no file of the library is found, or none can be loaded.
pub fn load_library() -> Result<&'static CublasLt, NotFound> {
    match library() {
        Some(library) => Ok(library),
        None => find::cublaslt().map(|found| LIBRARY.get_or_init(|| found)),
    }
}

/// Returns `true` if cuDNN computes the next convolutions and batch norms on CUDA devices.
pub fn has_cudnn() -> bool {
    is_library_selected() && HAS_CUDNN.load(Ordering::Relaxed)
}

/// cuDNN, if it was found when the library was selected.
pub fn cudnn() -> Option<&'static Cudnn> {
    CUDNN.get().and_then(Option::as_ref)
}

/// Loads cuDNN at the first call.
pub(crate) fn load_cudnn() -> Option<&'static Cudnn> {
    let found = CUDNN.get_or_init(|| {
        find::cudnn()
            .inspect_err(|error| tracing::info!("Burn's kernels compute convolutions and batch norms: {error}"))
            .ok()
    });
    found.as_ref()
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
    SELECTED.store(BURN, Ordering::Relaxed);
}

/// Selects the library for all operations from now on, once small operations on the device had Burn's results. Convolutions and batch norms
/// stay Burn's where there is no cuDNN.
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
    let library = load_library()?;
    let _alone = CHECKING.lock().unwrap_or_else(PoisonError::into_inner);
    let tried = Tried::new(if tf32 { LIBRARY_TF32 } else { LIBRARY_F32 });
    let planned = planned_products();
    let checked = check::all(device).and_then(|()| {
        // A library for another driver or device has no algorithms: Burn's kernels would compute all, with right results.
        let is_used = planned_products() > planned;
        if is_used { Ok(()) } else { Err(("a product", "is not supported on this device".to_owned())) }
    });
    if let Err((operation, fault)) = checked {
        return Err(SelectError::Wrong { operation, path: library.path().display().to_string(), fault });
    }
    HAS_CUDNN.store(is_cudnn_right(device), Ordering::Relaxed);
    tried.keep();
    Ok(library)
}

/// Returns `true` if cuDNN is there, and its small operations on the device have Burn's results.
fn is_cudnn_right(device: &Device) -> bool {
    let Some(library) = load_cudnn() else { return false };
    HAS_CUDNN.store(true, Ordering::Relaxed);
    let planned = planned_convolutions();
    let checked = check::cudnn(device).and_then(|()| {
        let is_used = planned_convolutions() > planned;
        if is_used { Ok(()) } else { Err(("a convolution", "is not supported on this device".to_owned())) }
    });
    if let Err((operation, fault)) = &checked {
        tracing::warn!(
            "Burn's kernels compute convolutions and batch norms: {operation} by {} {fault}",
            library.path().display()
        );
    }
    checked.is_ok()
}

/// A selection that ends when it is dropped.
struct Tried {
    before: u8,
    was_called: bool,
}

impl Tried {
    fn new(selected: u8) -> Self {
        Self { before: SELECTED.swap(selected, Ordering::Relaxed), was_called: was_library_operation_called() }
    }

    fn keep(mut self) {
        self.before = SELECTED.load(Ordering::Relaxed);
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        SELECTED.store(self.before, Ordering::Relaxed);
        WAS_CALLED.store(self.was_called, Ordering::Relaxed);
    }
}

#[cfg(not(feature = "cuda"))]
fn planned_products() -> usize {
    0
}

#[cfg(not(feature = "cuda"))]
fn planned_convolutions() -> usize {
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
