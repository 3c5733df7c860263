//! What is known of a device: the words of a driver ([`GpuReading`]) and the planner's view.

mod capability;
mod facts;
mod name;
mod pci;
mod reading;

pub use capability::{ComputeCapability, ParseCapabilityError};
pub use facts::{DeviceFacts, DeviceKind};
pub use name::ProductName;
pub use pci::{ParsePciError, PciAddress, PciId};
pub use reading::{GpuReading, MigSlice, Virtualization};
