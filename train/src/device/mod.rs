//! Burn's devices: the planned GPU found among CUDA's, opened without a panic, and probed for the precision of its fp32
//! products.
//!
//! Without feature `cuda` only the CPU is available: [`cuda_devices`] is empty and [`open`] returns an error.

mod open;
#[cfg(test)]
mod tests;
mod tf32;

use core::fmt;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::thread;

use burn::tensor::DeviceError;
use gpu_tuned_core::device::{GpuIdentity, GpuReading, PciAddress};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use gpu_tuned_core::device::CudaDevice;
#[cfg(feature = "cuda")]
pub use open::cuda::memory_free;
pub use open::{OpenGpu, cpu, cuda_devices, default_float, open};
#[cfg(feature = "cuda")]
pub use tf32::tf32_is_on;
pub use tf32::{Gemm, MatmulMath, MatmulProbe, ProbeError, probe, switch_tf32_off, tf32_is_off};

/// Why a device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum OpenError {
    /// The program is built without feature `cuda`.
    #[error("this program is built without CUDA: enable feature `cuda` of gpu-tuned")]
    WithoutCuda,
    /// The CUDA driver library is not on this machine.
    #[error("there is no CUDA driver on this machine")]
    NoDriver,
    /// The driver is there and refused to answer: most often a library and a kernel module of different versions, or
    /// a container without access to the device.
    #[error("the CUDA driver failed at {call}: {message}")]
    Driver { call: &'static str, message: String },
    /// CUDA does not show the wanted device.
    #[error("CUDA does not show {wanted}; it shows {}; is it hidden by CUDA_VISIBLE_DEVICES?", list(found))]
    NoSuchDevice { wanted: Place, found: Vec<CudaDevice> },
    /// More than one of CUDA's devices could be the wanted one.
    #[error("{wanted} could be any of {}", list(found))]
    Ambiguous { wanted: Place, found: Vec<CudaDevice> },
    /// NVIDIA's mathematics library, which Burn's kernels are linked with when they are compiled, is missing.
    #[error(
        "libdevice.10.bc is missing (looked for {}): install the CUDA toolkit with its `nvvm` part, and set CUDA_PATH \
         to the directory that holds `nvvm/libdevice/libdevice.10.bc`",
        paths(looked_in)
    )]
    LibdeviceMissing { looked_in: Vec<PathBuf> },
    /// The device has no context: its memory is full, or another process uses it exclusively.
    #[error("{device} gives no CUDA context: {message}")]
    Context { device: Box<CudaDevice>, message: String },
    /// The device was used before, or did not open without TF32.
    #[error("TF32 cannot be switched off on {device}: {message}; switch it off before anything uses a GPU")]
    Tf32 { device: Box<CudaDevice>, message: String },
    /// First computation on the device failed. Another attempt starts from the beginning.
    #[error("the first computation on {device} failed: {message}")]
    FirstTouch { device: Box<CudaDevice>, message: String },
    /// The device does not take the float type, or tensors of another one were made first.
    #[error("the default float type cannot be set")]
    FloatType(#[source] DeviceError),
}

fn list(devices: &[CudaDevice]) -> String {
    match devices {
        [] => "no device".to_owned(),
        _ => devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Selector of one of CUDA's devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Place {
    /// The only device that CUDA shows.
    Only,
    /// The device with this index of CUDA's, which is not NVML's.
    Index(usize),
    /// A device that NVML named.
    Nvml {
        /// The PCI address.
        pci_address: Option<PciAddress>,
        /// The UUID, as NVML spells it.
        uuid: Option<String>,
        /// True if NVML listed no other device. Without other information, the device then is CUDA's only one.
        alone: bool,
    },
}

impl Place {
    /// The place of a GPU by NVML's reading; `alone` if NVML lists no other.
    pub fn of(reading: &GpuReading, alone: bool) -> Self {
        Self::Nvml { pci_address: reading.pci_address, uuid: reading.uuid.clone(), alone }
    }

    /// Finds the device among `devices`. [`GpuIdentity::find`] joins GPUs of NVML and CUDA.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoSuchDevice`] if there is none, [`OpenError::Ambiguous`] if several could be meant.
    pub fn find<'a>(&self, devices: &'a [CudaDevice]) -> Result<&'a CudaDevice, OpenError> {
        let matches = match self {
            Self::Only => devices.iter().collect(),
            Self::Index(index) => devices.iter().filter(|device| device.index == *index).collect(),
            Self::Nvml { pci_address, uuid, alone } => {
                let identity = GpuIdentity { pci_address: *pci_address, uuid: uuid.as_deref(), name: None };
                identity.find(*alone, devices)
            }
        };
        match matches.as_slice() {
            [device] => Ok(device),
            [] => Err(OpenError::NoSuchDevice { wanted: self.clone(), found: devices.to_vec() }),
            several => {
                let found = several.iter().map(|device| (*device).clone()).collect();
                Err(OpenError::Ambiguous { wanted: self.clone(), found })
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("the only GPU"),
            Self::Index(index) => write!(f, "GPU {index} in CUDA's order"),
            Self::Nvml { pci_address: Some(address), .. } => write!(f, "the GPU at {address}"),
            Self::Nvml { uuid: Some(uuid), .. } => write!(f, "the GPU {uuid}"),
            Self::Nvml { .. } => f.write_str("a GPU without PCI address and UUID"),
        }
    }
}

/// Runs `step` and turns a panic into an error with the panic's message.
///
/// The panic hook still prints: the hook belongs to the whole process, and other threads may replace it at any time.
///
/// # Errors
///
/// The panic's message, or a sentence where the panic has no text.
pub fn catching<T>(step: impl FnOnce() -> T) -> Result<T, String> {
    // Values that `step` leaves half-built are dropped here or belong to Burn, which locks its own state.
    catch_unwind(AssertUnwindSafe(step))
        .map_err(|payload| panic_message(payload.as_ref()).unwrap_or("a panic without a message").to_owned())
}

/// Runs `step` as [`catching`] does, on a new thread.
///
/// # Errors
///
/// As those of [`catching`]; also where the system starts no thread.
pub fn catching_on_thread<T: Send>(step: impl FnOnce() -> T + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, || catching(step));
        let started = started.map_err(|error| format!("no thread could be started ({error})"))?;
        started.join().unwrap_or_else(|_| Err("its thread ended".to_owned()))
    })
}

/// Message of a panic, if it is text.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// Rayon's own variable for the size of its global pool.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Sizes the global pool, unless the user's environment sets its size, or the program has created the pool.
pub fn limit_cpu_threads(threads: u64) {
    if std::env::var_os(VARIABLE).is_some() {
        tracing::debug!("{VARIABLE} is set, so that {threads} planned threads are left alone");
        return;
    }
    let threads = usize::try_from(threads).unwrap_or(usize::MAX);
    if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        tracing::debug!("{threads} threads are planned, but the pool is there already: {error}");
    }
}
