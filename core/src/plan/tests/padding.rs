//! Advice to pad dimensions that cost products their tensor cores.

use super::*;
use crate::{Kernels, Precision};

fn advice(device: &DeviceFacts, words: u64, precision: Precision, kernels: Kernels) -> Option<String> {
    let workload = Transformer::new(6, 384, words, 256).workload();
    let goal = Goal { precision: Some(precision.into()), kernels: Some(kernels), ..global(64) };
    let plan = planned(device, &workload, &goal);
    assert_eq!(plan.padding(device, &workload), plan.advice.iter().find(|text| text.contains("tensor cores")).cloned());
    plan.padding(device, &workload)
}

/// Samples per second of a GPT with 50,257 and with 50,304 words on an H200, measured through the trainer.
#[test]
fn an_odd_vocabulary_is_named_with_what_padding_gains() {
    let h200 = nominal("h200");
    for (precision, kernels, odd, padded) in [
        (Precision::F32, Kernels::Burn, 532.0, 648.0),
        (Precision::MixedBf16, Kernels::Burn, 700.0, 714.0),
        (Precision::F32, Kernels::Library, 932.0, 1348.0),
        (Precision::MixedBf16, Kernels::Library, 1043.0, 2032.0),
    ] {
        let text = advice(&h200, 50_257, precision, kernels).expect("50,257 is odd");
        assert!(text.starts_with("vocab = 50257 is no multiple of") && text.contains("pad it to 50304 and"), "{text}");
        assert!(text.contains(&format!("{:.2} times as fast", padded / odd)), "{precision} {kernels}: {text}");
    }
    for words in [50_304, 32_000, 65] {
        assert_eq!(advice(&h200, words, Precision::MixedBf16, Kernels::Library), None, "{words}");
    }
    // Rows of 4 values in f32 and of 8 in 16 bits have 16 bytes.
    assert_eq!(advice(&h200, 30_524, Precision::F32, Kernels::Burn), None);
    assert!(advice(&h200, 30_524, Precision::MixedBf16, Kernels::Burn).is_some_and(|text| text.contains("30528")));
    assert_eq!(advice(&nominal("gtx1080"), 50_257, Precision::F32, Kernels::Burn), None);
}
