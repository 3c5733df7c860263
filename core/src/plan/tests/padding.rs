//! Advice to pad dimensions whose rows are not aligned.

use super::*;
use crate::{Kernels, Precision};

fn advice(device: &DeviceFacts, [words, d_ff]: [u64; 2], precision: Precision, kernels: Kernels) -> Option<String> {
    let workload = Transformer { d_ff: Some(d_ff), ..Transformer::new(6, 384, words, 256) }.workload();
    let goal = Goal { precision: Some(precision.into()), kernels: Some(kernels), ..global(64) };
    let plan = planned(device, &workload, &goal);
    assert_eq!(plan.padding(device, &workload), plan.advice.iter().find(|text| text.contains("pad it")).cloned());
    plan.padding(device, &workload)
}

/// Samples per second of a GPT with 50,257 and with 50,304 words on an H200, measured through the trainer, and milliseconds of the
/// product with so many columns.
#[test]
fn odd_dimensions_are_named_with_what_padding_gains() {
    use Precision::{F32, MixedBf16};
    let h200 = nominal("h200");
    let text = advice(&h200, [50_257, 1536], F32, Kernels::Burn).expect("50,257 is odd");
    let gain = format!("made a GPT {:.1} times as fast", 648.0 / 532.0);
    assert!(
        text.starts_with("vocab = 50257 is no multiple of 4: pad it to 50304 and") && text.ends_with(&gain),
        "{text}"
    );
    let text = advice(&h200, [50_304, 2730], MixedBf16, Kernels::Burn).expect("2,730 is odd");
    let gain = format!("was {:.1} times as fast", 2.32 / 1.49);
    assert!(text.starts_with("d_ff = 2730 is no multiple of 8: pad it to 2752. ") && text.ends_with(&gain), "{text}");
    for (dims, precision, kernels) in [
        ([50_304, 1536], F32, Kernels::Burn),
        // Rows of 4 values in f32 have 16 bytes.
        ([30_524, 1536], F32, Kernels::Burn),
        ([65, 1536], F32, Kernels::Burn),
        // A gain of 2%.
        ([50_257, 1536], MixedBf16, Kernels::Burn),
        // Library kernels pad by themselves.
        ([50_257, 1536], F32, Kernels::Library),
        ([50_257, 2730], MixedBf16, Kernels::Library),
    ] {
        assert_eq!(advice(&h200, dims, precision, kernels), None, "{dims:?} {precision} {kernels}");
    }
    assert_eq!(advice(&nominal("gtx1080"), [50_257, 1536], F32, Kernels::Burn), None);
}
