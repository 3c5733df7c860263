//! The driver's management library (NVML): found, started, and read within time limits.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use gpu_tuned_core::device::{GpuIdentity, GpuReading};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use thiserror::Error;

use crate::{cuda, gpu};

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
    let nvml = open_library(library)?;
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
pub(crate) struct Unit {
    /// Slot of a slice.
    pub(crate) slot: Option<u32>,
    pub(crate) reading: GpuReading,
}

impl<'a> From<&'a Unit> for GpuIdentity<'a> {
    fn from(unit: &'a Unit) -> Self {
        Self::from(&unit.reading)
    }
}

/// Reads all GPUs, each as one unit or as its MIG slices, and reasons why others cannot be read.
pub(crate) fn read_all(nvml: &Nvml) -> Result<(Vec<Unit>, Vec<GpuTrouble>), DriverError> {
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

/// Locations outside the system's search path: WSL2, NixOS.
const EXTRA_PATHS: [&str; 2] = ["/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1"];

/// File name for the system's own search, as in nvml-wrapper.
const SYSTEM_NAME: &str = if cfg!(target_os = "linux") { "libnvidia-ml.so.1" } else { "nvml.dll" };

/// Opens and starts the library.
pub(crate) fn open_library(library: Option<&Path>) -> Result<Nvml, DriverError> {
    let candidates = candidates(library, std::env::var_os(LIBRARY_VARIABLE).as_deref());
    let mut reason = None;
    for path in &candidates {
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => return check_shutdown(nvml, path),
            Err(NvmlError::LibloadingError(error)) => {
                reason.get_or_insert_with(|| error.to_string());
            }
            Err(NvmlError::FailedToLoadSymbol(reason)) => {
                return Err(DriverError::NotNvml { library: path.clone(), reason });
            }
            Err(error) => return Err(DriverError::from_init(&error)),
        }
    }
    Err(DriverError::NoLibrary { tried: candidates, reason: reason.unwrap_or_default() })
}

/// A path from the caller or the environment is the only candidate: falling back to another library would be a
/// surprise.
fn candidates(library: Option<&Path>, variable: Option<&OsStr>) -> Vec<PathBuf> {
    let named = library.map(Path::to_owned).or_else(|| variable.filter(|path| !path.is_empty()).map(PathBuf::from));
    match named {
        Some(path) => vec![path],
        None => [SYSTEM_NAME].into_iter().chain(EXTRA_PATHS).map(PathBuf::from).collect(),
    }
}

/// Rejects a library without `nvmlShutdown`, because nvml-wrapper panics when it drops one.
fn check_shutdown(nvml: Nvml, path: &Path) -> Result<Nvml, DriverError> {
    let Err(error) = &nvml.lib().nvmlShutdown else { return Ok(nvml) };
    let error = DriverError::NotNvml { library: path.to_owned(), reason: error.to_string() };
    std::mem::forget(nvml);
    Err(error)
}

/// Time limit of the first calls, in which the driver may have to start.
pub(crate) const FIRST_CALLS: Duration = Duration::from_mins(1);

/// Time limit of a sample.
pub const SAMPLE_LIMIT: Duration = Duration::from_secs(10);

/// A handle whose calls run on threads of their own, with a time limit.
#[derive(Debug)]
pub struct Limited<T, R> {
    idle: Option<T>,
    /// Receives the handle and the result of the call in progress.
    busy: Option<Receiver<(T, R)>>,
}

impl<T: Send + 'static, R: Send + 'static> Limited<T, R> {
    /// A handle that is not in use.
    pub const fn new(handle: T) -> Self {
        Self { idle: Some(handle), busy: None }
    }

    /// Calls `work`, and waits for its result. Returns `None` after `limit`; the next call waits for the same result again.
    /// After a panic of `work`, all calls return `None`.
    pub fn call(&mut self, limit: Duration, work: impl FnOnce(&mut T) -> R + Send + 'static) -> Option<R> {
        if let Some(mut handle) = self.idle.take() {
            let (sender, receiver) = channel();
            let call = move || {
                let result = work(&mut handle);
                // Nobody waits for a result that is too late.
                let _ = sender.send((handle, result));
            };
            self.busy = Some(receiver);
            thread::Builder::new().name("gpu-tuned-driver".to_owned()).spawn(call).ok()?;
        }
        let (handle, result) = self.busy.as_ref()?.recv_timeout(limit).ok()?;
        (self.idle, self.busy) = (Some(handle), None);
        Some(result)
    }
}

/// Calls `work` on a thread of its own. Returns `None` if it takes longer than `limit`.
pub(crate) fn within<R: Send + 'static>(limit: Duration, work: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    Limited::new(()).call(limit, |()| work())
}

/// Failures of the driver itself, before any GPU can be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// No file was found in any of the searched locations.
    #[error(
        "no NVIDIA management library found: tried {}; install the NVIDIA driver, or set {LIBRARY_VARIABLE} to the \
         path of libnvidia-ml.so.1{}",
        quoted_list(tried),
        detail(reason)
    )]
    NoLibrary {
        /// The searched paths, in order.
        tried: Vec<PathBuf>,
        /// The system's error for the first path.
        reason: String,
    },
    /// The file is a library, but no usable management library.
    #[error(
        "`{}` is not a usable NVIDIA management library ({reason}); check {LIBRARY_VARIABLE}",
        library.display()
    )]
    NotNvml {
        /// The file that was opened.
        library: PathBuf,
        /// The missing symbol.
        reason: String,
    },
    /// The library and the kernel module have different driver versions.
    #[error(
        "the NVIDIA library and the kernel module are of different versions; reboot, or reload the module, after a \
         driver update; in a container, use the host's library"
    )]
    LibraryMismatch,
    /// The library is installed, but the kernel module is not loaded.
    #[error(
        "the NVIDIA kernel module is not loaded; load it (`modprobe nvidia`) or reboot after installing the driver"
    )]
    DriverNotLoaded,
    /// The user has no permission to access the driver.
    #[error("no permission to talk to the NVIDIA driver; check the access rights of /dev/nvidia*")]
    NoPermission,
    /// The driver failed to start and gave no reason.
    #[error(
        "the NVIDIA driver failed to start for an unknown reason; in a container this usually means that it lost its \
         cgroup access to the GPUs: restart the container"
    )]
    UnknownAtInit,
    /// The driver has not answered for a minute.
    #[error(
        "the NVIDIA driver has not answered for a minute; see whether `nvidia-smi` works; if it hangs, too, reset the \
         GPU or reboot"
    )]
    Silent,
    /// Any other failure.
    #[error("the NVIDIA driver failed at {call}: {reason}; see whether `nvidia-smi` works")]
    Other {
        /// The failed operation.
        call: String,
        /// The driver's error.
        reason: String,
    },
}

/// The system's error in parentheses, unless the file is only missing.
fn detail(reason: &str) -> String {
    if reason.contains("No such file or directory") { String::new() } else { format!(" ({reason})") }
}

fn quoted_list(paths: &[PathBuf]) -> String {
    let quoted: Vec<String> = paths.iter().map(|path| format!("`{}`", path.display())).collect();
    quoted.join(", ")
}

impl DriverError {
    /// Converts the error of a failed start.
    pub(crate) fn from_init(error: &NvmlError) -> Self {
        match error {
            // A denied device node causes either of these two errors.
            NvmlError::Unknown | NvmlError::OperatingSystem => Self::UnknownAtInit,
            other => Self::from_call("start", other),
        }
    }

    /// Converts the error of any other call.
    pub(crate) fn from_call(call: &str, error: &NvmlError) -> Self {
        match error {
            NvmlError::LibRmVersionMismatch => Self::LibraryMismatch,
            NvmlError::DriverNotLoaded => Self::DriverNotLoaded,
            NvmlError::NoPermission => Self::NoPermission,
            other => Self::Other { call: call.to_owned(), reason: other.to_string() },
        }
    }
}

/// A GPU that is present but cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuTrouble {
    /// NVML's index of the GPU.
    pub index: u32,
    /// The reason.
    pub what: Trouble,
}

/// Reasons why a GPU cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Trouble {
    /// The GPU fell off the bus.
    #[error("the GPU is lost; see the kernel's log for its Xid error, then reset it or reboot")]
    Lost,
    /// The GPU needs a reset.
    #[error("the GPU has to be reset before it can be used (`nvidia-smi --gpu-reset`)")]
    ResetRequired,
    /// This process has no access to the GPU.
    #[error("no access to the GPU; check the container's devices and the access rights of /dev/nvidia*")]
    Denied,
    /// MIG is enabled, and this process can use no slice.
    #[error(
        "MIG is switched on and there is no slice to use; create one (`nvidia-smi mig -cgi … -C`) or switch it off"
    )]
    NoMigSlice,
    /// The driver does not answer.
    #[error("the driver has not answered for {SAMPLE_LIMIT:?}")]
    Silent,
    /// Any other reason.
    #[error("the driver cannot open the GPU: {reason}")]
    Other {
        /// The driver's error.
        reason: String,
    },
}

impl Trouble {
    /// Converts the error of opening a GPU.
    pub(crate) fn from_nvml(error: &NvmlError) -> Self {
        match error {
            NvmlError::GpuLost => Self::Lost,
            NvmlError::ResetRequired => Self::ResetRequired,
            NvmlError::NoPermission | NvmlError::OperatingSystem => Self::Denied,
            other => Self::Other { reason: other.to_string() },
        }
    }
}

/// Returns the figure, or `None` if the driver does not report one. Only a GPU that is gone for good is an error.
pub(crate) fn optional<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, Trouble> {
    match answer {
        Ok(figure) => Ok(Some(figure)),
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(Trouble::from_nvml(&error)),
        Err(_) => Ok(None),
    }
}

/// Like [`optional`], for a count or a rate. Drivers report zero for an unavailable figure.
pub(crate) fn nonzero(answer: Result<u32, NvmlError>) -> Result<Option<u32>, Trouble> {
    Ok(optional(answer)?.filter(|figure| *figure != 0))
}

/// Like [`optional`], for a text. Drivers report an empty text for an unavailable one.
pub(crate) fn text(answer: Result<String, NvmlError>) -> Result<Option<String>, Trouble> {
    Ok(optional(answer)?.filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests;
