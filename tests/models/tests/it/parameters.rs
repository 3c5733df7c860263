//! Numbers of parameters: core's, compared with Burn's modules.

use burn::{module::Module, tensor::Device};
use gpu_tuned_core::workload::{Block, WorkloadSpec};
use models_tests::{
    convnet::{self, Convnet},
    measure::{self, trainable},
    mlp::{self, Mlp},
    recurrent::{self, Recurrent},
    transformer::{self, Classifier, Gpt, Llama},
    unet::{self, UNet},
};

fn device() -> Device {
    measure::device(false)
}

pub(crate) fn assert_same<M: Module>(described: impl Into<WorkloadSpec>, model: &M, name: &str) {
    let spec: WorkloadSpec = described.into();
    assert!(spec.mistakes().is_empty(), "{name}: {:?}", spec.mistakes());
    assert_eq!(spec.parameters(), trainable(model) as u64, "{name}");
    assert_eq!(spec.workload().parameters.trained(), spec.parameters(), "{name}");
}

fn transformer(layers: usize, d_model: usize, d_ff: usize, heads: usize) -> transformer::Dimensions {
    transformer::Dimensions {
        layers,
        d_model,
        d_ff,
        heads,
        kv_heads: heads,
        vocab: 331,
        seq: 40,
        dropout: 0.0,
        causal: true,
        tied: true,
        norm_first: true,
    }
}

#[test]
fn core_counts_the_parameters_of_gpt() {
    let _counting = measure::counting();
    for (layers, d_model, d_ff, heads, tied, norm_first) in
        [(1, 64, 256, 4, true, true), (3, 96, 200, 3, true, false), (2, 160, 640, 5, false, true)]
    {
        let d = transformer::Dimensions { tied, norm_first, ..transformer(layers, d_model, d_ff, heads) };
        assert_same(d.gpt(), &Gpt::new(&d, &device()), &format!("{d:?}"));
    }
}

#[test]
fn core_counts_the_parameters_of_llama() {
    let _counting = measure::counting();
    for (heads, kv_heads, vocab) in [(8, 2, 331), (4, 4, 100), (4, 1, 57)] {
        let d = transformer::Dimensions { kv_heads, vocab, ..transformer(2, 128, 300, heads) };
        assert_same(d.llama(), &Llama::new(&d, &device()), &format!("{d:?}"));
    }
}

#[test]
fn core_counts_the_parameters_of_a_classifier() {
    let _counting = measure::counting();
    for norm_first in [false, true] {
        let d = transformer::Dimensions { vocab: 5, norm_first, ..transformer(2, 96, 200, 3) };
        assert_same(d.classifier(500), &Classifier::new(&d, 500, &device()), &format!("{d:?}"));
    }
}

#[test]
fn core_counts_the_parameters_of_convnets() {
    let _counting = measure::counting();
    for kind in [Block::Plain, Block::Basic, Block::Bottleneck] {
        for (stages, stem) in [(vec![[16, 2]], false), (vec![[8, 1], [16, 3]], false), (vec![[16, 2], [24, 2]], true)] {
            for group_norm in [false, true] {
                let d = convnet::Dimensions { image: 64, stages: stages.clone(), classes: 7, kind, group_norm, stem };
                assert_same(d.spec(), &Convnet::new(&d, &device()), &format!("{d:?}"));
            }
        }
    }
}

#[test]
fn core_counts_the_parameters_of_u_nets() {
    let _counting = measure::counting();
    for (base, depth, classes) in [(8, 1, 2), (6, 2, 1), (4, 4, 3)] {
        let d = unet::Dimensions { image: 32, channels: 3, base, depth, classes };
        assert_same(d.spec(), &UNet::new(&d, &device()), &format!("{d:?}"));
    }
}

#[test]
fn core_counts_the_parameters_of_perceptrons() {
    let _counting = measure::counting();
    for widths in [vec![7, 5, 3], vec![30, 50, 70, 10], vec![12, 3]] {
        assert_same(mlp::spec(&widths), &Mlp::new(&widths, &device()), &format!("{widths:?}"));
    }
}

#[test]
fn core_counts_the_parameters_of_recurrent_layers() {
    let _counting = measure::counting();
    for gru in [false, true] {
        for (layers, vocab, bidirectional) in [(1, 0, false), (3, 11, false), (1, 0, true), (2, 11, true)] {
            let (input, hidden, classes) = (12, 20, 7);
            let d = recurrent::Dimensions {
                input,
                hidden,
                layers,
                seq: 5,
                classes,
                vocab,
                every_step: true,
                gru,
                bidirectional,
            };
            assert_same(d.spec(), &Recurrent::new(&d, &device()), &format!("{d:?}"));
        }
    }
}
