//! Machines made from the profile table, and what holds for all of them.

use std::path::Path;

use fake_nvml::{Hex, PciPlace, Scenario, Unit, Virtualization, play_file};
use gpu_tuned::{Machine, Options, Selection, StartError, detect_through};
use gpu_tuned_core::profile::{Profile, ProfileTable};
use proptest::prelude::*;
use proptest::sample::{Index, select};

config! { Small, transformer(layers = 2, d_model = 128, vocab = 512, seq = 64), global_batch = 96, target = "rtx4090" }

/// Decision for the machine; `test` names the scenario file of the library.
pub(crate) fn look(scenario: &Scenario, test: &str) -> Machine {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}.toml", std::process::id()));
    scenario.save(&file).unwrap_or_else(|error| panic!("{error}"));
    play_file(&file, |library| detect_through(Some(library)))
}

/// Profiles with names that Burn can train on, except of GPUs with the host's memory, which is that of this machine, and of
/// the two that no report separates.
fn named_profiles() -> Vec<&'static Profile> {
    let is_board = |profile: &&Profile| {
        let capability = profile.compute_capability;
        let is_separable = !profile.id.as_str().starts_with("gtx1650") || profile.id.as_str() == "gtx1650-super";
        let can_train = capability.refusal().is_none();
        !profile.names.is_empty() && !capability.is_integrated() && is_separable && can_train
    };
    ProfileTable::builtin().iter().filter(is_board).collect()
}

pub(crate) fn place(bus: u8) -> PciPlace {
    format!("00000000:{bus:02x}:00.0").try_into().expect("a place")
}

/// A board with all figures that a driver reports, as the profile describes it.
pub(crate) fn board(profile: &Profile) -> Unit {
    let Profile { memory, compute, compute_capability: capability, .. } = profile;
    let total = memory.usable().0 >> 20;
    let clock = |bits: u32| Some((memory.bandwidth_gb_s? * 4e3 / f64::from(bits)) as u32);
    Unit {
        name: profile.names.first().cloned(),
        pci_id: profile.pci_ids.first().map(|id| Hex(id.vendor, id.device)),
        pci_address: Some(place(1)),
        compute_capability: Some([capability.major.into(), capability.minor.into()]),
        memory_total_mib: Some(total),
        memory_reserved_mib: Some(0),
        memory_free_mib: Some(total),
        cores: compute.cuda_cores,
        bus_bits: memory.bus_bits,
        memory_clock_mhz: memory.bus_bits.and_then(clock),
        sm_clock_mhz: compute.boost_mhz.map(|clock| clock as u32),
        pcie: Some([4, 16]),
        virtualization: Some(Virtualization::None),
        processes: Some(vec![]),
        ..Unit::default()
    }
}

/// A board as the profile describes it, with any of its names, PCI ids and totals.
pub(crate) fn boards() -> impl Strategy<Value = (&'static Profile, Unit)> {
    let figures = (any::<Index>(), any::<Index>(), any::<Index>(), any::<u8>(), 0.0..=1.0);
    (select(named_profiles()), figures).prop_map(|(profile, (name, id, total, bus, free))| {
        let memory = &profile.memory;
        let totals = [&memory.nvml_total_mib[..], &memory.cuda_total_mib, &[memory.nominal_mib]].concat();
        let total = *total.get(&totals);
        let reserved = total / 100;
        let capability = profile.compute_capability;
        let pci_id = (!profile.pci_ids.is_empty()).then(|| *id.get(&profile.pci_ids));
        let unit = Unit {
            name: Some(name.get(&profile.names).clone()),
            uuid: Some(format!("GPU-{bus:08x}-0000-4000-8000-000000000000")),
            pci_address: Some(place(bus)),
            pci_id: pci_id.map(|id| Hex(id.vendor, id.device)),
            compute_capability: Some([capability.major.into(), capability.minor.into()]),
            memory_total_mib: Some(total),
            memory_reserved_mib: Some(reserved),
            memory_free_mib: Some(((total - reserved) as f64 * free) as u64),
            cores: profile.compute.cuda_cores,
            bus_bits: profile.memory.bus_bits,
            virtualization: Some(Virtualization::None),
            processes: Some(vec![]),
            ..Unit::default()
        };
        (profile, unit)
    })
}

/// The selection: what is decided keeps the global batch and fits, what is not has a reason.
pub(crate) fn decide(options: &Options, machine: &Machine) -> Result<Option<Selection>, TestCaseError> {
    match options.clone().machine(machine.clone()).decide(&Small::default()) {
        Ok(decision) => {
            let schedule = decision.plan.schedule;
            let on_a_rank = schedule.micro_batches().sum::<u64>();
            prop_assert_eq!(on_a_rank * schedule.world_size, 96);
            prop_assert!(decision.plan.memory.fits(), "{}", decision.plan);
            prop_assert!(!decision.to_string().contains("NaN"), "{decision}");
            Ok(Some(decision.selection))
        }
        Err(error @ StartError::Plan(_)) => {
            prop_assert!(!error.to_string().is_empty());
            Ok(None)
        }
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}
