//! Contexts of the CUDA driver.
//!
//! If `CubeCL` cannot create a context, it panics on its own thread, and the caller never sees the reason. Retaining the
//! same context first returns the driver's error.

use std::convert::identity;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::CudaDevice;
use gpu_tuned_nvml::CudaError;

use super::OpenError;
use super::guard::catching_on_thread;

impl From<CudaError> for OpenError {
    fn from(error: CudaError) -> Self {
        match error {
            CudaError::Call { call, message } => Self::Driver { call, message },
            _ => Self::NoDriver,
        }
    }
}

/// Retains the device's primary context until it is dropped. Also returns the memory that is free with the context.
///
/// `CubeCL` uses the same context, so a retained one costs nothing extra.
pub(super) fn retain(device: &CudaDevice) -> Result<(Arc<CudaContext>, Bytes), OpenError> {
    let take = || {
        let context = CudaContext::new(device.index)?;
        let (free, _) = context.mem_get_info()?;
        Ok((context, Bytes(free as u64)))
    };
    // On a thread of its own, because it makes the context current: the caller's thread keeps the one it had.
    let taken = catching_on_thread(|| take().map_err(words)).and_then(identity);
    taken.map_err(|message| OpenError::Context { device: Box::new(device.clone()), message })
}

/// Memory that is free on a device that is open.
///
/// # Errors
///
/// See [`OpenError`]: the driver may refuse or lose the device.
pub fn memory_free(device: &CudaDevice) -> Result<Bytes, OpenError> {
    retain(device).map(|(_, free)| free)
}

fn words(error: DriverError) -> String {
    let text = error.error_string().ok().and_then(|text| text.to_str().ok()).unwrap_or("no description");
    format!("{:?} ({text})", error.0)
}
