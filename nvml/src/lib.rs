//! Reads the GPUs of a machine through NVIDIA's management library (NVML), also with a broken driver.
//!
//! [`read`] returns every field that the driver reports, and never panics. An unavailable field is `None`. An
//! unusable GPU is listed as [`GpuTrouble`] and does not hide the others. Without a driver, [`DriverError`] gives the
//! reason and the remedy.

#![deny(unsafe_code)]

mod cuda;
mod error;
mod gauge;
mod gpu;
mod library;
mod limit;

#[allow(unsafe_code, reason = "calls that nvml-wrapper does not wrap")]
mod raw;
mod telemetry;
mod unified;
mod visible;

use std::path::Path;

use gpu_tuned_core::device::{GpuIdentity, GpuReading};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use limit::{FIRST_CALLS, within};

pub use cuda::{CudaError, add_cuda_figures, cuda_devices};
pub use error::{DriverError, GpuTrouble, Trouble};
pub use gauge::{Gauge, GaugeError, Load};
pub use limit::{Limited, SAMPLE_LIMIT};
pub use telemetry::{Telemetry, WatchedGpu};
pub use visible::{CudaEnvironment, VisibleGpus};

/// The environment variable with the path of the management library, for machines with the library in an unusual
/// location.
pub const LIBRARY_VARIABLE: &str = "GPU_TUNED_NVML_PATH";

/// A reading of all GPUs of the machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverReading {
    /// The driver's version, such as `570.86.15`.
    pub driver_version: Option<String>,
    /// The GPUs in NVML's order. A GPU with MIG enabled is replaced by its slices, which share its index.
    pub gpus: Vec<GpuReading>,
    /// The GPUs that are present but cannot be used.
    pub trouble: Vec<GpuTrouble>,
}

/// Reads all GPUs.
///
/// The management library is `library`, else the path in [`LIBRARY_VARIABLE`], else the first one found in the usual
/// locations. The CUDA driver completes a GPU for which NVML leaves figures out. A machine with a working driver and no GPU
/// gives an empty reading.
///
/// # Errors
///
/// [`DriverError`] if the library is missing, fails to start, or does not answer for a minute.
pub fn read(library: Option<&Path>) -> Result<DriverReading, DriverError> {
    let library = library.map(Path::to_owned);
    within(FIRST_CALLS, move || read_now(library.as_deref())).unwrap_or(Err(DriverError::Silent))
}

fn read_now(library: Option<&Path>) -> Result<DriverReading, DriverError> {
    let nvml = library::open(library)?;
    let (units, trouble) = read_all(&nvml)?;
    let mut gpus: Vec<GpuReading> = units.into_iter().map(|unit| unit.reading).collect();
    cuda::complete_lacking(&mut gpus);
    Ok(DriverReading {
        driver_version: nvml.sys_driver_version().ok().filter(|version| !version.is_empty()),
        gpus,
        trouble,
    })
}

/// A GPU or a MIG slice.
struct Unit {
    /// Slot of a slice.
    slot: Option<u32>,
    reading: GpuReading,
}

impl<'a> From<&'a Unit> for GpuIdentity<'a> {
    fn from(unit: &'a Unit) -> Self {
        Self::from(&unit.reading)
    }
}

/// Reads all GPUs, each as one unit or as its MIG slices, and reasons why others cannot be read.
fn read_all(nvml: &Nvml) -> Result<(Vec<Unit>, Vec<GpuTrouble>), DriverError> {
    let count = nvml.device_count().map_err(|error| DriverError::from_call("counting the GPUs", &error))?;
    let (mut units, mut trouble) = (Vec::new(), Vec::new());
    for index in 0..count {
        let device = nvml.device_by_index(index);
        // Some drivers report a higher count than they have GPUs; no later index exists either.
        let is_last = matches!(device, Err(NvmlError::InvalidArg));
        match device.map_err(|error| Trouble::from_nvml(&error)).and_then(|device| read_gpu(&device, index)) {
            Ok(of_gpu) => units.extend(of_gpu),
            Err(what) => trouble.push(GpuTrouble { index, what }),
        }
        if is_last {
            break;
        }
    }
    Ok((units, trouble))
}

/// Reads the GPU as one unit, or as its MIG slices.
fn read_gpu(device: &Device<'_>, index: u32) -> Result<Vec<Unit>, Trouble> {
    let whole = gpu::read(device, index)?;
    if !gpu::is_mig_enabled(device)? {
        return Ok(vec![Unit { slot: None, reading: whole }]);
    }
    let slices = gpu::read_slices(device, &whole)?;
    if slices.is_empty() {
        return Err(Trouble::NoMigSlice);
    }
    Ok(slices.into_iter().map(|(slot, reading)| Unit { slot: Some(slot), reading }).collect())
}
