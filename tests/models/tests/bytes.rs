//! The formulas of `KEPT.md` against bytes that Burn really keeps.
//!
//! Each formula counts 32-bit values for one sample, plain and checkpointed. They stand here until `gpu_tuned_core::workload`
//! has the family; then a case's `formula` becomes a call of it.

use std::sync::{Mutex, PoisonError};

use burn::tensor::{Device, Tensor};
use models_tests::{
    convnet::{self, BlockKind, Convnet},
    measure,
    mlp::Mlp,
    recurrent::{self, Recurrent},
    transformer::{self, Classifier, Gpt, Llama},
    unet::{self, UNet},
};

const TOLERANCE: f64 = 0.01;
const BYTES: f64 = 4.0;

/// Values kept for one sample: plain, and checkpointed.
type Values = [usize; 2];

/// Compares a formula with the slope over the micro-batch, plain and checkpointed.
fn check<L: FnMut(usize) -> Tensor<1>>(name: &str, formula: Values, model: impl Fn(Device) -> L) {
    // The allocator counts for the whole process, and tests run side by side.
    static COUNTING: Mutex<()> = Mutex::new(());
    let _counting = COUNTING.lock().unwrap_or_else(PoisonError::into_inner);
    for (checkpointed, values) in [false, true].into_iter().zip(formula) {
        let mut loss = model(measure::device(checkpointed));
        let mut kept = |samples| measure::held(|| loss(samples)).kept_bytes as f64;
        // The first measurement still sees what Burn allocates once.
        kept(2);
        let measured = (kept(4) - kept(2)) / 2.0;
        let ratio = values as f64 * BYTES / measured;
        println!("{name}, checkpointed {checkpointed}: {measured} bytes a sample, formula / measured {ratio:.4}");
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
        transformer::Dimensions { layers: 3, d_model: 96, heads: 3, seq: 160, vocab: 300, causal: false, ..small },
        transformer::Dimensions { layers: 1, d_ff: 900, heads: 10, tied: false, norm_first: false, ..small },
        transformer::Dimensions { dropout: 0.1, ..small },
    ]
}

fn gpt_values(d: &transformer::Dimensions, classes_of_all_tokens: bool) -> Values {
    let (hidden, feed_forward) = (d.seq * d.d_model, d.seq * d.d_ff);
    let scores = d.heads * d.seq * d.seq;
    // The mask has a byte for each value; the norms keep a mean or a variance for each row.
    let mask = if d.causal { d.seq * d.seq / 4 } else { 0 };
    let small = mask + d.heads * d.seq + 2 * d.seq;
    let mut layer =
        [10 * hidden + 3 * scores + 2 * feed_forward + small, 6 * hidden + 2 * scores + feed_forward + small];
    if d.dropout > 0.0 {
        layer[0] += 2 * hidden + scores + feed_forward;
        layer[1] += 4 * hidden + 2 * scores + 2 * feed_forward;
    }
    let head_input = if d.norm_first && classes_of_all_tokens { 3 * hidden } else { hidden };
    let logits = if classes_of_all_tokens { d.seq * d.vocab } else { 0 };
    [d.layers * layer[0] + head_input + logits, d.layers * layer[1] + hidden + 2 * logits]
}

#[test]
fn gpt_keeps_what_the_formula_says() {
    for d in gpt_dimensions() {
        check(&format!("{d:?}"), gpt_values(&d, true), |device| {
            let model = Gpt::new(&d, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

#[test]
fn a_classifier_keeps_what_a_language_model_does_without_logits() {
    for d in gpt_dimensions() {
        let d = transformer::Dimensions { vocab: 5, causal: false, ..d };
        check(&format!("classifier {d:?}"), gpt_values(&d, false), |device| {
            let model = Classifier::new(&d, 500, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

#[test]
fn llama_keeps_what_the_formula_says() {
    let wide = transformer::Dimensions { d_model: 128, heads: 8, kv_heads: 2, tied: false, ..gpt_dimensions()[0] };
    for d in [
        wide,
        transformer::Dimensions { kv_heads: 8, layers: 3, d_ff: 300, ..wide },
        transformer::Dimensions { kv_heads: 1, heads: 4, seq: 200, vocab: 500, ..wide },
    ] {
        let (hidden, feed_forward, logits) = (d.seq * d.d_model, d.seq * d.d_ff, d.seq * d.vocab);
        let (keys, scores) = (hidden / d.heads * d.kv_heads, d.heads * d.seq * d.seq);
        let small = d.heads * d.seq + 6 * d.seq;
        let layer = [
            10 * hidden + 3 * scores + 5 * feed_forward + small,
            7 * hidden + 5 * keys + 2 * scores + 2 * feed_forward + small,
        ];
        let mask = d.seq * d.seq / 4;
        let values =
            [d.layers * layer[0] + 3 * hidden + logits + mask, d.layers * layer[1] + hidden + 2 * logits + mask];
        check(&format!("llama {d:?}"), values, |device| {
            let model = Llama::new(&d, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

/// Values for a convolution's output; `last` is the one before the residual sum.
fn conv_values(d: &convnet::Dimensions) -> Values {
    let per_conv = if d.group_norm { [4, 1] } else { [3, 2] };
    let per_shortcut = if d.group_norm { [2, 1] } else { [1, 2] };
    let mut side = d.image;
    let mut inputs = 3;
    let mut values = [3 * side * side; 2];
    let add = |values: &mut Values, counts: [usize; 2], output: usize| {
        values[0] += counts[0] * output;
        values[1] += counts[1] * output;
    };
    if d.stem {
        inputs = d.stages[0][0];
        add(&mut values, per_conv, inputs * (side / 2).pow(2));
        side /= 4;
        add(&mut values, [2, 2], inputs * side * side);
    }
    for (index, [channels, blocks]) in d.stages.iter().copied().enumerate() {
        for block in 0..blocks {
            let before = side * side;
            let halves = index > 0 && block == 0;
            side /= if halves { 2 } else { 1 };
            let pixels = side * side;
            let outputs = if d.kind == BlockKind::Bottleneck { 4 * channels } else { channels };
            match d.kind {
                BlockKind::Plain => add(&mut values, per_conv, channels * pixels),
                BlockKind::Basic => add(&mut values, per_conv, 2 * channels * pixels),
                BlockKind::Bottleneck => add(&mut values, per_conv, channels * (before + pixels) + outputs * pixels),
            }
            if d.kind != BlockKind::Plain && (halves || inputs != outputs) {
                add(&mut values, per_shortcut, outputs * pixels);
            }
            inputs = outputs;
        }
    }
    values
}

#[test]
fn convnets_keep_what_the_formula_says() {
    for kind in [BlockKind::Plain, BlockKind::Basic, BlockKind::Bottleneck] {
        for (stages, image, stem) in
            [(vec![[40, 2]], 32, false), (vec![[24, 1], [40, 2]], 48, false), (vec![[48, 2], [64, 1]], 128, true)]
        {
            for group_norm in [false, true] {
                let d = convnet::Dimensions { image, stages: stages.clone(), classes: 10, kind, group_norm, stem };
                check(&format!("{d:?}"), conv_values(&d), |device| {
                    let (model, d) = (Convnet::new(&d, &device), d.clone());
                    move |samples| model.loss(&d, samples, &device)
                });
            }
        }
    }
}

#[test]
fn u_nets_keep_what_the_formula_says() {
    for (image, base, depth, classes) in [(48, 16, 1, 2), (64, 12, 2, 5), (64, 8, 3, 2), (64, 8, 4, 1)] {
        let d = unet::Dimensions { image, channels: 3, base, depth, classes };
        let pixels = image * image;
        let output = |level: usize| (base * pixels) >> level;
        // For each level but the lowest: four convolutions, the pooling's output and indices, and the joined tensor.
        let mut values = [3 * pixels + classes * pixels + 2 * pixels, 3 * pixels + 2 * classes * pixels + 3 * pixels];
        for level in 0..depth {
            values[0] += 14 * output(level) + output(level) / 2;
            values[1] += 10 * output(level) + output(level) / 2;
        }
        values[0] += 6 * output(depth);
        values[1] += 4 * output(depth);
        check(&format!("{d:?}"), values, |device| {
            let model = UNet::new(&d, &device);
            move |samples| model.loss(&d, samples, &device)
        });
    }
}

#[test]
fn perceptrons_keep_what_the_formula_says() {
    const ROWS: usize = 256;
    for widths in [vec![300, 500, 700, 200, 10], vec![64, 1024, 1024, 5], vec![2000, 100, 400]] {
        let (inner, last) = (widths[1..widths.len() - 1].iter().sum::<usize>(), widths[widths.len() - 1]);
        // Beside the tensors: each row's target, its index and the sum of its exponentials.
        let values = [widths[0] + 2 * inner + last + 3, widths[0] + inner + 2 * last + 4].map(|values| values * ROWS);
        check(&format!("{widths:?}"), values, |device| {
            let (model, widths) = (Mlp::new(&widths, &device), widths.clone());
            move |samples| model.loss(&widths, ROWS * samples, &device)
        });
    }
}

#[test]
fn recurrent_layers_keep_what_the_formula_says() {
    const ROWS: usize = 64;
    let narrow = recurrent::Dimensions {
        input: 120,
        hidden: 200,
        layers: 1,
        seq: 12,
        classes: 7,
        vocab: 0,
        every_step: true,
        gru: false,
    };
    for gru in [false, true] {
        for d in [
            recurrent::Dimensions { gru, ..narrow },
            recurrent::Dimensions { gru, layers: 2, vocab: 50, ..narrow },
            recurrent::Dimensions { gru, layers: 3, input: 300, hidden: 100, seq: 20, ..narrow },
            recurrent::Dimensions { gru, layers: 2, seq: 30, every_step: false, ..narrow },
        ] {
            let (plain, checkpointed) = if gru { (9, 6) } else { (11, 8) };
            let states = d.seq * d.hidden;
            // Upper layers keep slices of the layer below; without checkpointing the last cell or state is not read.
            let values = [
                d.layers * (plain * states - d.hidden) + (d.layers - 1) * states + d.seq * d.input + states,
                d.layers * (checkpointed * states + states + 2 * d.hidden) + d.seq * d.input,
            ];
            let rows = if d.every_step { d.seq } else { 1 };
            let values = [values[0] + rows * (d.classes + 4), values[1] + rows * (2 * d.classes + 5)];
            check(&format!("{d:?}"), values.map(|values| values * ROWS), |device| {
                let model = Recurrent::new(&d, &device);
                move |samples| model.loss(&d, ROWS * samples, &device)
            });
        }
    }
}
