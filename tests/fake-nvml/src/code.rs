use serde::{Deserialize, Serialize};

/// NVML's return codes (`nvmlReturn_t` in nvml.h), spelled in scenarios as NVML does without its `NVML_ERROR_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Code {
    /// The call succeeded.
    Success = 0,
    /// `nvmlInit_v2` was not called, or failed.
    Uninitialized = 1,
    /// An argument makes no sense, such as an unknown handle.
    InvalidArgument = 2,
    /// The GPU or the driver does not support this figure.
    NotSupported = 3,
    /// The user may not do this.
    NoPermission = 4,
    /// There is no such object, such as an empty MIG slot.
    NotFound = 6,
    /// The caller's buffer is too small.
    InsufficientSize = 7,
    /// The kernel module is not loaded.
    DriverNotLoaded = 9,
    /// The driver has trouble with the GPU's interrupts.
    IrqIssue = 11,
    /// A library that NVML needs is missing.
    LibraryNotFound = 12,
    /// The driver is older than the call.
    FunctionNotFound = 13,
    /// The GPU fell off the bus.
    GpuIsLost = 15,
    /// The GPU has to be reset first.
    ResetRequired = 16,
    /// The operating system (cgroups) denied access.
    OperatingSystem = 17,
    /// Library and kernel module are of different versions.
    #[serde(alias = "mismatch")]
    LibRmVersionMismatch = 18,
    /// The caller's struct has another version than the call.
    ArgumentVersionMismatch = 25,
    /// A code younger than the bindings.
    FromTheFuture = 997,
    /// Anything else.
    Unknown = 999,
}
