//! What would fill a device that a model is too small for. The model itself is never changed.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{filling, plan};
use gpu_tuned_core::workload::{ModelSpec, Stage, WorkloadSpec};
use gpu_tuned_core::{Goal, Pins};
use serde::Serialize;

/// Below this share of the time in which the device computes, it waits more than it works.
const BUSY: f64 = 0.5;
/// What is worth a line: so much more of the time, as a share.
const WORTHWHILE: f64 = 0.05;

/// What fills a device better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct TooSmall {
    /// Predicted share of the time in which the device computes.
    pub utilization: f64,
    /// Changes of the model, from what helps most.
    pub larger: Vec<Larger>,
}

/// A change of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Larger {
    pub change: String,
    pub utilization: f64,
    /// Arithmetic of a sample, relative to the model as it is.
    pub flops_ratio: f64,
    /// Predicted samples per second, relative to the same.
    pub samples_per_s_ratio: f64,
}

/// The advice, where the device computes less than half of the time. For models that are described by dimensions.
pub(super) fn of(facts: &DeviceFacts, spec: &WorkloadSpec, goal: &Goal, utilization: f64) -> Option<TooSmall> {
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

/// Larger models of the kind: wider, deeper, over longer sequences or larger images.
fn variants(model: &ModelSpec) -> Vec<(String, ModelSpec)> {
    let changed = |what: &str, name: &str, from: u64, to: u64| format!("{what} ({name} {from} -> {to})");
    match model {
        ModelSpec::Transformer(now) => {
            let (width, layers, seq) = (now.d_model * 2, now.layers * 2, now.seq * 2);
            let wide = now.clone();
            vec![
                (
                    changed("wider", "d_model", now.d_model, width),
                    gpu_tuned_core::workload::Transformer {
                        d_model: width,
                        heads: now.heads.map(|heads| heads * 2),
                        kv_heads: now.kv_heads.map(|heads| heads * 2),
                        d_ff: now.d_ff.map(|wide| wide * 2),
                        ..wide
                    }
                    .into(),
                ),
                (
                    changed("deeper", "layers", now.layers, layers),
                    gpu_tuned_core::workload::Transformer { layers, ..now.clone() }.into(),
                ),
                (
                    changed("longer sequences", "seq", now.seq, seq),
                    gpu_tuned_core::workload::Transformer { seq, ..now.clone() }.into(),
                ),
            ]
        }
        ModelSpec::Recurrent(now) => {
            let of = |factor: u64| {
                (
                    changed("wider", "hidden", now.hidden, now.hidden * factor),
                    gpu_tuned_core::workload::Recurrent { hidden: now.hidden * factor, ..now.clone() }.into(),
                )
            };
            let (layers, seq) = (now.layers * 2, now.seq * 2);
            vec![
                of(2),
                of(8),
                (
                    changed("deeper", "layers", now.layers, layers),
                    gpu_tuned_core::workload::Recurrent { layers, ..now.clone() }.into(),
                ),
                (
                    changed("longer sequences", "seq", now.seq, seq),
                    gpu_tuned_core::workload::Recurrent { seq, ..now.clone() }.into(),
                ),
            ]
        }
        ModelSpec::Convnet(now) => {
            let stages = |channels: u64, blocks: u64| {
                let stage =
                    |stage: &Stage| Stage { channels: stage.channels * channels, blocks: stage.blocks * blocks };
                ModelSpec::from(gpu_tuned_core::workload::Convnet {
                    stages: now.stages.iter().map(stage).collect(),
                    ..now.clone()
                })
            };
            let first = now.stages.first().copied().unwrap_or(Stage { channels: 0, blocks: 0 });
            let image = now.image * 2;
            vec![
                (changed("wider", "channels", first.channels, first.channels * 2), stages(2, 1)),
                (changed("deeper", "blocks", first.blocks, first.blocks * 2), stages(1, 2)),
                (
                    changed("larger patches", "image", now.image, image),
                    gpu_tuned_core::workload::Convnet { image, ..now.clone() }.into(),
                ),
            ]
        }
        ModelSpec::Unet(now) => {
            let widths = now.widths.iter().map(|width| width * 2).collect();
            let (first, image) = (now.widths.first().copied().unwrap_or_default(), now.image * 2);
            vec![
                (
                    changed("wider", "channels", first, first * 2),
                    gpu_tuned_core::workload::Unet { widths, ..now.clone() }.into(),
                ),
                (
                    changed("larger patches", "image", now.image, image),
                    gpu_tuned_core::workload::Unet { image, ..now.clone() }.into(),
                ),
            ]
        }
        ModelSpec::Mlp(now) => {
            let last = now.widths.len().saturating_sub(1);
            let wider = |factor: u64| {
                let inner =
                    |(index, width): (usize, &u64)| if index == 0 || index == last { *width } else { width * factor };
                gpu_tuned_core::workload::Mlp { widths: now.widths.iter().enumerate().map(inner).collect() }
            };
            let hidden = now.widths.get(1).copied().unwrap_or_default();
            [2, 8].map(|factor| (changed("wider", "hidden", hidden, hidden * factor), wider(factor).into())).to_vec()
        }
        ModelSpec::Declared(_) => Vec::new(),
    }
}
