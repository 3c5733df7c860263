//! Machines made from the profile table, valid and not, written as scenario files and played by the fake library.

use std::path::Path;

use fake_nvml::{Call, Code, Hex, PciPlace, Process, Scenario, Unit, Virtualization, play_file};
use gpu_tuned::{Bytes, GpuReading, Machine, Options, Recognised, StartError, detect_through, gpu_tuned};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::{Profile, ProfileTable};
use proptest::collection::{btree_map, vec};
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::{Index, select};

#[gpu_tuned(transformer(layers = 2, d_model = 128, vocab = 512, seq = 64), global_batch = 96, target = "rtx4090")]
#[derive(Clone, Debug)]
struct Small {
    #[tuned]
    batch_size: usize,
}

fn look(scenario: &Scenario, test: &str) -> Machine {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test).with_extension("toml");
    scenario.save(&file).unwrap_or_else(|error| panic!("{error}"));
    play_file(&file, |library| detect_through(Some(library)))
}

fn named_profiles() -> Vec<&'static Profile> {
    ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty()).collect()
}

fn place(bus: u8) -> PciPlace {
    format!("00000000:{bus:02x}:00.0").try_into().expect("a place")
}

/// A board as the profile describes it, with any of its names, PCI ids and totals.
fn boards() -> impl Strategy<Value = (&'static Profile, Unit)> {
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

fn codes() -> impl Strategy<Value = Code> {
    use Code as C;
    select(vec![C::NotSupported, C::NoPermission, C::Unknown, C::FromTheFuture, C::GpuIsLost, C::InvalidArgument])
}

fn calls() -> impl Strategy<Value = Call> {
    use Call as C;
    let identity = [C::Handle, C::Name, C::Uuid, C::Pci, C::ComputeCapability, C::Cores, C::Bus, C::Virtualization];
    let rest = [C::MemoryV1, C::MemoryV2, C::Processes, C::MigMode, C::MigCount, C::MigHandle, C::Attributes];
    select([&identity[..], &rest].concat())
}

prop_compose! {
    /// Figures of nothing, a name of anything.
    fn garbage()(
        name_bytes in of(vec(1u8..=255, 0..120)),
        uuid in of(".{0,50}"),
        bus in of(any::<u8>()),
        pci_id in of(any::<(u16, u16)>()),
        compute_capability in of(any::<[i32; 2]>()),
        memory in of((0u64..1 << 36, of(0u64..1 << 36), of(0u64..1 << 36))),
        figures in any::<[Option<u32>; 6]>(),
        processes in of(vec(of(any::<u32>()), 0..3)),
    ) -> Unit {
        let [cores, bus_bits, memory_clock_mhz, sm_clock_mhz, power_limit_mw, sm_count] = figures;
        let processes = processes.map(|all| all.into_iter().map(|pid| Process { pid, memory_mib: 1 }).collect());
        Unit {
            name_bytes,
            uuid,
            pci_address: bus.map(place),
            pci_id: pci_id.map(|(vendor, device)| Hex(vendor, device)),
            compute_capability,
            memory_total_mib: memory.map(|(total, ..)| total),
            memory_reserved_mib: memory.and_then(|(_, reserved, _)| reserved),
            memory_free_mib: memory.and_then(|(.., free)| free),
            cores, bus_bits, memory_clock_mhz, sm_clock_mhz, power_limit_mw, sm_count, processes,
            gpu_instance: cores,
            compute_instance: bus_bits,
            ..Unit::default()
        }
    }
}

prop_compose! {
    /// GPUs and nonsense, of which some calls fail, some slices are cut, and some fall off the bus.
    fn troubled_units()(
        unit in prop_oneof![boards().prop_map(|(_, unit)| unit), garbage()],
        mig in prop_oneof![3 => Just(vec![]), 1 => vec(garbage(), 0..3)],
        mig_enabled in of(any::<bool>()),
        fails in btree_map(calls(), codes(), 0..4),
        lost_after in weighted(0.1, calls()),
    ) -> Unit {
        Unit { mig, mig_enabled, fails, lost_after, ..unit }
    }
}

fn troubled_machines() -> impl Strategy<Value = Scenario> {
    let system = (weighted(0.1, codes()), weighted(0.1, codes()), weighted(0.2, any::<u32>()));
    (vec(troubled_units(), 0..4), system).prop_map(|(gpu, (init, count, counted))| Scenario {
        init,
        count,
        counted,
        gpu,
        ..Scenario::default()
    })
}

/// What is decided keeps the global batch and fits; what is not has a plan's reason.
fn holds(machine: &Machine) -> Result<Option<Recognised>, TestCaseError> {
    match Options::default().machine(machine.clone()).decide(&Small::default()) {
        Ok(decision) => {
            prop_assert_eq!(decision.plan.schedule.micro_batches().sum::<u64>(), 96);
            prop_assert!(decision.plan.memory.fits(), "{}", decision.plan);
            Ok(Some(decision.selection.device))
        }
        Err(StartError::Plan(_)) => Ok(None),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

fn told(reading: &GpuReading) -> (Option<&str>, Option<Bytes>, Option<Bytes>, Option<u32>) {
    (reading.name.as_deref(), reading.memory_total, reading.memory_free, reading.sm_count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_board_of_the_table_is_read_as_it_is_and_recognised_exactly((profile, unit) in boards()) {
        let machine = look(&Scenario { gpu: vec![unit.clone()], ..Scenario::default() }, "generated-boards");
        prop_assert_eq!(machine.gpus.len(), 1, "{:?}", machine.trouble);
        let mib = |mib: Option<u64>| mib.map(Bytes::from_mib);
        let sm_count = profile.compute.sm_count.filter(|_| profile.compute.cuda_cores.is_some());
        let expected = (unit.name.as_deref(), mib(unit.memory_total_mib), mib(unit.memory_free_mib), sm_count);
        prop_assert_eq!(told(&machine.gpus[0]), expected);
        let found = identify(&machine.gpus[0], &ProfileTable::default());
        prop_assert!(matches!(&found, Match::Exact { profile: it } if it.id == profile.id), "{found:?}");
        let exact = Recognised::Exact { profile: profile.id.to_string() };
        prop_assert_eq!(holds(&machine)?.unwrap_or_else(|| exact.clone()), exact);
    }

    #[test]
    fn no_machine_makes_the_runtime_panic_or_lose_samples(scenario in troubled_machines()) {
        let machine = look(&scenario, "generated-machines");
        for gpu in &machine.gpus {
            prop_assert!(gpu.memory_free.is_none_or(|free| Some(free) <= gpu.memory_total));
            prop_assert!(gpu.memory_total != Some(Bytes::ZERO) && gpu.sm_count != Some(0));
        }
        holds(&machine)?;
    }
}
