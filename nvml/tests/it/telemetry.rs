//! Repeated samples of GPUs with changing activity.

use std::cell::Cell;
use std::path::Path;

use fake_nvml::{Call, Code, Counted, Phase, Reason, Scenario, Unit, play, play_file, scenario};
use gpu_tuned_core::telemetry::{Gpu, GpuSample, Throttle};
use gpu_tuned_nvml::{DriverError, Telemetry};
use libloading::Library;

/// Samples once per second.
fn looks(telemetry: &mut Telemetry, count: usize) -> Vec<Vec<GpuSample>> {
    let time = Cell::new(0.0);
    let now = || {
        time.set(time.get() + 0.001);
        time.get()
    };
    let look = |_| {
        time.set(f64::floor(time.get()) + 1.0);
        telemetry.look(now)
    };
    (0..count).map(look).collect()
}

/// Samples of the GPUs of a scenario.
fn watched(name: &str, count: usize) -> (Vec<Gpu>, Vec<Vec<GpuSample>>) {
    play(&format!("watch/{name}"), |library| watched_through(library, count))
}

fn watched_through(library: &Path, count: usize) -> (Vec<Gpu>, Vec<Vec<GpuSample>>) {
    let mut telemetry = Telemetry::open(Some(library)).expect("a driver");
    let gpus = telemetry.gpus().map(|watched| watched.gpu.clone()).collect();
    let seen = looks(&mut telemetry, count);
    (gpus, seen)
}

/// Samples of a machine with one GPU, `unit`.
fn watched_alone(unit: Unit, count: usize) -> (Vec<Gpu>, Vec<Vec<GpuSample>>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("unit.toml");
    Scenario { gpu: vec![unit], ..Scenario::default() }.save(&file).expect("it is written");
    play_file(&file, |library| watched_through(library, count))
}

fn watched_unit(unit: Unit, count: usize) -> Vec<GpuSample> {
    watched_alone(unit, count).1.into_iter().flatten().collect()
}

#[test]
fn every_figure_of_a_gpu_is_read() {
    let phase = Phase {
        samples: 9,
        swing_percent: None,
        lost: false,
        hang_ms: None,
        uuid: None,
        memory_free_mib: Some(95_000),
        memory_growth_mib: None,
        utilisation_percent: Some([97, 48]),
        power_draw_mw: Some(560_000),
        enforced_power_limit_mw: Some(650_000),
        clocks_mhz: Some([1755, 3201]),
        performance_state: Some(2),
        throttle: Some(vec![Reason::SwPowerCap, Reason::GpuIdle]),
        temperature_c: Some(58),
        pcie: Some([4, 8]),
        pcie_kb_s: None,
        counters: Some(Counted {
            sm: Some(83.0),
            occupancy: Some(41.5),
            tensor: Some(36.0),
            dram: Some(52.0),
            to_gpu_mib_s: Some(2.0),
            from_gpu_mib_s: Some(1.0),
        }),
        processes: Some(vec![fake_nvml::Process { pid: Some(5120), memory_mib: 47_600 }]),
    };
    let mut unit = Scenario::load(&scenario("watch/training")).expect("a scenario").gpu.remove(0);
    unit.phases = vec![phase];
    let seen = watched_unit(unit, 2);
    let sample = &seen[1];
    assert_eq!((sample.utilisation_percent, sample.memory_activity_percent), (Some(97.0), Some(48.0)));
    assert_eq!((sample.sm_activity_percent, sample.sm_occupancy_percent), (Some(83.0), Some(41.5)));
    assert_eq!((sample.tensor_activity_percent, sample.dram_activity_percent), (Some(36.0), Some(52.0)));
    assert_eq!(sample.memory_used_bytes, Some((143_771 - 1123 - 95_000) << 20));
    assert_eq!((sample.power_mw, sample.power_limit_mw), (Some(560_000), Some(650_000)));
    assert_eq!(
        (sample.sm_clock_mhz, sample.memory_clock_mhz, sample.temperature_c),
        (Some(1755), Some(3201), Some(58))
    );
    assert_eq!(sample.performance_state, Some(2));
    assert_eq!(sample.throttle, [Throttle::PowerCap]);
    assert_eq!((sample.pcie_generation, sample.pcie_lanes), (Some(4), Some(8)));
    assert_eq!((sample.pcie_to_gpu_bytes_per_s, sample.pcie_from_gpu_bytes_per_s), (Some(2 << 20), Some(1 << 20)));
    let processes = sample.processes.as_deref().expect("they are known");
    assert_eq!((processes.len(), processes[0].pid, processes[0].memory_bytes), (1, 5120, Some(47_600 << 20)));
    assert_eq!(sample.trouble, None);
}

#[test]
fn constant_properties_are_read_once() {
    let (gpus, seen) = watched("eight-h200", 1);
    assert_eq!((gpus.len(), seen[0].len()), (8, 8));
    let gpu = &gpus[2];
    assert_eq!((gpu.gpu, gpu.name.as_deref(), gpu.mig_slot), (2, Some("NVIDIA H200"), None));
    assert_eq!(gpu.uuid.as_deref(), Some("GPU-1ad02000-0000-4000-8000-000000000003"));
    assert_eq!((gpu.memory_total_bytes, gpu.default_power_limit_mw), (Some(143_771 << 20), Some(700_000)));
    assert_eq!((gpu.max_sm_clock_mhz, gpu.max_pcie_generation, gpu.max_pcie_lanes), (Some(1980), Some(5), Some(16)));
    assert_eq!(gpu.max_memory_clock_mhz, Some(3201));
    let times: Vec<_> = seen[0].iter().map(|sample| sample.at).collect();
    assert!(times.is_sorted() && times[0] < times[7], "each has its own moment: {times:?}");
}

#[test]
fn counters_need_two_looks_and_a_driver_that_has_them() {
    let (_, seen) = watched("training", 9);
    let activity: Vec<_> = seen.iter().map(|look| look[0].sm_activity_percent).collect();
    assert_eq!(activity[0], None);
    assert!(activity[1..].iter().all(Option::is_some), "{activity:?}");
    let (_, seen) = watched("no-counters", 9);
    assert!(seen.iter().all(|look| look[0].sm_activity_percent.is_none()));
    assert!(seen[8][0].utilisation_percent.is_some_and(|percent| percent > 20.0));
}

#[test]
fn samples_of_counters_are_given_back() {
    let (held, left) = play("watch/training", |library| {
        // SAFETY: the fake library runs no code when it is loaded.
        let fake = unsafe { Library::new(library) }.expect("the fake");
        // SAFETY: the symbol is of this type.
        let samples = unsafe { fake.get::<unsafe extern "C" fn() -> isize>(b"fake_nvml_samples\0") }.expect("a symbol");
        let mut telemetry = Telemetry::open(Some(library)).expect("a driver");
        looks(&mut telemetry, 20);
        // SAFETY: it takes nothing and reads a number of this thread.
        let held = unsafe { samples() };
        drop(telemetry);
        // SAFETY: as above.
        (held, unsafe { samples() })
    });
    assert_eq!((held, left), (1, 0));
}

#[test]
fn throughput_is_queried_rarely_and_only_without_counters() {
    let (_, seen) = watched("power-cap", 12);
    let throughput: Vec<_> = seen.iter().map(|look| look[0].pcie_to_gpu_bytes_per_s).collect();
    // The driver limits its queries by real time, and all these samples happen at one moment.
    assert_eq!(throughput[0], Some(300_000));
    assert!(throughput[1..].iter().all(Option::is_none), "{throughput:?}");
    let (_, seen) = watched("lost-between", 2);
    let throughput: Vec<Vec<_>> =
        seen.iter().map(|look| look.iter().map(|gpu| gpu.pcie_to_gpu_bytes_per_s.is_some()).collect()).collect();
    assert_eq!(throughput, [[true, false], [false, true]], "one GPU in a look");
}

#[test]
fn a_lost_gpu_hides_no_other_and_comes_back() {
    let (_, seen) = watched("lost-between", 20);
    let power: Vec<_> = seen.iter().map(|look| (look[0].power_mw.is_some(), look[1].power_mw.is_some())).collect();
    assert!(power.iter().all(|(first, _)| *first));
    let away: Vec<_> = (0..20).filter(|look| !power[*look].1).collect();
    // Two phases of 3 and 6 samples; opening used up the first.
    assert_eq!(away, [8, 9, 10, 11, 12]);
    let lost = &seen[9][1];
    assert!(lost.trouble.as_deref().is_some_and(|why| why.starts_with("the GPU is lost")), "{lost:?}");
    assert_eq!((lost.gpu, lost.processes.as_ref()), (1, None));
}

#[test]
fn a_replaced_gpu_is_not_mistaken_for_the_lost_one() {
    let unit = Scenario::load(&scenario("watch/idle")).expect("a scenario").gpu.remove(0);
    let lost = Phase { lost: true, ..quiet(2) };
    let other = Phase { uuid: Some("GPU-0".to_owned()), ..quiet(2) };
    let seen = watched_unit(Unit { phases: vec![quiet(2), lost, other, quiet(9)], ..unit.clone() }, 7);
    let there: Vec<_> = seen.iter().map(|sample| sample.trouble.is_none()).collect();
    assert_eq!(there, [true, false, false, false, false, true, true]);
    assert!(seen[3].trouble.as_deref().is_some_and(|why| why.contains("another GPU has this index now (GPU-0)")));
    // One without an identifier is believed.
    let lost = Phase { lost: true, ..quiet(2) };
    let unit = Unit { phases: vec![quiet(2), lost, quiet(9)], fails: [(Call::Uuid, Code::Unknown)].into(), ..unit };
    let there: Vec<_> = watched_unit(unit, 4).iter().map(|sample| sample.trouble.is_none()).collect();
    assert_eq!(there, [true, false, false, true]);
}

fn quiet(samples: u32) -> Phase {
    Phase { samples, ..Phase::default() }
}

#[test]
fn a_gpu_that_cannot_be_opened_at_first_is_added_later() {
    let unit = Scenario::load(&scenario("watch/idle")).expect("a scenario").gpu.remove(0);
    let lost = Phase { lost: true, ..quiet(2) };
    let seen = watched_unit(Unit { phases: vec![lost, quiet(9)], ..unit }, 12);
    // No sample before the tenth, which retries.
    assert_eq!(seen.len(), 0, "it is lost at that look, too: {seen:?}");
    let unit = Scenario::load(&scenario("watch/idle")).expect("a scenario").gpu.remove(0);
    let lost = Phase { lost: true, ..quiet(1) };
    let seen = watched_unit(Unit { phases: vec![lost, quiet(9)], ..unit }, 12);
    assert_eq!(seen.len(), 3, "looks 10 to 12");
}

#[test]
fn slices_follow_their_gpu() {
    let (gpus, seen) = watched("mig", 2);
    let places: Vec<_> =
        gpus.iter().map(|gpu| (gpu.gpu, gpu.mig_slot, gpu.memory_total_bytes.map(|bytes| bytes >> 20))).collect();
    assert_eq!(places, [(0, None, Some(143_771)), (0, Some(0), Some(16_384)), (0, Some(1), Some(16_384))]);
    let [whole, first, second] = &seen[1][..] else { panic!("{seen:?}") };
    assert_eq!((whole.power_mw, first.power_mw), (Some(214_000), None));
    assert_eq!((first.memory_used_bytes, first.sm_activity_percent), (Some((16_384 - 5200) << 20), Some(88.0)));
    assert_eq!((first.processes.as_ref().map(Vec::len), second.processes.as_ref().map(Vec::len)), (Some(1), Some(0)));
    assert_eq!((whole.mig_slot, second.mig_slot), (None, Some(1)));
}

#[test]
fn throttle_reasons_are_distinguished() {
    let cases: [(&[Reason], &[Throttle]); 7] = [
        (&[Reason::ApplicationsClocks], &[Throttle::ClockSetting]),
        (&[Reason::GpuIdle, Reason::ApplicationsClocks], &[]),
        (&[Reason::HwSlowdown], &[Throttle::Hardware]),
        (
            &[Reason::HwSlowdown, Reason::HwThermal, Reason::SwThermal],
            &[Throttle::ThermalSoftware, Throttle::ThermalHardware],
        ),
        (&[Reason::HwSlowdown, Reason::HwPowerBrake], &[Throttle::PowerBrake]),
        (&[Reason::SyncBoost, Reason::FromTheFuture], &[Throttle::SyncBoost]),
        (&[Reason::FromTheFuture], &[]),
    ];
    for (reasons, expected) in cases {
        let seen = watched_unit(Unit { throttle: Some(reasons.to_vec()), ..Unit::default() }, 1);
        assert_eq!(seen[0].throttle, expected, "{reasons:?}");
    }
}

#[test]
fn implausible_figures_are_left_out() {
    let max = u32::MAX;
    let nonsense = Unit {
        utilisation_percent: Some([max, 111]),
        power_draw_mw: Some(max),
        power_limit_mw: Some(0),
        clocks_mhz: Some([max, max]),
        performance_state: Some(32),
        temperature_c: Some(max),
        pcie: Some([0, max]),
        memory_total_mib: Some(100),
        memory_free_mib: Some(200),
        counters: Some(Counted {
            sm: Some(f64::NAN),
            occupancy: Some(-1.0),
            tensor: Some(100.4),
            dram: Some(f64::INFINITY),
            to_gpu_mib_s: Some(f64::MAX),
            from_gpu_mib_s: Some(-0.5),
        }),
        ..Unit::default()
    };
    let seen = watched_unit(nonsense, 2).remove(1);
    let mut expected = GpuSample::new(seen.at, 0);
    expected.tensor_activity_percent = Some(100.0);
    expected.pcie_to_gpu_bytes_per_s = seen.pcie_to_gpu_bytes_per_s;
    assert_eq!(seen, expected);
}

#[test]
fn figures_beyond_the_board_and_its_link_are_left_out() {
    let board = |watts: u32, kb_s: u32| Unit {
        default_power_limit_mw: Some(450_000),
        power_draw_mw: Some(watts * 1000),
        pcie_max: Some([4, 16]),
        pcie_kb_s: Some([kb_s, 0]),
        ..Unit::default()
    };
    // The counter of the link ran over: 4,295 GB/s.
    for (unit, power_mw, bytes_per_s) in
        [(board(3700, u32::MAX), None, None), (board(470, 28_000_000), Some(470_000), Some(28_000_000_000))]
    {
        let seen = watched_unit(unit, 1).remove(0);
        assert_eq!((seen.power_mw, seen.pcie_to_gpu_bytes_per_s), (power_mw, bytes_per_s));
        assert_eq!(seen.pcie_from_gpu_bytes_per_s, Some(0));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_gpu_with_unified_memory_has_the_hosts_memory_and_no_link() {
    // A GB10 reports generation 1 and one lane in place of a link.
    let gb10 = Unit {
        name: Some("NVIDIA GB10".to_owned()),
        compute_capability: Some([12, 1]),
        utilisation_percent: Some([97, 0]),
        pcie: Some([1, 1]),
        pcie_max: Some([5, 16]),
        ..Unit::default()
    };
    let (gpus, seen) = watched_alone(gb10, 1);
    let gpu = &gpus[0];
    assert!(gpu.unified_memory && gpu.memory_total_bytes.is_some_and(|bytes| bytes > 0), "{gpu:?}");
    assert_eq!((gpu.max_pcie_generation, gpu.max_pcie_lanes), (None, None));
    let sample = &seen[0][0];
    assert_eq!((sample.pcie_generation, sample.pcie_lanes, sample.pcie_to_gpu_bytes_per_s), (None, None, None));
    assert!(sample.memory_used_bytes > Some(0) && sample.memory_used_bytes < gpu.memory_total_bytes, "{sample:?}");
    assert_eq!((sample.utilisation_percent, sample.power_mw), (Some(97.0), None));
}

#[test]
fn every_machine_can_be_watched_whatever_it_answers() {
    for file in fake_nvml::scenarios().into_iter().chain(fake_nvml::watch_scenarios()) {
        play_file(&file, |library| match Telemetry::open(Some(library)) {
            Ok(mut telemetry) => {
                let gpus = telemetry.gpus().count();
                assert!(looks(&mut telemetry, 3).iter().all(|look| look.len() == gpus), "{}", file.display());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        });
    }
}

#[test]
fn a_missing_driver_is_an_error() {
    let error = Telemetry::open(Some(Path::new("/nonexistent/libnvidia-ml.so.1"))).expect_err("there is none");
    assert!(matches!(error, DriverError::NoLibrary { .. }), "{error}");
}
