//! Modes that are measured again.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::MeasuredBatch;

use super::{Merged, WHOLE, merge, merged, newer, parse, whole};

#[test]
fn an_interrupted_measurement_keeps_the_tries_before() {
    let mut entry = whole();
    let mode = entry.measured.on.get_mut("h200").and_then(|on| on.mode.values_mut().next()).expect("a mode");
    mode.is_partial = true;
    mode.batch =
        [(2, mode.batch[&1024]), (64, MeasuredBatch { reserved_bytes: Some(Bytes(1 << 31)), ..mode.batch[&1024] })]
            .into();
    let tries = |text: &str| {
        let mode =
            parse(text).expect("it is valid").workload["char-lm"].measured.on["h200"].mode.values().next().cloned();
        mode.expect("a mode")
    };
    // A first measurement is partial, and a later one adds to what is there.
    let first = merged(None, "char-lm", &entry).expect("it is valid").text;
    assert!(first.contains("method = \"dry-run\"\npartial = true\n") && tries(&first).is_partial);
    let again = tries(&merge(WHOLE, &entry).text);
    assert!(!again.is_partial && again.batch.keys().eq([&2, &64, &1024]), "{again:?}");
    assert_eq!((again.batch[&64].reserved_bytes, again.batch[&64].micro_step_ms), (Some(Bytes(1 << 31)), Some(12.31)));
    // A complete one replaces it.
    assert_eq!(merge(&first, &whole()).text, WHOLE);
}

#[test]
fn a_mode_that_is_measured_anew_is_replaced_whole() {
    let mut again = whole();
    let on = again.measured.on.get_mut("h200").expect("it was measured");
    let (mode, mut figures) = on.mode.pop_first().expect("it was measured");
    figures.batch = [(256, MeasuredBatch { reserved_bytes: Some(Bytes(7)), ..MeasuredBatch::default() })].into();
    on.mode = [(mode, figures.clone()), ("bf16_params".parse().expect("a mode"), figures)].into();
    on.context_bytes = None;
    again.measured.host_ms_per_sample = None;
    let Merged { text, dropped } = merge(&newer(), &again);
    assert_eq!(dropped, [""; 0]);
    let lock = parse(&text).expect("it was just written");
    let found = &lock.workload["char-lm"].measured;
    // What was not looked at is still what it was.
    assert_eq!(found.host_ms_per_sample, Some(0.012_35));
    assert_eq!(found.on["h200"].context_bytes, whole().measured.on["h200"].context_bytes);
    assert_eq!(found.on["h200"].mode, again.measured.on["h200"].mode);
    assert!(text.contains("mode.fp8") && text.contains("l2_bytes") && !text.contains("peak"), "{text}");
}
