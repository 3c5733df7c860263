//! Generated readings: complete, partial and impossible ones.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, GpuReading, MigSlice, PciId, Virtualization};
use gpu_tuned_core::profile::{Profile, ProfileTable};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

pub(super) fn named_profiles() -> Vec<&'static Profile> {
    ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty()).collect()
}

pub(super) fn without_maker(name: &str) -> &str {
    let name = name.trim();
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

pub(super) fn memory_on_record(profile: &Profile) -> Vec<u64> {
    let memory = &profile.memory;
    [&memory.nvml_total_mib[..], &memory.cuda_total_mib, &[memory.nominal_mib]].concat()
}

/// A complete reading of a board: any of the profile's names, PCI ids and memory sizes, within the variation of
/// drivers.
fn boards_of(profile: &'static Profile) -> impl Strategy<Value = GpuReading> {
    let with_maker = |name: String| format!("NVIDIA {}", without_maker(&name));
    let name = (select(profile.names.clone()), 0..3).prop_map(move |(name, spelling)| match spelling {
        0 => name,
        1 => with_maker(name),
        _ => without_maker(&name).to_owned(),
    });
    let memory = (select(memory_on_record(profile)), 0.98..1.02)
        .prop_map(|(mib, jitter)| Bytes((Bytes::from_mib(mib).0 as f64 * jitter) as u64));
    (name, any::<Index>(), memory, 0.0..=1.0, 0u64..2_000).prop_map(|(name, id, total, free, reserved)| {
        let mut reading = GpuReading::default();
        reading.name = Some(name);
        reading.pci_id = (!profile.pci_ids.is_empty()).then(|| *id.get(&profile.pci_ids));
        reading.compute_capability = Some(profile.compute_capability);
        reading.sm_count = profile.compute.sm_count;
        reading.memory_bus_bits = profile.memory.bus_bits;
        reading.memory_total = Some(total);
        reading.memory_reserved = Some(Bytes::from_mib(reserved));
        reading.memory_free = Some(Bytes((total.0 as f64 * free) as u64));
        reading
    })
}

pub(super) fn boards() -> impl Strategy<Value = (&'static Profile, GpuReading)> {
    select(named_profiles()).prop_flat_map(|profile| (Just(profile), boards_of(profile)))
}

/// Fields that drivers leave unanswered.
type Forget = fn(&mut GpuReading);
const FORGETS: [Forget; 6] = [
    |reading| reading.name = None,
    |reading| reading.pci_id = None,
    |reading| reading.compute_capability = None,
    |reading| reading.sm_count = None,
    |reading| reading.memory_total = None,
    |reading| reading.memory_free = None,
];

pub(super) fn partial_readings() -> impl Strategy<Value = (&'static Profile, GpuReading)> {
    (boards(), subsequence(FORGETS.to_vec(), 0..=FORGETS.len())).prop_map(|((profile, mut reading), forgets)| {
        for forget in forgets {
            forget(&mut reading);
        }
        (profile, reading)
    })
}

pub(super) fn garbage() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,40}",
        "(NVIDIA |GRID |Tesla |GeForce |Quadro ){0,2}[A-Z]{1,3}[0-9]{0,4}( Ti| SUPER|-[0-9]{1,2}[QCBA]| MIG 1g.10gb| vGPU)?",
    ]
}

/// A name that has a part too much or too little.
pub(super) fn mangled_names() -> impl Strategy<Value = String> {
    let name = select(named_profiles()).prop_flat_map(|profile| select(profile.names.clone()));
    (name, any::<Index>(), garbage(), 0..5).prop_map(|(name, at, noise, how)| {
        // The recorded names are ASCII, so any index is a character boundary.
        let at = at.index(name.len());
        match how {
            0 => name[..at].to_owned(),
            1 => name[at..].to_owned(),
            2 => format!("{name}{noise}"),
            3 => format!("{noise}{name}"),
            _ => format!("{}{noise}{}", &name[..at], &name[at..]),
        }
    })
}

/// A change that makes a described board another one, or no board that there is.
type Change = (usize, u64, String, &'static Profile);

fn changes() -> impl Strategy<Value = Change> {
    let number = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0u64..1 << 38];
    (0usize..13, number, prop_oneof![garbage(), mangled_names()], select(named_profiles()))
}

fn change(reading: &mut GpuReading, (what, number, text, other): Change) {
    match what {
        0 => reading.name = Some(text),
        1 => reading.name = other.names.first().cloned(),
        2 => reading.pci_id = Some(PciId::from_nvml(number as u32)),
        3 => reading.pci_id = other.pci_ids.first().copied(),
        4 => reading.memory_total = Some(Bytes(number)),
        5 => reading.memory_total = memory_on_record(other).first().copied().map(Bytes::from_mib),
        6 => reading.memory_free = Some(Bytes(number)),
        7 => reading.memory_reserved = Some(Bytes(number)),
        8 => reading.compute_capability = Some(ComputeCapability::new(number as u8, (number >> 8) as u8)),
        9 => reading.sm_count = Some(number as u32),
        10 => reading.memory_total = reading.memory_total.map(|total| total.scaled(0.9 + (number % 200) as f64 / 1e3)),
        11 => reading.mig = Some(MigSlice { gpu_instance: number as u32, compute_instance: 0 }),
        _ => {
            reading.virtualization = Some(Virtualization::Vgpu);
            reading.max_memory_clock_mhz = Some(number as u32);
            reading.max_sm_clock_mhz = Some((number >> 7) as u32);
        }
    }
}

/// Complete readings, partial ones, and impossible changes of them.
pub(super) fn devices() -> impl Strategy<Value = GpuReading> {
    (partial_readings(), prop::collection::vec(changes(), 0..4)).prop_map(|((_, mut reading), changes)| {
        for it in changes {
            change(&mut reading, it);
        }
        reading
    })
}
