//! Properties of the GPU: the first one of the scenario.

use std::sync::OnceLock;

use fake_nvml::{SCENARIO_VARIABLE, Scenario, Unit};

/// The GPU of this process.
pub(crate) struct Gpu {
    /// The CUDA version that the driver speaks: 1000 x major + 10 x minor.
    pub(crate) version: i32,
    pub(crate) name: String,
    pub(crate) uuid: [u8; 16],
    /// Bytes.
    pub(crate) memory_total: u64,
    /// Bytes.
    pub(crate) memory_free: u64,
    pci: [i32; 3],
    capability: [i32; 2],
    sm_count: i32,
    /// MHz; 0 without a figure.
    sm_clock: i32,
    /// MHz; 0 without a figure.
    memory_clock: i32,
    /// 0 without a figure.
    bus_bits: i32,
}

/// The scenario's first GPU. `None` without a GPU, with a faulty scenario, or if `CUDA_VISIBLE_DEVICES` does not
/// begin with 0.
pub(crate) fn gpu() -> Option<&'static Gpu> {
    static GPU: OnceLock<Option<Gpu>> = OnceLock::new();
    let read = || if is_hidden() { None } else { read().map_err(|error| eprintln!("fake-cuda: {error}")).ok() };
    GPU.get_or_init(read).as_ref()
}

fn is_hidden() -> bool {
    std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|visible| visible.split(',').next() != Some("0"))
}

fn read() -> Result<Gpu, String> {
    let file = std::env::var_os(SCENARIO_VARIABLE).ok_or(format!("{SCENARIO_VARIABLE} is not set"))?;
    let scenario = Scenario::load(file.as_ref()).map_err(|error| error.to_string())?;
    let [major, minor] = scenario.cuda_driver_version.ok_or("the scenario has no cuda_driver_version")?;
    let unit = scenario.gpu.first().ok_or("the scenario has no GPU")?;
    Gpu::new(unit, 1000 * major + 10 * minor)
        .ok_or("the scenario's first GPU lacks a figure that CUDA reports".to_owned())
}

impl Gpu {
    fn new(unit: &Unit, version: i32) -> Option<Self> {
        let capability = unit.compute_capability?;
        let total = unit.memory_total_mib?;
        Some(Self {
            version,
            name: unit.name.clone()?,
            uuid: uuid(unit.uuid.as_deref()?)?,
            memory_total: total << 20,
            memory_free: unit.memory_free_mib.unwrap_or(total) << 20,
            pci: unit.pci_address.as_ref()?.numbers.map(u32::cast_signed),
            capability,
            sm_count: i32::try_from(unit.cores?).ok()? / cores_per_sm(capability),
            sm_clock: figure(unit.sm_clock_mhz),
            memory_clock: figure(unit.memory_clock_mhz),
            bus_bits: figure(unit.bus_bits),
        })
    }

    /// `DOMAIN:BUS:DEVICE.0`.
    pub(crate) fn pci_address(&self) -> String {
        let [domain, bus, device] = self.pci;
        format!("{domain:04x}:{bus:02x}:{device:02x}.0")
    }

    /// A `CUdevice_attribute`, by its number in cuda.h; 0 for attributes that nothing here uses.
    pub(crate) fn attribute(&self, attribute: i32) -> i32 {
        match attribute {
            // Threads of a block, and its first two dimensions.
            1..=3 => 1024,
            // The third.
            4 => 64,
            // Blocks of a grid, by dimension.
            5 => i32::MAX,
            6 | 7 => 65_535,
            // Shared memory of a block by default.
            8 => 48 << 10,
            // Threads of a warp.
            10 => 32,
            // Clocks in kHz.
            13 => self.sm_clock.saturating_mul(1000),
            36 => self.memory_clock.saturating_mul(1000),
            16 => self.sm_count,
            // True if the memory is the host's.
            18 => i32::from(matches!(self.capability, [8, 7] | [11, _] | [12, 1])),
            33 => self.pci[1],
            34 => self.pci[2],
            37 => self.bus_bits,
            50 => self.pci[0],
            75 => self.capability[0],
            76 => self.capability[1],
            // Shared memory of a block on request.
            97 => shared_memory(self.capability),
            _ => 0,
        }
    }
}

fn figure(figure: Option<u32>) -> i32 {
    figure.and_then(|figure| i32::try_from(figure).ok()).unwrap_or(0)
}

/// CUDA cores of a multiprocessor: the CUDA programming guide's "arithmetic instructions", 32-bit additions a clock.
fn cores_per_sm(capability: [i32; 2]) -> i32 {
    match capability {
        [7, _] | [8, 0] => 64,
        _ => 128,
    }
}

/// Bytes of shared memory that a block may have: the CUDA programming guide's "technical specifications".
fn shared_memory(capability: [i32; 2]) -> i32 {
    let kib = match capability {
        [..=6, _] => 48,
        [7, 0 | 2] => 96,
        [7, _] => 64,
        [8, 0 | 7] => 163,
        [9..=11, _] => 227,
        _ => 99,
    };
    kib << 10
}

/// The bytes of `GPU-xxxxxxxx-xxxx-…`.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.strip_prefix("GPU-")?.chars().filter(|letter| *letter != '-').collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use fake_nvml::{Scenario, scenario};

    use super::Gpu;

    #[test]
    fn figures_are_those_of_the_data_sheets() {
        // Name of the scenario, its SM count, and bytes of shared memory from `cudaDeviceProp`.
        for (name, sm_count, shared) in
            [("h200", 132, 232_448), ("a10g", 80, 101_376), ("rtx4090", 128, 101_376), ("t4", 40, 65_536)]
        {
            let file = Scenario::load(&scenario(name)).expect("a scenario");
            let gpu = Gpu::new(&file.gpu[0], 12_080).expect("a whole GPU");
            assert_eq!((gpu.attribute(16), gpu.attribute(97)), (sm_count, shared), "{name}");
        }
    }

    #[test]
    fn the_pci_address_is_that_of_nvml() {
        let file = Scenario::load(&scenario("h200")).expect("a scenario");
        let gpu = Gpu::new(&file.gpu[0], 12_080).expect("a whole GPU");
        assert_eq!(gpu.pci_address(), "0000:19:00.0");
        assert_eq!([gpu.attribute(50), gpu.attribute(33), gpu.attribute(34)], [0, 0x19, 0]);
        assert_eq!(gpu.uuid[..4], [0x42, 0, 0, 0]);
    }
}
