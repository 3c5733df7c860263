use std::ffi::{c_char, c_uint};

use crate::scenario::{Hex, Unit};

/// `nvmlPciInfo_t`.
#[repr(C)]
pub(super) struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_and_vendor: c_uint,
    subsystem: c_uint,
    bus_id: [c_char; 32],
}

impl PciInfo {
    pub(super) fn from_unit(unit: &Unit) -> Option<Self> {
        let place = unit.pci_address.as_ref()?;
        let [domain, bus, device] = place.numbers;
        // NVML packs the vendor into the lower half.
        let pack = |id: Option<Hex>| id.map_or(0, |Hex(vendor, device)| (u32::from(device) << 16) | u32::from(vendor));
        Some(Self {
            bus_id_legacy: text(&place.text),
            domain,
            bus,
            device,
            device_and_vendor: pack(unit.pci_id),
            subsystem: pack(unit.subsystem),
            bus_id: text(&place.text),
        })
    }
}

fn text<const LENGTH: usize>(text: &str) -> [c_char; LENGTH] {
    let mut buffer = [0; LENGTH];
    for (to, from) in buffer.iter_mut().take(LENGTH - 1).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    buffer
}
