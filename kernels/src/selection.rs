//! Kernels of the operations in this process.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use burn::tensor::{DType, Device};

use crate::attention::OLDEST_CUDNN;
use crate::cublaslt::CublasLt;
use crate::cudnn::Cudnn;
use crate::find::{self, NotFound};
#[cfg(feature = "cuda")]
use crate::operations::{cudnn_calls, planned_products, take_cudnn_reasons};

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
/// Bits of the kinds that cuDNN does not compute, by precision.
static REFUSED: AtomicU32 = AtomicU32::new(0);
/// Reasons of the refusals, a line each.
static FAULTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// True if no operation may add in an order that changes.
static DETERMINISTIC: AtomicBool = AtomicBool::new(false);

static LIBRARY: OnceLock<CublasLt> = OnceLock::new();
static CUDNN: OnceLock<Result<Cudnn, NotFound>> = OnceLock::new();
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
/// embeddings, attention in one kernel, and convolutions without a deterministic algorithm of cuDNN. cuDNN computes recurrent layers
/// only if the variable `CUBLAS_WORKSPACE_CONFIG` is set.
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

/// Kind of cuDNN's operations that is checked by itself. An operation may be of several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Convolution,
    BiasGradient,
    /// Padded rows, which are read without a copy.
    Gaps,
    ChannelsLast,
    Groups,
    Transposed,
    BatchNorm,
    BatchNormChannelsLast,
    GroupNorm,
    Lstm,
    Gru,
    Attention,
}

impl Kind {
    /// Returns `true` if the last check refused the kind in this precision. That of bf16 is that of f16, too.
    pub(crate) fn is_refused(self, dtype: DType) -> bool {
        REFUSED.load(Ordering::Relaxed) & self.bit(dtype) != 0
    }

    /// Returns `true` if cuDNN may compute the kind in this precision.
    fn is_checked(self, dtype: DType, cudnn: usize) -> bool {
        self != Self::Attention || dtype != DType::F32 && cudnn >= OLDEST_CUDNN
    }

    fn refuse(self, dtype: DType) {
        REFUSED.fetch_or(self.bit(dtype), Ordering::Relaxed);
    }

    fn bit(self, dtype: DType) -> u32 {
        1 << (2 * self as u32 + u32::from(dtype != DType::F32))
    }
}

/// Returns the kinds of operations that the last check refused, with the reason: a line for each reason. Burn's kernels compute
/// them.
pub fn cudnn_faults() -> Vec<String> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Calls of cuDNN by this process, and passes without it.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct CudnnUse {
    /// Calls of cuDNN.
    pub calls: usize,
    /// Passes that cuDNN was to compute, and Burn did.
    pub left_to_burn: usize,
    /// Reasons of cuDNN for those, since the last reading.
    pub reasons: Vec<String>,
}

/// Counts calls of cuDNN, and passes without it, for tests on a GPU.
#[doc(hidden)]
pub fn cudnn_use() -> CudnnUse {
    let [calls, left_to_burn] = cudnn_calls();
    CudnnUse { calls, left_to_burn, reasons: take_cudnn_reasons() }
}

/// Returns `true` if cuDNN computes the next convolutions and batch norms on CUDA devices, but for those of [`cudnn_faults`].
pub fn has_cudnn() -> bool {
    is_library_selected() && HAS_CUDNN.load(Ordering::Relaxed)
}

/// cuDNN, if it was found when the library was selected.
pub fn cudnn() -> Option<&'static Cudnn> {
    CUDNN.get()?.as_ref().ok()
}

/// Loads cuDNN at the first call.
pub(crate) fn load_cudnn() -> Result<&'static Cudnn, &'static NotFound> {
    let found = CUDNN.get_or_init(|| {
        find::cudnn(library()).inspect_err(|error| {
            tracing::info!("Burn's kernels compute convolutions, batch norms and recurrent layers: {error}");
        })
    });
    found.as_ref()
}

/// Returns why there is no cuDNN, for tests on a GPU.
#[doc(hidden)]
pub fn why_no_cudnn() -> Option<&'static NotFound> {
    CUDNN.get()?.as_ref().err()
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
    #[error("{operation} in {precision} by {path} {fault}")]
    Wrong {
        /// The operation that was tried.
        operation: &'static str,
        /// Type of its numbers.
        precision: &'static str,
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

/// Selects the library for all operations from now on, once small operations on the device had Burn's results. Convolutions and
/// batch norms stay Burn's where there is no cuDNN, and where its results are others: see [`cudnn_faults`].
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
        if is_used { Ok(()) } else { Err(("a product", "f32", "is not supported on this device".to_owned())) }
    });
    if let Err((operation, precision, fault)) = checked {
        return Err(SelectError::Wrong { operation, precision, path: library.path().display().to_string(), fault });
    }
    check_cudnn(device);
    tried.keep();
    Ok(library)
}

/// [`select_library`] without comparisons with Burn's results: to find out what is wrong with them.
///
/// # Errors
///
/// When the device is no CUDA device, or no library is found.
#[doc(hidden)]
pub fn select_library_unchecked(device: &Device, tf32: bool) -> Result<(), SelectError> {
    if !is_cuda(device) {
        return Err(SelectError::NoCuda { device: format!("{device:?}") });
    }
    load_library()?;
    let _alone = CHECKING.lock().unwrap_or_else(PoisonError::into_inner);
    allow_cudnn(load_cudnn().is_ok());
    SELECTED.store(if tf32 { LIBRARY_TF32 } else { LIBRARY_F32 }, Ordering::Relaxed);
    Ok(())
}

/// Allows all kinds of operations, or none.
fn allow_cudnn(is_found: bool) {
    HAS_CUDNN.store(is_found, Ordering::Relaxed);
    REFUSED.store(0, Ordering::Relaxed);
    set_faults(Vec::new());
}

fn set_faults(faults: Vec<String>) {
    *FAULTS.lock().unwrap_or_else(PoisonError::into_inner) = faults;
}

/// Refuses the kinds of cuDNN's operations that fail, or have other results than Burn's. A kind that was refused is not used in the
/// checks of later kinds.
pub(crate) fn check_cudnn(device: &Device) {
    let found = load_cudnn();
    allow_cudnn(found.is_ok());
    let library = match found {
        Ok(library) => library,
        Err(error) => {
            // Files that cannot be used. Without files, nobody expects cuDNN.
            let failures: Vec<_> = error.failures().map(ToString::to_string).collect();
            if !failures.is_empty() {
                set_faults(vec![format!(
                    "convolutions, batch norms and recurrent layers, because {}",
                    failures.join("; ")
                )]);
            }
            return;
        }
    };
    take_cudnn_reasons();
    // By their reason, which is often the same.
    let mut faults: Vec<(String, Vec<String>)> = Vec::new();
    for (kind, name, operation) in check::OF_CUDNN {
        for float in check::FLOATS.into_iter().filter(|float| kind.is_checked((*float).into(), library.version())) {
            let calls = cudnn_calls()[0];
            let checked = check::compared(device, operation, float, check::OF_CONVOLUTIONS).and_then(|()| {
                // Burn's kernels computed it, with the right result.
                let is_used = cudnn_calls()[0] > calls;
                if is_used { Ok(()) } else { Err("is left to Burn's kernels".to_owned()) }
            });
            let reasons = take_cudnn_reasons();
            let Err(fault) = checked else { continue };
            kind.refuse(float.into());
            let fault = [vec![fault], reasons].concat().join("; ");
            let operation = format!("{name} in {}", check::precision(float));
            match faults.iter_mut().find(|(known, _)| *known == fault) {
                Some((_, operations)) => operations.push(operation),
                None => faults.push((fault, vec![operation])),
            }
        }
    }
    let path = library.path().display();
    let lines = faults.into_iter().map(|(fault, operations)| format!("{} by {path} {fault}", operations.join(", ")));
    set_faults(lines.collect());
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
fn cudnn_calls() -> [usize; 2] {
    [0; 2]
}

#[cfg(not(feature = "cuda"))]
fn take_cudnn_reasons() -> Vec<String> {
    Vec::new()
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
