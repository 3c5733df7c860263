//! Larger models that would fill a device. The config's model is never changed.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::dims::DimValue;
use gpu_tuned_core::plan::{filling, plan};
use gpu_tuned_core::workload::{ModelSpec, WorkloadSpec};
use gpu_tuned_core::{Goal, Pins};
use serde::Serialize;

/// Utilization below which a device is idle most of the time.
const BUSY: f64 = 0.5;
/// Smallest gain of utilization that is reported.
const WORTHWHILE: f64 = 0.05;

/// A model that is too small for a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TooSmall {
    /// Predicted share of the time in which the device computes.
    pub utilization: f64,
    /// Larger models, by falling utilization.
    pub larger: Vec<Larger>,
}

/// A larger model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Larger {
    /// The change of the model: `wider (hidden 64 -> 512)`.
    pub change: String,
    /// Predicted share of the time in which the device computes.
    pub utilization: f64,
    /// Arithmetic of a sample, relative to the model as it is.
    pub flops_ratio: f64,
    /// Predicted samples per second, relative to the model as it is.
    pub samples_per_s_ratio: f64,
}

/// Larger models, where the device computes less than half of the time.
pub(crate) fn advise(facts: &DeviceFacts, spec: &WorkloadSpec, goal: &Goal, utilization: f64) -> Option<TooSmall> {
    if utilization >= BUSY {
        return None;
    }
    let goal = Goal { pins: Pins::default(), ..goal.clone() };
    let now = spec.workload();
    let speed = plan(facts, &now, &goal).ok()?.samples_per_s;
    let larger = |(change, model): (String, ModelSpec)| {
        let spec = WorkloadSpec { model, training: spec.training.clone() };
        if !spec.mistakes().is_empty() {
            return None;
        }
        let workload = spec.workload();
        let plan = plan(facts, &workload, &goal).ok()?;
        let filled = filling(facts, &workload, &plan).utilization;
        (filled >= utilization + WORTHWHILE).then(|| Larger {
            change,
            utilization: filled,
            flops_ratio: workload.sample.flops / now.sample.flops,
            samples_per_s_ratio: plan.samples_per_s / speed,
        })
    };
    let mut all: Vec<_> = variants(&spec.model).into_iter().filter_map(larger).collect();
    all.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
    Some(TooSmall { utilization, larger: all })
}

/// Changes that make a model of a kind larger: words, the part that is reported, dimensions, and factors.
type Change = (&'static str, &'static str, &'static str, &'static [&'static str], &'static [u64]);
const CHANGES: [Change; 12] = [
    ("transformer", "wider", "d_model", &["d_model", "heads", "kv_heads", "d_ff"], &[2]),
    ("transformer", "deeper", "layers", &["layers"], &[2]),
    ("transformer", "longer sequences", "seq", &["seq"], &[2]),
    ("recurrent", "wider", "hidden", &["hidden"], &[2, 8]),
    ("recurrent", "deeper", "layers", &["layers"], &[2]),
    ("recurrent", "longer sequences", "seq", &["seq"], &[2]),
    ("convnet", "wider", "channels", &["stages"], &[2]),
    ("convnet", "deeper", "blocks", &["stages"], &[2]),
    ("convnet", "larger patches", "image", &["image"], &[2]),
    ("unet", "wider", "channels", &["widths"], &[2]),
    ("unet", "larger patches", "image", &["image"], &[2]),
    ("mlp", "wider", "hidden", &["widths"], &[2, 8]),
];

/// Larger models of the kind, each with its change.
fn variants(model: &ModelSpec) -> Vec<(String, ModelSpec)> {
    let kind = model.kind();
    let changes = CHANGES.iter().filter(|(name, ..)| *name == kind.name);
    let variant = |(change, part, dims, factor): (&str, &str, &[&'static str], u64)| {
        let mut values = model.values();
        let first = dims.iter().filter_map(|dim| grow(values.get_mut(dim)?, part, factor)).collect::<Vec<_>>();
        let from = first.first()?;
        Some((format!("{change} ({part} {from} -> {})", from * factor), ModelSpec::from_values(kind, &values)))
    };
    let all =
        changes.flat_map(|(_, change, part, dims, factors)| factors.iter().map(|it| (*change, *part, *dims, *it)));
    all.filter_map(variant).collect()
}

/// Multiplies a part of a dimension, and returns its first number before.
fn grow(value: &mut DimValue, part: &str, factor: u64) -> Option<u64> {
    let numbers: Vec<&mut u64> = match value {
        DimValue::Count(count) => vec![count],
        DimValue::Stages(stages) => stages.iter_mut().map(|stage| &mut stage[usize::from(part == "blocks")]).collect(),
        // The input and the result keep their sizes.
        DimValue::Counts(widths) if part == "hidden" => {
            let last = widths.len().saturating_sub(1);
            widths.get_mut(1..last)?.iter_mut().collect()
        }
        DimValue::Counts(widths) => widths.iter_mut().collect(),
        _ => return None,
    };
    let first = **numbers.first()?;
    for number in numbers {
        *number *= factor;
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Goal;
    use gpu_tuned_core::device::DeviceFacts;
    use gpu_tuned_core::plan::{filling, plan};
    use gpu_tuned_core::profile::ProfileTable;
    use gpu_tuned_core::workload::{Recurrent, Transformer, WorkloadSpec};

    use super::{TooSmall, advise};

    fn advice(spec: &WorkloadSpec) -> Option<TooSmall> {
        let device = DeviceFacts::nominal(ProfileTable::builtin().get("h200").expect("a shipped profile"));
        let goal = Goal { global_batch: Some(128), ..Goal::default() };
        let plan = plan(&device, &spec.workload(), &goal).expect("it fits");
        advise(&device, spec, &goal, filling(&device, &spec.workload(), &plan).utilization)
    }

    #[test]
    fn wider_cells_fill_a_device_and_deeper_or_longer_ones_do_not() {
        let lstm = Recurrent { inputs: 8, hidden: 64, layers: 2, seq: 30, outputs: 1, ..Recurrent::default() };
        let small = advice(&lstm.into()).expect("too small");
        let changes: Vec<_> = small.larger.iter().map(|larger| larger.change.as_str()).collect();
        assert_eq!(changes, ["wider (hidden 64 -> 512)"]);
        assert!(small.larger[0].utilization > small.utilization && small.larger[0].flops_ratio > 8.0, "{small:?}");
    }

    #[test]
    fn a_model_that_fills_the_device_gets_no_advice() {
        assert_eq!(advice(&Transformer::new(12, 768, 50_257, 1024).into()), None);
    }
}
