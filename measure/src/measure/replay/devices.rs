//! The entry of a lock for the GPU that a program was built for.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use burn::module::Module;
use gpu_tuned_core::Precision;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::measured::{Measured, MeasuredMode, MeasuredOn, Mode};
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_project::resolved::Resolved;
use gpu_tuned_train::device::catching;

use super::Traces;
use crate::measure::bench::Bench;
use crate::measure::report;
use crate::measure::target::BuiltFor;
use crate::versions;

/// Release of Burn whose simulated steps were compared with a GPU's.
const BURN: &str = "0.22.";

/// After this nothing more is recorded: steps of a large model take a CPU long.
const PATIENCE: Duration = Duration::from_secs(8);

/// Memory of steps on the GPU that the program was built for, by the name of its lock entry. Prints the reason if it
/// cannot be simulated.
pub(in crate::measure) fn devices<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    built: BuiltFor,
    package: Option<&Path>,
) -> BTreeMap<String, MeasuredOn> {
    let Some(profile) = profile(built) else { return BTreeMap::new() };
    let (gpu, burn) = (DeviceFacts::nominal(&profile), versions::burn(package));
    report::replaying(profile.id.as_str());
    if !burn.starts_with(BURN) {
        report::not_replayed(&"this release of Burn was never compared with a GPU");
        return BTreeMap::new();
    }
    let mode = modes(bench, &gpu);
    if mode.is_empty() {
        return BTreeMap::new();
    }
    let on = MeasuredOn {
        device: format!("{} (simulated from steps of a CPU)", profile.id),
        kind: gpu.kind,
        memory_bytes: gpu.memory_total,
        sm_count: gpu.sm_count,
        // Nothing was timed that could be carried over by them.
        fp32_tflops: None,
        bandwidth_gb_s: None,
        driver: None,
        burn,
        cubecl: Some(versions::cubecl(package)),
        context_bytes: None,
        kernels_bytes: None,
        mode,
    };
    BTreeMap::from([(Measured::simulated_name(profile.id.as_str()), on)])
}

/// The GPU that the program was built for, of several the one with the most memory; else the generic one. What is
/// replayed hardly depends on it: pages are at most a quarter of its memory, and points lie where they matter to it.
fn profile(built: BuiltFor) -> Option<Profile> {
    let table = built.table.and_then(|table| Resolved::embedded(table).ok());
    let named = |id: &str| {
        let own = table.and_then(|table| table.profile.get(id).cloned());
        own.or_else(|| ProfileTable::builtin_profile(id))
    };
    let targets = built.targets.iter().filter_map(|id| named(id));
    targets.max_by_key(|profile| profile.memory.usable()).or_else(|| named(ProfileId::GENERIC))
}

fn modes<M: Module, B: Clone>(bench: &Bench<'_, '_, M, B>, gpu: &DeviceFacts) -> BTreeMap<Mode, MeasuredMode> {
    let begin = Instant::now();
    let mut modes = BTreeMap::new();
    for checkpointing in bench.subject.checkpointing().iter().copied() {
        if begin.elapsed() > PATIENCE {
            report::not_replayed(&"a step with checkpointing: those without took the CPU too long");
            break;
        }
        let traces = match Traces::record(bench.device, bench.subject, checkpointing) {
            Ok(traces) => traces,
            Err(error) => {
                report::not_replayed(&error);
                continue;
            }
        };
        for precision in [Precision::F32, Precision::Bf16Params] {
            let mode = Mode::new(precision, checkpointing);
            let measured = || traces.measured(precision, bench.largest_batch, bench.global, gpu.memory_total);
            match catching(measured) {
                Ok(Some(found)) => {
                    report::replayed(mode, &found);
                    modes.insert(mode, found);
                }
                Ok(None) => report::not_replayed(&"one sample is more than the GPU allocates at once"),
                Err(message) => report::not_replayed(&message),
            }
        }
    }
    modes
}
