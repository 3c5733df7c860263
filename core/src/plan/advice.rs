//! Changes for a better run that only the user may make.

use super::candidates::{self, Sizes};
use super::choice::Choice;
use super::graphs::Graphs;
use crate::device::DeviceFacts;
use crate::workload::Workload;
use crate::{Goal, Precision};

/// Ratio of throughputs above which a larger global batch is worth an advice.
const WORTHWHILE_GAIN: f64 = 1.05;

/// Advice on the gain of a larger global batch, when this one is too small to fill the device.
pub(super) fn larger_batch(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    precision: Precision,
    choice: &Choice,
) -> Option<String> {
    let global = goal.global_batch.filter(|_| choice.best.micro_steps == 1 && goal.pins.is_empty())?;
    let free = Goal { global_batch: None, ..goal.clone() };
    let modes = candidates::modes(device, workload, &free, precision);
    let unbound = Choice::among(Sizes::All, device, workload, &free, modes).ok()??;
    let gain = unbound.best.samples_per_s / choice.best.samples_per_s;
    let larger = unbound.best.batch * goal.world_size;
    (larger > global && gain >= WORTHWHILE_GAIN).then(|| {
        format!(
            "a global batch of {global} does not fill {}: {larger} would run about {gain:.1}x as many samples per second \
             ({}). The plan keeps {global}, because another global batch would change the run",
            device.name, unbound.best.provenance
        )
    })
}

/// Advice to allow CUDA graphs that gain enough.
pub(super) fn graphs(goal: &Goal, choice: &Choice) -> Option<String> {
    let Graphs::Measured { gain } = choice.graphs else { return None };
    if goal.allow_cuda_graphs.is_some() || !choice.graphs.are_worthwhile() {
        return None;
    }
    Some(format!(
        "CUDA graphs would run {:.1}x as many samples per second (measured). To let the plan use them, add a field \
         `#[tuned] cuda_graphs: bool`, or set `allow_cuda_graphs = true`. Replayed micro-batches do not call the loss \
         function, so a function that also counts or collects must not use them",
        1.0 + gain
    ))
}
