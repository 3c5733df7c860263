//! Larger models that would fill a device. The config's model is never changed.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{filling, plan};
use gpu_tuned_core::workload::{Convnet, Mlp, ModelSpec, Recurrent, Stage, Transformer, Unet, WorkloadSpec};
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

type Variant = (String, ModelSpec);

/// Larger models of the kind: wider, deeper, with longer sequences or larger images.
fn variants(model: &ModelSpec) -> Vec<Variant> {
    match model {
        ModelSpec::Transformer(now) => transformers(now),
        ModelSpec::Recurrent(now) => recurrent(now),
        ModelSpec::Convnet(now) => convnets(now),
        ModelSpec::Unet(now) => unets(now),
        ModelSpec::Mlp(now) => perceptrons(now),
        ModelSpec::Declared(_) => Vec::new(),
    }
}

fn variant(change: &str, name: &str, [from, to]: [u64; 2], model: impl Into<ModelSpec>) -> Variant {
    (format!("{change} ({name} {from} -> {to})"), model.into())
}

fn transformers(now: &Transformer) -> Vec<Variant> {
    let twice = |size: Option<u64>| size.map(|size| size * 2);
    let (width, layers, seq) = (now.d_model * 2, now.layers * 2, now.seq * 2);
    let (heads, kv_heads, d_ff) = (twice(now.heads), twice(now.kv_heads), twice(now.d_ff));
    let wide = Transformer { d_model: width, heads, kv_heads, d_ff, ..now.clone() };
    vec![
        variant("wider", "d_model", [now.d_model, width], wide),
        variant("deeper", "layers", [now.layers, layers], Transformer { layers, ..now.clone() }),
        variant("longer sequences", "seq", [now.seq, seq], Transformer { seq, ..now.clone() }),
    ]
}

fn recurrent(now: &Recurrent) -> Vec<Variant> {
    let (layers, seq) = (now.layers * 2, now.seq * 2);
    let wider = |factor: u64| {
        let hidden = now.hidden * factor;
        variant("wider", "hidden", [now.hidden, hidden], Recurrent { hidden, ..now.clone() })
    };
    vec![
        wider(2),
        wider(8),
        variant("deeper", "layers", [now.layers, layers], Recurrent { layers, ..now.clone() }),
        variant("longer sequences", "seq", [now.seq, seq], Recurrent { seq, ..now.clone() }),
    ]
}

fn convnets(now: &Convnet) -> Vec<Variant> {
    let stages = |channels: u64, blocks: u64| {
        let stage = |stage: &Stage| Stage { channels: stage.channels * channels, blocks: stage.blocks * blocks };
        Convnet { stages: now.stages.iter().map(stage).collect(), ..now.clone() }
    };
    let first = now.stages.first().copied().unwrap_or(Stage { channels: 0, blocks: 0 });
    let image = now.image * 2;
    vec![
        variant("wider", "channels", [first.channels, first.channels * 2], stages(2, 1)),
        variant("deeper", "blocks", [first.blocks, first.blocks * 2], stages(1, 2)),
        variant("larger patches", "image", [now.image, image], Convnet { image, ..now.clone() }),
    ]
}

fn unets(now: &Unet) -> Vec<Variant> {
    let widths = now.widths.iter().map(|width| width * 2).collect();
    let (first, image) = (now.widths.first().copied().unwrap_or_default(), now.image * 2);
    vec![
        variant("wider", "channels", [first, first * 2], Unet { widths, ..now.clone() }),
        variant("larger patches", "image", [now.image, image], Unet { image, ..now.clone() }),
    ]
}

fn perceptrons(now: &Mlp) -> Vec<Variant> {
    let last = now.widths.len().saturating_sub(1);
    let hidden = now.widths.get(1).copied().unwrap_or_default();
    let wider = |factor: u64| {
        let inner = |(index, width): (usize, &u64)| if index == 0 || index == last { *width } else { width * factor };
        let widths = now.widths.iter().enumerate().map(inner).collect();
        variant("wider", "hidden", [hidden, hidden * factor], Mlp { widths })
    };
    vec![wider(2), wider(8)]
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
