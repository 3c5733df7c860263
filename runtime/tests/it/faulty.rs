//! 600 machines with a GPU of the profile table, whose drivers leave figures out or report wrong ones.

use fake_nvml::{Scenario, Unit};
use gpu_tuned::{Bytes, DeviceFacts, Fallback, GpuReading, Options, StartError};
use gpu_tuned_core::profile::{Profile, ProfileTable};
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Goal, plan};

use super::generated::{board, look};

const MACHINES: u64 = 600;
/// Memory that no GPU has.
const ABSURD_MIB: u64 = u64::MAX >> 21;
/// Largest ratio of the micro-batch by all figures to that by some of them. A GPU without name and compute capability is the
/// farthest off.
const LARGEST_RATIO: u64 = 8;

config! {
    ForAnyGpu, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "generic"
}

/// Numbers that look random and are the same in each run (splitmix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.roll(all.len() as u64) as usize]
    }
}

/// Removes one figure in three, and replaces one in ten by a wrong one.
fn spoil(unit: &mut Unit, dice: &mut Dice) {
    fn figure<T: Copy>(figure: &mut Option<T>, wrong: &[T], dice: &mut Dice) {
        match dice.roll(30) {
            0..10 => *figure = None,
            10..13 => *figure = Some(dice.pick(wrong)),
            _ => {}
        }
    }
    let rates = [1, 7, 405, 1_000_000, u32::MAX];
    figure(&mut unit.cores, &rates, dice);
    figure(&mut unit.bus_bits, &rates, dice);
    figure(&mut unit.memory_clock_mhz, &rates, dice);
    figure(&mut unit.sm_clock_mhz, &rates, dice);
    figure(&mut unit.memory_free_mib, &[u64::MAX >> 20], dice);
    if unit.memory_free_mib.is_some() {
        // Without a figure the player reports what the driver does not reserve as free.
        figure(&mut unit.memory_reserved_mib, &[u64::MAX >> 20], dice);
    }
    figure(&mut unit.compute_capability, &[[0, 0], [-1, 3], [99, 9], [13, 0], [5, 2]], dice);
    figure(&mut unit.pcie, &[[1, 1], [0, 0], [u32::MAX; 2]], dice);
    if dice.roll(3) == 0 {
        unit.pci_id = None;
    }
    match dice.roll(10) {
        0 | 1 => unit.name = None,
        2 => unit.name = Some("NVIDIA Graphics Device".to_owned()),
        3 => unit.name_bytes = Some(vec![0xff, 0xfe, b'x']),
        _ => {}
    }
    match dice.roll(20) {
        0 => unit.memory_total_mib = None,
        1 => unit.memory_total_mib = Some(ABSURD_MIB),
        _ => {}
    }
}

/// Sets the memory of a GPU that shares the host's to that of its profile: this host may have less.
fn set_host_memory(gpu: &mut GpuReading, profile: &Profile) {
    if gpu.unified_memory {
        let memory: Bytes = profile.memory.usable();
        (gpu.memory_total, gpu.memory_free) = (Some(memory), Some(memory));
    }
}

#[test]
fn no_missing_or_wrong_figure_makes_a_micro_batch_of_one_or_a_silent_cpu_plan() {
    let profiles: Vec<_> = ProfileTable::builtin().iter().filter(|profile| !profile.names.is_empty()).collect();
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    let goal = Goal { global_batch: Some(512), ..Goal::default() };
    let mut on_gpus = 0;
    for number in 0..MACHINES {
        let profile = profiles[number as usize % profiles.len()];
        let mut unit = board(profile);
        spoil(&mut unit, &mut Dice(number));
        let mut machine = look(&Scenario { gpu: vec![unit.clone()], ..Scenario::default() }, "faulty");
        let [gpu] = &mut machine.gpus[..] else { panic!("{:?}", machine.trouble) };
        set_host_memory(gpu, profile);
        let full = plan(&DeviceFacts::nominal(profile), &workload, &goal);
        let decision = match Options::default().machine(machine).decide(&ForAnyGpu::default()) {
            Ok(decision) => decision,
            Err(StartError::Plan(error)) => {
                assert!(full.is_err(), "{number}, {}: {error}\n{unit:?}", profile.id);
                continue;
            }
            Err(error) => panic!("{number}, {}: {error}", profile.id),
        };
        if decision.selection.device().is_none() {
            let reasons: Vec<_> = decision
                .selection
                .fallbacks
                .iter()
                .filter_map(|fallback| match fallback {
                    Fallback::NoGpu { because } => Some(because),
                    _ => None,
                })
                .flatten()
                .collect();
            let refusal = match unit.memory_total_mib {
                None => "the driver does not report its memory",
                Some(ABSURD_MIB) => "more than such a GPU has",
                Some(_) => "GPU 0 (without a name) cannot train: CUDA 13 has dropped compute capability 5.2",
            };
            let is_refused = full.is_err() || reasons.iter().any(|reason| reason.contains(refusal));
            assert!(!reasons.is_empty() && is_refused, "{number}, {}: {decision}", profile.id);
            continue;
        }
        on_gpus += 1;
        let Ok(full) = full else { continue };
        let (full, found) = (full.settings.batch_size, decision.plan.settings.batch_size);
        let least = if full >= 16 { full / LARGEST_RATIO } else { 1 };
        assert!(found >= least, "{number}, {}: {found} of {full}\n{unit:?}\n{decision}", profile.id);
    }
    assert!(on_gpus > MACHINES / 2, "{on_gpus}");
}
