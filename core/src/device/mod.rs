//! Devices: a driver's reading ([`GpuReading`]) and the planner's facts ([`DeviceFacts`]).

mod capability;
mod cuda;
mod facts;
mod line;
mod name;
mod pci;
mod power;
mod rates;
mod reading;

pub use crate::measured::DeviceKind;
pub use capability::{ComputeCapability, ParseCapabilityError};
pub use cuda::{CudaDevice, GpuIdentity};
pub use facts::{DeviceFacts, EstimatedFigure, MemoryKind};
pub(crate) use line::ProductLine;
pub use name::ProductName;
pub use pci::{ParsePciError, PciAddress, PciId};
pub use power::PowerLimit;
pub use rates::Rates;
pub use reading::{GpuReading, MigSlice, Virtualization};
