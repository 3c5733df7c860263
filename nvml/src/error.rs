use std::path::PathBuf;

use nvml_wrapper::error::NvmlError;
use thiserror::Error;

use crate::{LIBRARY_VARIABLE, SAMPLE_LIMIT};

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
