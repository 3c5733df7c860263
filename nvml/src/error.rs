use std::path::PathBuf;

use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::LIBRARY_VARIABLE;

/// Why the driver could not be asked at all.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DriverError {
    /// There is no management library at any of the places.
    #[error(
        "no NVIDIA management library found: tried {}; install the NVIDIA driver, or set {LIBRARY_VARIABLE} to the \
         path of libnvidia-ml.so.1{}",
        listed(tried),
        unless_absent(reason)
    )]
    NoLibrary {
        /// The places that were tried, in order.
        tried: Vec<PathBuf>,
        /// What the system said of the first of them.
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
        /// What it lacks.
        reason: String,
    },
    /// Library and kernel module are of different driver versions.
    #[error(
        "the NVIDIA library and the kernel module are of different versions; reboot, or reload the module, after a \
         driver update; in a container, use the host's library"
    )]
    LibraryMismatch,
    /// The library is there, the kernel module is not loaded.
    #[error(
        "the NVIDIA kernel module is not loaded; load it (`modprobe nvidia`) or reboot after installing the driver"
    )]
    DriverNotLoaded,
    /// The user may not talk to the driver.
    #[error("no permission to talk to the NVIDIA driver; check the access rights of /dev/nvidia*")]
    NoPermission,
    /// The driver failed to start without saying why.
    #[error(
        "the NVIDIA driver failed to start for an unknown reason; in a container this usually means that it lost its \
         cgroup access to the GPUs: restart the container"
    )]
    UnknownAtInit,
    /// Anything else.
    #[error("the NVIDIA driver failed at {call}: {reason}; see whether `nvidia-smi` works")]
    Other {
        /// What was asked.
        call: String,
        /// What the driver said.
        reason: String,
    },
}

/// What the system said, where it is more than that there is no such file.
fn unless_absent(reason: &str) -> String {
    if reason.contains("No such file or directory") { String::new() } else { format!(" ({reason})") }
}

fn listed(places: &[PathBuf]) -> String {
    let quoted: Vec<String> = places.iter().map(|place| format!("`{}`", place.display())).collect();
    quoted.join(", ")
}

impl DriverError {
    /// What a failed start means.
    pub(crate) fn from_init(error: &NvmlError) -> Self {
        match error {
            // A denied device node shows as either of the two.
            NvmlError::Unknown | NvmlError::OperatingSystem => Self::UnknownAtInit,
            other => Self::from_call("start", other),
        }
    }

    /// What the failure of another call means.
    pub(crate) fn from_call(call: &str, error: &NvmlError) -> Self {
        match error {
            NvmlError::LibRmVersionMismatch => Self::LibraryMismatch,
            NvmlError::DriverNotLoaded => Self::DriverNotLoaded,
            NvmlError::NoPermission => Self::NoPermission,
            other => Self::Other { call: call.to_owned(), reason: other.to_string() },
        }
    }
}

/// A GPU that is there and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GpuTrouble {
    /// NVML's index of the GPU.
    pub index: u32,
    /// What is the matter.
    pub what: Trouble,
}

/// What is the matter with a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trouble {
    /// It fell off the bus.
    #[error("the GPU is lost; see the kernel's log for its Xid error, then reset it or reboot")]
    Lost,
    /// It has to be reset first.
    #[error("the GPU has to be reset before it can be used (`nvidia-smi --gpu-reset`)")]
    ResetRequired,
    /// This process may not use it.
    #[error("no access to the GPU; check the container's devices and the access rights of /dev/nvidia*")]
    Denied,
    /// MIG is switched on, and there is no slice that this process can use.
    #[error(
        "MIG is switched on and there is no slice to use; create one (`nvidia-smi mig -cgi … -C`) or switch it off"
    )]
    NoMigSlice,
    /// Anything else.
    #[error("the driver cannot open the GPU: {reason}")]
    Other {
        /// What the driver said.
        reason: String,
    },
}

impl Trouble {
    /// What it means that a GPU cannot be opened.
    pub(crate) fn of(error: &NvmlError) -> Self {
        match error {
            NvmlError::GpuLost => Self::Lost,
            NvmlError::ResetRequired => Self::ResetRequired,
            NvmlError::NoPermission | NvmlError::OperatingSystem => Self::Denied,
            other => Self::Other { reason: other.to_string() },
        }
    }
}
