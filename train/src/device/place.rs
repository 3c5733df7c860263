use core::fmt;

use gpu_tuned_core::device::{GpuReading, PciAddress};
use serde::{Deserialize, Serialize};

use super::cuda_device::join;
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
    /// The place of a device that NVML read; `alone` if it showed no other.
    pub fn of(reading: &GpuReading, alone: bool) -> Self {
        Self::Nvml { pci_address: reading.pci_address, uuid: reading.uuid.clone(), alone }
    }

    /// The device among `devices` that is meant.
    ///
    /// The PCI address joins devices of NVML and CUDA. The UUID distinguishes MIG slices of one GPU, and joins where an
    /// address is unknown. Without both, the only device on both sides matches.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoSuchDevice`] if there is none, [`OpenError::Ambiguous`] if several could be meant.
    pub fn find<'a>(&self, devices: &'a [CudaDevice]) -> Result<&'a CudaDevice, OpenError> {
        let matches = match self {
            Self::Only => devices.iter().collect(),
            Self::Index(index) => devices.iter().filter(|device| device.index == *index).collect(),
            Self::Nvml { pci_address, uuid, alone } => join(*pci_address, uuid.as_deref(), *alone, devices),
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

    const A: &str = "a0000000-0000-0000-0000-00000000000a";
    const B: &str = "b0000000-0000-0000-0000-00000000000b";

    fn cuda(index: usize, bus: Option<u8>, uuid: Option<&str>) -> CudaDevice {
        let pci_address = bus.map(|bus| format!("0000:{bus:02x}:00.0").parse().expect("an address"));
        CudaDevice { index, pci_address, uuid: uuid.map(str::to_owned), ..CudaDevice::default() }
    }

    fn nvml(bus: Option<u8>, uuid: Option<&str>, alone: bool) -> Place {
        let pci_address = bus.map(|bus| format!("0000:{bus:02x}:00.0").parse().expect("an address"));
        Place::Nvml { pci_address, uuid: uuid.map(str::to_owned), alone }
    }

    fn found(place: &Place, devices: &[CudaDevice]) -> Result<usize, String> {
        place.find(devices).map(|device| device.index).map_err(|error| match error {
            OpenError::NoSuchDevice { .. } => "none".to_owned(),
            OpenError::Ambiguous { found, .. } => format!("one of {}", found.len()),
            other => other.to_string(),
        })
    }

    #[test]
    fn a_device_is_joined_by_what_is_known_of_it() {
        let two = [cuda(0, Some(0x81), Some(B)), cuda(1, Some(0x01), Some(A))];
        let no_uuid = [cuda(0, Some(0x81), None), cuda(1, Some(0x01), None)];
        let no_address = [cuda(0, None, Some(B)), cuda(1, None, Some(A))];
        let nvml_uuid = format!("GPU-{A}");
        for (devices, place, expected) in [
            (&two, nvml(Some(1), Some(&nvml_uuid), false), Ok(1)),
            (&two, nvml(Some(1), None, false), Ok(1)),
            (&no_uuid, nvml(Some(1), Some(&nvml_uuid), false), Ok(1)),
            (&no_address, nvml(Some(1), Some(&nvml_uuid), false), Ok(1)),
            (&two, nvml(Some(2), None, true), Err("none")),
            (&two, nvml(None, None, true), Err("none")),
            (&two, Place::Index(1), Ok(1)),
            (&two, Place::Index(2), Err("none")),
            (&two, Place::Only, Err("one of 2")),
        ] {
            assert_eq!(found(&place, devices), expected.map_err(str::to_owned), "{place}");
        }
    }

    #[test]
    fn slices_of_one_gpu_are_told_apart_by_uuid() {
        let slices = [cuda(0, Some(1), Some(A)), cuda(1, Some(1), Some(B))];
        assert_eq!(found(&nvml(Some(1), Some(&format!("MIG-{B}")), false), &slices), Ok(1));
        assert_eq!(found(&nvml(Some(1), Some(&format!("MIG-{B}")), false), &slices[..1]), Err("none".to_owned()));
        assert_eq!(found(&nvml(Some(1), Some("MIG-GPU-old/7/0"), false), &slices), Err("one of 2".to_owned()));
    }

    #[test]
    fn only_a_device_alone_on_both_sides_needs_no_name() {
        let one = [cuda(0, None, None)];
        assert_eq!(found(&nvml(Some(1), None, true), &one), Ok(0));
        assert_eq!(found(&nvml(Some(1), None, false), &one), Err("none".to_owned()));
        assert_eq!(found(&nvml(Some(1), None, true), &[cuda(0, Some(2), None)]), Err("none".to_owned()));
    }

    #[test]
    fn a_missing_device_is_reported_with_what_there_is() {
        let error = nvml(Some(1), None, false).find(&[cuda(0, Some(2), None)]).expect_err("another place").to_string();
        assert!(error.contains("00000000:01:00.0"), "{error}");
        assert!(error.contains("00000000:02:00.0"), "{error}");
    }
}
