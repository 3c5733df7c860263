//! Bytes that Burn keeps from the forward for the backward pass, compared with core's.

use burn::tensor::{Device, Tensor};
use gpu_tuned_core::workload::{self, Block, Stage, Workload, WorkloadSpec};
use models_tests::{
    convnet::{self, Convnet},
    measure::{self, StepMemory},
    mlp::{self, Mlp},
    recurrent::{self, Recurrent},
    transformer::{self, Classifier, Gpt, Llama},
    unet::{self, UNet},
};

const TOLERANCE: f64 = 0.01;

fn workload(described: impl Into<WorkloadSpec>) -> Workload {
    described.into().workload()
}

/// Bytes that core computes for one sample: plain, and checkpointed.
fn computed(workload: &Workload) -> [u64; 2] {
    let checkpointed = workload.sample.checkpointed_activations.expect("BUG: it follows from the dimensions");
    [workload.sample.activations.0, checkpointed.0]
}

/// Compares core with the slope over the micro-batch, plain and checkpointed, where a sample of core's is `rows` of the
/// model's.
pub(crate) fn check<L: FnMut(usize) -> Tensor<1>>(
    name: &str,
    workload: &Workload,
    rows: usize,
    model: impl Fn(Device) -> L,
) {
    let _counting = measure::counting();
    for (checkpointed, bytes) in [false, true].into_iter().zip(computed(workload)) {
        let mut loss = model(measure::device(checkpointed));
        let measured = measure::kept_per_sample(|samples| loss(samples * rows)) as f64 / rows as f64;
        let ratio = bytes as f64 / measured;
        println!("{name}, checkpointed {checkpointed}: {measured} bytes a sample, core / measured {ratio:.4}");
        assert!((ratio - 1.0).abs() < TOLERANCE, "{name}, checkpointed {checkpointed}: {ratio} of {measured} bytes");
    }
}

fn gpt_dimensions() -> [transformer::Dimensions; 4] {
    let small = transformer::Dimensions {
        layers: 2,
        d_model: 160,
        d_ff: 448,
        heads: 5,
        kv_heads: 5,
        vocab: 1100,
        seq: 96,
        dropout: 0.0,
        causal: true,
        tied: true,
        norm_first: true,
    };
    [
        small,
        transformer::Dimensions { layers: 3, d_model: 96, heads: 3, seq: 128, vocab: 300, causal: false, ..small },
        transformer::Dimensions { layers: 1, d_ff: 900, heads: 10, tied: false, norm_first: false, ..small },
        transformer::Dimensions { dropout: 0.1, ..small },
    ]
}

#[test]
fn core_knows_what_gpt_keeps() {
    for d in gpt_dimensions() {
        check(&format!("{d:?}"), &workload(d.gpt()), 1, |device| {
            let model = Gpt::new(&d, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

#[test]
fn core_knows_what_a_classifier_keeps() {
    for d in gpt_dimensions() {
        let d = transformer::Dimensions { vocab: 5, causal: false, ..d };
        check(&format!("classifier {d:?}"), &workload(d.classifier(500)), 1, |device| {
            let model = Classifier::new(&d, 500, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

#[test]
fn core_knows_what_llama_keeps() {
    let wide = transformer::Dimensions { d_model: 128, heads: 8, kv_heads: 2, tied: false, ..gpt_dimensions()[0] };
    for d in [
        wide,
        transformer::Dimensions { kv_heads: 8, layers: 3, d_ff: 300, ..wide },
        transformer::Dimensions { kv_heads: 1, heads: 4, seq: 128, vocab: 500, ..wide },
    ] {
        check(&format!("llama {d:?}"), &workload(d.llama()), 1, |device| {
            let model = Llama::new(&d, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

#[test]
fn a_tied_head_keeps_the_copy_of_its_weight_that_core_counts() {
    for tied in [false, true] {
        let d = transformer::Dimensions { layers: 1, tied, ..gpt_dimensions()[0] };
        let workload = workload(d.gpt());
        let weight_bytes = 4 * d.d_model * d.vocab;
        for (checkpointed, copies) in
            [(false, workload.parameters.copies), (true, workload.parameters.copies_checkpointed)]
        {
            let held = one_step(checkpointed, |device| {
                let model = Gpt::new(&d, &device);
                move || model.loss(&d, 2, &device)
            });
            let kept = held.by_size.get(&weight_bytes).copied().unwrap_or(0);
            assert_eq!(4 * copies, weight_bytes as u64 * kept as u64, "tied {tied}, checkpointed {checkpointed}");
        }
    }
}

fn one_step<L: Fn() -> Tensor<1>>(checkpointed: bool, model: impl Fn(Device) -> L) -> StepMemory {
    let _counting = measure::counting();
    let loss = model(measure::device(checkpointed));
    measure::measure_step(&loss);
    measure::measure_step(&loss)
}

// Powers of two, which CUDA does not pad, from four channels on.
#[test]
fn core_knows_what_convnets_keep() {
    for kind in [Block::Plain, Block::Basic, Block::Bottleneck] {
        for (stages, image, stem) in
            [(vec![[32, 2]], 32, false), (vec![[16, 1], [32, 2]], 32, false), (vec![[32, 2], [64, 1]], 96, true)]
        {
            for group_norm in [false, true] {
                let d = convnet::Dimensions { image, stages: stages.clone(), classes: 10, kind, group_norm, stem };
                check(&format!("{d:?}"), &workload(d.spec()), 1, |device| {
                    let (model, d) = (Convnet::new(&d, &device), d.clone());
                    move |samples| model.loss(&d, samples, &device)
                });
            }
        }
    }
}

#[test]
fn core_pads_the_rows_of_a_convolution_as_cubecl_does() {
    // Channels, and the bytes of a row of them: `optimal_align` of cubecl-runtime 0.11.3 with CUDA's alignment of 512.
    let rows = [
        (1, 4),
        (2, 16),
        (3, 16),
        (4, 16),
        (5, 32),
        (17, 128),
        (64, 256),
        (96, 512),
        (127, 512),
        (128, 512),
        (129, 1024),
        (200, 1024),
        (256, 1024),
        (384, 1536),
    ];
    for (channels, expected) in rows {
        let block = workload::Convnet {
            image: 8,
            classes: 2,
            stages: vec![Stage::from([channels, 1])],
            batch_statistics: true,
            ..workload::Convnet::default()
        };
        // Subtracts the norm's output, the activation's, and the image from the convolution's output.
        let row_bytes = block.workload().sample.activations.0 / 64 - 4 * (2 * channels + 3);
        assert_eq!(row_bytes, expected, "{channels} channels");
    }
}

#[test]
fn core_knows_what_u_nets_keep() {
    for (image, base, depth, classes) in [(48, 16, 1, 2), (32, 16, 2, 5), (64, 8, 3, 2), (32, 8, 4, 1)] {
        let d = unet::Dimensions { image, channels: 3, base, depth, classes };
        check(&format!("{d:?}"), &workload(d.spec()), 1, |device| {
            let model = UNet::new(&d, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

#[test]
fn core_knows_what_perceptrons_keep() {
    for widths in [vec![300, 500, 700, 200, 10], vec![64, 1024, 1024, 5], vec![2000, 100, 400]] {
        check(&format!("{widths:?}"), &workload(mlp::spec(&widths)), 256, |device| {
            let (model, widths) = (Mlp::new(&widths, &device), widths.clone());
            move |samples| model.loss(&widths, samples, &device)
        });
    }
}

#[test]
fn core_knows_what_recurrent_layers_keep() {
    let narrow = recurrent::Dimensions {
        input: 120,
        hidden: 200,
        layers: 1,
        seq: 12,
        classes: 7,
        vocab: 0,
        every_step: true,
        gru: false,
        bidirectional: false,
    };
    for gru in [false, true] {
        for d in [
            recurrent::Dimensions { gru, ..narrow },
            recurrent::Dimensions { gru, layers: 2, vocab: 50, seq: 3, ..narrow },
            recurrent::Dimensions { gru, layers: 3, input: 300, hidden: 100, seq: 20, ..narrow },
            recurrent::Dimensions { gru, bidirectional: true, ..narrow },
        ] {
            check(&format!("{d:?}"), &workload(d.spec()), 16, |device| {
                let model = Recurrent::new(&d, &device);
                move |samples| model.loss(&d, samples, &device)
            });
        }
    }
}
