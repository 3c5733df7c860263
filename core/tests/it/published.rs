//! Costs of models as published: `published.toml` has the models with the sources of the figures.

use std::collections::BTreeMap;

use gpu_tuned_core::workload::{Block, Convnet, ModelSpec, Stage, Transformer, WorkloadSpec};
use serde::Deserialize;

#[derive(Deserialize)]
struct Published {
    parameters: u64,
    multiplications: Option<f64>,
    #[serde(flatten)]
    model: ModelSpec,
}

fn published() -> BTreeMap<String, Published> {
    toml::from_str(include_str!("published.toml")).expect("models")
}

#[test]
fn models_have_their_published_parameters_and_multiplications() {
    for (name, Published { parameters, multiplications, model }) in published() {
        let spec = WorkloadSpec::from(model);
        assert_eq!(spec.mistakes(), [], "{name}");
        assert_eq!(spec.parameters(), parameters, "{name}");
        let forward = spec.workload().sample.flops / 6.0;
        let is_near = |published: f64| (forward / published - 1.0).abs() < 0.01;
        assert!(multiplications.is_none_or(is_near), "{name}: {forward:e}");
    }
    let whisper = WorkloadSpec::from(published()["openai/whisper-tiny"].model.clone()).workload().parameters;
    assert_eq!(whisper.trained() + whisper.frozen, 37_760_640);
}

#[test]
fn a_tokens_arithmetic_is_that_of_its_experts_and_of_the_matrix_that_scores_all() {
    for (name, parameters) in [("mistralai/Mixtral-8x7B-v0.1", "1.29e10"), ("Qwen/Qwen3-30B-A3B", "3.34e9")] {
        let ModelSpec::Transformer(model) = &published()[name].model else { panic!("{name}") };
        let active = Transformer { experts: Some(model.experts_per_token), ..model.clone() };
        assert_eq!(format!("{:.2e}", active.parameters() as f64), parameters);
        let idle = model.experts.unwrap_or_default() - model.experts_per_token;
        let scores = 6.0 * (model.layers * model.seq * model.d_model * idle) as f64;
        let [flops, active] = [model, &active].map(|model| model.workload().sample.flops);
        assert!((flops / (active + scores) - 1.0).abs() < 1e-9, "{flops} against {active} and {scores}");
    }
}

#[test]
fn kept_bytes_of_convolutions_are_near_those_burn_held_on_an_h200() {
    let stages = vec![Stage { channels: 96, blocks: 8 }];
    let model = Convnet { image: 64, classes: 10, stages, batch_statistics: true, ..Convnet::default() };
    let ours = model.workload().sample.activations.mib();
    // Burn 0.22.1, bytes in use after the forward pass, for each sample.
    assert!((ours / 40.0 - 1.0).abs() < 0.01, "{ours} against 40.0 MiB");
}

#[test]
fn stems_shrink_the_image_by_their_stride() {
    for stem_stride in 1..=8 {
        let model = Convnet {
            image: 8 * stem_stride,
            classes: 1000,
            block: Block::Plain,
            stages: vec![Stage { channels: 512, blocks: 1 }],
            stem_kernel: 7,
            stem_stride,
            stem_channels: Some(64),
            ..Convnet::default()
        };
        let largest = model.workload().dominant_product.expect("a convolution");
        assert_eq!(largest.rows_per_sample, 64, "{stem_stride}");
    }
}
