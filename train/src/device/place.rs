use core::fmt;

use gpu_tuned_core::device::{GpuIdentity, GpuReading, PciAddress};
use serde::{Deserialize, Serialize};

use super::{CudaDevice, OpenError};

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

#[cfg(test)]
mod tests {
    use super::{CudaDevice, Place};
    use crate::device::OpenError;

    fn cuda(index: usize) -> CudaDevice {
        let mut device = CudaDevice::default();
        device.index = index;
        device.pci_address = format!("0000:{:02x}:00.0", index + 1).parse().ok();
        device
    }

    fn nvml(address: &str) -> Place {
        Place::Nvml { pci_address: address.parse().ok(), uuid: None, alone: false }
    }

    #[test]
    fn a_place_is_one_device() {
        let two = [cuda(0), cuda(1)];
        for (place, expected) in [(Place::Index(1), 1), (nvml("0000:01:00.0"), 0)] {
            assert_eq!(place.find(&two).map(|device| device.index).ok(), Some(expected), "{place}");
        }
        assert!(matches!(Place::Index(2).find(&two), Err(OpenError::NoSuchDevice { .. })));
        assert!(matches!(Place::Only.find(&two), Err(OpenError::Ambiguous { found, .. }) if found.len() == 2));
    }

    #[test]
    fn a_missing_device_is_reported_with_the_others() {
        let error = nvml("0000:07:00.0").find(&[cuda(1)]).expect_err("another place").to_string();
        assert!(error.contains("00000000:07:00.0"), "{error}");
        assert!(error.contains("00000000:02:00.0"), "{error}");
    }
}
