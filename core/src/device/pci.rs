use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A text that is not a PCI id or address.
#[derive(Debug, Error)]
#[error("`{text}` is not {expected}")]
pub struct ParsePciError {
    text: String,
    expected: &'static str,
}

/// A PCI vendor and device id (or their subsystem counterparts), written `10de:2684`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciId {
    /// The maker of the chip; NVIDIA is 0x10de.
    pub vendor: u16,
    /// The maker's number for the product.
    pub device: u16,
}

impl PciId {
    /// NVIDIA's vendor id.
    const NVIDIA: u16 = 0x10de;

    /// Returns true for a product of NVIDIA.
    pub(crate) const fn is_nvidia(self) -> bool {
        self.vendor == Self::NVIDIA
    }

    /// Unpacks NVML's format: device in the upper half, vendor in the lower.
    pub const fn from_nvml(packed: u32) -> Self {
        Self { vendor: (packed & 0xffff) as u16, device: (packed >> 16) as u16 }
    }
}

impl fmt::Display for PciId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

impl FromStr for PciId {
    type Err = ParsePciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = |part: &str| u16::from_str_radix(part, 16).ok();
        text.split_once(':')
            .and_then(|(vendor, device)| Some(Self { vendor: hex(vendor)?, device: hex(device)? }))
            .ok_or_else(|| ParsePciError {
                text: text.to_owned(),
                expected: "a PCI id: expected VENDOR:DEVICE in hexadecimal, such as \"10de:2684\"",
            })
    }
}

/// Address of a device on the PCI bus, written `00000000:01:00.0`. Joins a CUDA device to its NVML one.
///
/// The function number is omitted: NVIDIA's GPUs use function 0, and CUDA does not report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// The PCI segment.
    pub domain: u32,
    /// The bus within the segment.
    pub bus: u8,
    /// The slot on the bus.
    pub device: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl FromStr for PciAddress {
    type Err = ParsePciError;

    /// Reads `DOMAIN:BUS:DEVICE[.FUNCTION]` with a domain of any width; a missing domain is 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (path, _function) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
            let mut parts = path.rsplit(':');
            let device = u8::from_str_radix(parts.next()?, 16).ok()?;
            let bus = u8::from_str_radix(parts.next()?, 16).ok()?;
            let domain = parts.next().map_or(Some(0), |part| u32::from_str_radix(part, 16).ok())?;
            parts.next().is_none().then_some(Self { domain, bus, device })
        };
        parse().ok_or_else(|| ParsePciError {
            text: text.to_owned(),
            expected: "a PCI address: expected DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, such as \"0000:01:00.0\"",
        })
    }
}

macro_rules! through_strings {
    ($($type:ty),*) => {$(
        impl TryFrom<String> for $type {
            type Error = ParsePciError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )*};
}
through_strings!(PciId, PciAddress);

#[cfg(test)]
mod tests {
    use super::{PciAddress, PciId};

    #[test]
    fn nvml_packs_the_device_above_the_vendor() {
        assert_eq!(PciId::from_nvml(0x2684_10de).to_string(), "10de:2684");
    }

    #[test]
    fn addresses_of_every_width_are_the_same_place() {
        let place = PciAddress { domain: 0, bus: 0x41, device: 0 };
        for text in ["00000000:41:00.0", "0000:41:00.0", "41:00", " 0000:41:00.0 "] {
            assert_eq!(text.parse::<PciAddress>().expect(text), place);
        }
        for text in ["", "zz:00.0", "1:2:3:4.0", "0000:141:00.0"] {
            assert!(text.parse::<PciAddress>().is_err(), "{text}");
        }
    }
}
