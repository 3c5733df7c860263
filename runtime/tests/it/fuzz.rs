//! Drivers that fail, lie and talk nonsense: a decision or a reason, never a panic.

use fake_nvml::{Call, Code, Counted, Hex, Phase, Process, Scenario, Unit, Virtualization, play_file};
use gpu_tuned::monitor::{self, Sampler, Summary};
use gpu_tuned::recording::Record;
use gpu_tuned::{Bytes, Options};
use proptest::collection::{btree_map, vec};
use proptest::option::{of, weighted};
use proptest::prelude::*;
use proptest::sample::select;

use super::generated::{boards, decide, look, place};

fn codes() -> impl Strategy<Value = Code> {
    use Code as C;
    let of_figures =
        [C::NotSupported, C::NoPermission, C::NotFound, C::InvalidArgument, C::InsufficientSize, C::Unknown];
    let of_drivers = [C::Uninitialized, C::DriverNotLoaded, C::LibraryNotFound, C::LibRmVersionMismatch];
    let of_gpus = [C::GpuIsLost, C::ResetRequired, C::IrqIssue, C::OperatingSystem];
    let of_versions = [C::FunctionNotFound, C::ArgumentVersionMismatch, C::FromTheFuture];
    select([&of_figures[..], &of_drivers, &of_gpus, &of_versions].concat())
}

fn calls() -> impl Strategy<Value = Call> {
    use Call as C;
    let identity = [C::Handle, C::Name, C::Uuid, C::Pci, C::ComputeCapability, C::Cores, C::Bus, C::Virtualization];
    let rates = [C::MemoryClock, C::SmClock, C::PowerLimit, C::EnforcedPowerLimit, C::DefaultPowerLimit];
    let memory = [C::MemoryV1, C::MemoryV2, C::Processes];
    let mig = [C::MigMode, C::MigCount, C::MigHandle, C::Attributes, C::GpuInstance, C::ComputeInstance];
    let work = [C::Utilisation, C::PowerDraw, C::Clocks, C::Throttle, C::Temperature, C::CounterSupport, C::Counters];
    let link = [C::PcieGeneration, C::PcieLanes, C::MaxPcieGeneration, C::MaxPcieLanes, C::PcieThroughput];
    select([&identity[..], &rates, &memory, &mig, &work, &link].concat())
}

fn virtualizations() -> impl Strategy<Value = Virtualization> {
    use Virtualization as V;
    select(vec![V::None, V::Passthrough, V::Vgpu, V::HostVgpu, V::FromTheFuture])
}

/// Evenly over the orders of magnitude, as far as bytes are counted.
fn mib() -> impl Strategy<Value = u64> {
    (0u64..1 << 44, 0u32..44).prop_map(|(mib, shift)| mib >> shift)
}

prop_compose! {
    /// Figures of nothing, a name of anything.
    fn garbage()(
        name_bytes in of(vec(1u8..=255, 0..120)),
        uuid in of(".{0,50}"),
        bus in of(any::<u8>()),
        pci_id in of(any::<(u16, u16)>()),
        compute_capability in of(any::<[i32; 2]>()),
        memory in of((mib(), of(mib()), of(mib()))),
        figures in any::<[Option<u32>; 6]>(),
        processes in of(vec((of(any::<u32>()), mib()), 0..3)),
        virtualization in of(virtualizations()),
        slot in of(0u32..10),
    ) -> Unit {
        let [cores, bus_bits, memory_clock_mhz, sm_clock_mhz, power_limit_mw, sm_count] = figures;
        let processes = processes.map(|all| all.into_iter().map(|(pid, memory_mib)| Process { pid, memory_mib }).collect());
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
            virtualization, slot,
            enforced_power_limit_mw: sm_count,
            default_power_limit_mw: cores,
            subsystem: pci_id.map(|(vendor, device)| Hex(device, vendor)),
            gpu_instance: cores,
            compute_instance: bus_bits,
            ..Unit::default()
        }
    }
}

/// Figures of work: percentages, pairs, numbers, and what counters tell.
type Work = (Option<[u32; 2]>, [Option<[u32; 2]>; 4], [Option<u32>; 3], Option<[Option<f64>; 6]>);

fn work() -> impl Strategy<Value = Work> {
    // TOML has no numbers that are none.
    let counted =
        any::<[Option<f64>; 6]>().prop_map(|all| all.map(|figure| figure.filter(|figure| figure.is_finite())));
    (any::<Option<[u32; 2]>>(), any::<[Option<[u32; 2]>; 4]>(), any::<[Option<u32>; 3]>(), of(counted))
}

prop_compose! {
    /// GPUs and nonsense, of which some calls fail, some slices are cut, and some fall off the bus.
    fn troubled_units()(
        unit in prop_oneof![boards().prop_map(|(_, unit)| unit), garbage()],
        work in work(),
        mig in prop_oneof![3 => Just(vec![]), 1 => vec(garbage(), 0..3)],
        mig_enabled in of(any::<bool>()),
        fails in btree_map(calls(), codes(), 0..4),
        lost_after in weighted(0.1, calls()),
    ) -> Unit {
        let (percents, pairs, [power_draw_mw, temperature_c, looks], counted) = work;
        let phase = looks.map(|looks| Phase { samples: looks % 4, lost: looks % 2 == 0, ..Phase::default() });
        Unit {
            mig, mig_enabled, fails, lost_after,
            utilisation_percent: percents,
            clocks_mhz: pairs[0], pcie: pairs[1], pcie_max: pairs[2], pcie_kb_s: pairs[3],
            power_draw_mw, temperature_c,
            counters: counted.map(|[sm, occupancy, tensor, dram, to_gpu_mib_s, from_gpu_mib_s]| {
                Counted { sm, occupancy, tensor, dram, to_gpu_mib_s, from_gpu_mib_s }
            }),
            phases: phase.into_iter().collect(),
            phases_repeat: true,
            ..unit
        }
    }
}

fn troubled_machines() -> impl Strategy<Value = Scenario> {
    let system = (weighted(0.1, codes()), weighted(0.1, codes()), weighted(0.2, any::<u32>()));
    (vec(troubled_units(), 0..4), system, of("\\PC{0,90}")).prop_map(|(gpu, (init, count, counted), version)| {
        Scenario { driver_version: version, init, count, counted, gpu, ..Scenario::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_driver_makes_the_runtime_panic_or_lose_samples(scenario in troubled_machines(), gpu in 0usize..4) {
        let machine = look(&scenario, "fuzz");
        for gpu in &machine.gpus {
            prop_assert!(gpu.memory_free.is_none_or(|free| Some(free) <= gpu.memory_total));
            prop_assert!(gpu.memory_total != Some(Bytes::ZERO) && gpu.sm_count != Some(0));
        }
        let options = Options::default();
        for options in [options.clone(), options.clone().gpu(gpu), options.cpu()] {
            decide(&options, &machine)?;
        }
    }

    #[test]
    fn no_driver_makes_watching_panic_or_show_what_cannot_be(scenario in troubled_machines()) {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("fuzz.toml");
        scenario.save(&file).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let records: Vec<Record> = play_file(&file, |library| {
            let mut sampler = Sampler::open(&monitor::Options::default().no_program().library(library));
            let start = Record::Start(sampler.start());
            [start].into_iter().chain((0..11).flat_map(|_| sampler.sample()).collect::<Vec<_>>()).collect()
        });
        let summary = Summary::from_records(&records);
        prop_assert_eq!(summary.polls, 11);
        for (key, stats) in summary.gpus.iter().flat_map(|gpu| &gpu.figures) {
            prop_assert!(stats.mean.is_finite() && stats.min <= stats.max, "{}: {:?}", key, stats);
            prop_assert!(!key.ends_with("_percent") || (stats.min >= 0.0 && stats.max <= 100.0), "{}: {:?}", key, stats);
        }
    }
}
