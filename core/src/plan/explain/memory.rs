//! Memory, item by item.

use serde::Serialize;

use super::Asked;
use crate::plan::calibration::{self, PERSISTENT_RESERVE};
use crate::plan::{MemoryEstimate, host};
use crate::{Bytes, Provenance, grouped};

/// One item of the memory that training is predicted to take.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Item {
    /// What takes it.
    pub name: &'static str,
    /// How its bytes come about: `29,660 x 4 B`.
    pub formula: String,
    /// The bytes.
    pub bytes: Bytes,
    /// What stands behind the figures.
    pub provenance: Provenance,
}

/// The items that take anything.
pub(super) fn items(asked: &Asked<'_>, estimate: &MemoryEstimate, checkpointing: bool) -> Vec<Item> {
    let taken = estimate.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
    let item = |(name, bytes)| {
        let (formula, provenance) = formula(name, asked, estimate, checkpointing);
        Item { name, formula, bytes, provenance }
    };
    taken.map(item).collect()
}

fn formula(name: &str, asked: &Asked<'_>, estimate: &MemoryEstimate, checkpointing: bool) -> (String, Provenance) {
    let Asked { device, workload, goal, precision } = asked;
    let (parameters, sample) = (&workload.parameters, &workload.sample);
    let each = precision.parameter_bytes();
    let held = |values: u64, each: u64| format!("{} x {each} B", grouped(values));
    let kept = |bytes: Bytes| {
        let scale = precision.activation_scale();
        let scaled = if scale < 1.0 { format!(" x {scale}") } else { String::new() };
        format!("{} x {} B{scaled}", grouped(estimate.batch), grouped(bytes.0))
    };
    let formula = match name {
        "weights" | "gradients" | "accumulated gradients" => held(parameters.trained(), each),
        "frozen weights" => sum([
            (parameters.frozen > 0).then(|| held(parameters.frozen, each)),
            (parameters.packed > Bytes::ZERO).then(|| format!("{} B packed", grouped(parameters.packed.0))),
        ]),
        "copies of weights" if checkpointing => held(parameters.copies_checkpointed, each),
        "copies of weights" => held(parameters.copies, each),
        "optimizer state" => {
            let each = if workload.optimizer.keeps_f32() { 4 } else { each };
            let ranks = if goal.shard_optimizer { goal.world_size } else { 1 };
            let shared = if ranks > 1 { format!(" / {ranks} ranks") } else { String::new() };
            format!("{}{shared}", held(parameters.state(workload.optimizer), each))
        }
        "activations" => kept(sample.checkpointed_activations.filter(|_| checkpointing).unwrap_or(sample.activations)),
        "layer scratch" => kept(sample.scratch),
        "input batches" => {
            let queued = host::prefetch_depth(workload, goal, estimate.batch).saturating_add(1);
            let input = sample.input.unwrap_or_default();
            format!("{queued} batches x {} x {} B", grouped(estimate.batch), grouped(input.0))
        }
        "allocator reserve" => reserve(asked, estimate),
        "kernels" => {
            let each = calibration::of(workload.family).kernels_per_sm;
            format!("{} multiprocessors x {each}", device.sm_count)
        }
        _ => "before the first tensor".to_owned(),
    };
    let of_device = ["allocator reserve", "kernels", "device context"].contains(&name);
    (formula, if of_device { Provenance::Derived } else { workload.provenance })
}

/// What lives for one step and what lives as long as the run, each with the share that is reserved beyond it.
fn reserve(asked: &Asked<'_>, estimate: &MemoryEstimate) -> String {
    let kind = asked.device.kind;
    let step = estimate.gradients + estimate.accumulated_gradients + estimate.activations + estimate.inputs;
    let run = estimate.weights + estimate.frozen_weights + estimate.weight_copies + estimate.optimizer_state;
    let pools = calibration::pools(kind);
    let share = |factor: f64, of: Bytes, what: &str| format!("{:.2} x {:.1} MiB {what}", factor - 1.0, of.mib());
    sum([
        Some(share(calibration::of(asked.workload.family).reserve(kind), step, "of a step")),
        Some(share(PERSISTENT_RESERVE, run, "of the run")),
        (pools > Bytes::ZERO).then(|| format!("{pools} of pools")),
    ])
}

fn sum<const N: usize>(terms: [Option<String>; N]) -> String {
    terms.into_iter().flatten().collect::<Vec<_>>().join(" + ")
}
