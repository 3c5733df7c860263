//! Modes that are measured again.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredOn};

use super::{Merged, WHOLE, h200, merge, merged, newer, parse, whole, with_h200};

#[test]
fn an_interrupted_measurement_keeps_the_tries_before() {
    let mut entry = whole();
    let mode = entry.measured.on.get_mut("h200").and_then(|on| on.mode.values_mut().next()).expect("a mode");
    mode.is_partial = true;
    mode.batch =
        [(2, mode.batch[&1024]), (64, MeasuredBatch { reserved_bytes: Some(Bytes(1 << 31)), ..mode.batch[&1024] })]
            .into();
    let tries = |text: &str| h200(text).mode.into_values().next().expect("a mode");
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

#[test]
fn a_mode_that_cannot_be_measured_any_more_is_removed() {
    let with_graphs = |has_batches: bool| {
        with_h200(|on| {
            let mut graphs = on.mode.values().next().expect("a mode").clone();
            graphs.batch.retain(|_, _| has_batches);
            on.mode.insert("f32-graphs".parse().expect("a mode"), graphs);
        })
    };
    let before = merge(WHOLE, &with_graphs(true)).text;
    assert!(before.contains("f32-graphs"), "{before}");
    let Merged { text, dropped } = merge(&before, &with_graphs(false));
    assert_eq!(text, WHOLE);
    assert_eq!(dropped, ["workload.char-lm.on.h200.mode.f32-graphs: it could not be measured again"]);
    // Without an earlier measurement there is nothing to remove.
    let Merged { text, dropped } = merge(WHOLE, &with_graphs(false));
    assert_eq!((text.as_str(), dropped.as_slice()), (WHOLE, &[][..]));
}

#[test]
fn modes_of_another_release_of_burn_go() {
    let mut entry = with_h200(|on| {
        on.mode = on.mode.values().map(|figures| ("bf16_params".parse().expect("a mode"), figures.clone())).collect();
    });
    assert_eq!(merge(WHOLE, &entry).dropped, [""; 0]);
    entry.measured.on.get_mut("h200").expect("it was measured").burn = "0.23.0".to_owned();
    let Merged { text, dropped } = merge(WHOLE, &entry);
    let reason = "measured on another device, or with other releases of Burn or CubeCL";
    assert_eq!(dropped, [format!("workload.char-lm.on.h200.mode.f32: {reason}")]);
    assert_eq!(text, merged(None, "char-lm", &entry).expect("it is valid").text);
}

#[test]
fn simulations_and_measurements_stay_beside_each_other() {
    let mut simulated = whole();
    let on = simulated.measured.on.remove("h200").expect("it was measured");
    simulated.measured.on.insert(Measured::simulated_name("h200"), MeasuredOn { memory_bytes: Bytes(1), ..on });
    let both = merge(WHOLE, &simulated);
    assert_eq!(both.dropped, [""; 0]);
    let found = &parse(&both.text).expect("it was just written").workload["char-lm"].measured.on;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["h200", "simulated-h200"]);
    assert_eq!(found["h200"], h200(WHOLE));
    // The same in the other order.
    let first = merged(None, "char-lm", &simulated).expect("it is valid").text;
    let other = merge(&first, &whole());
    assert_eq!((other.dropped.as_slice(), other.text), (&[][..], both.text));
}

#[test]
fn bf16_sums_of_earlier_releases_are_read_as_sums_in_fp32() {
    let entry = with_h200(|on| {
        let figures = on.mode.values().next().expect("a mode").clone();
        on.mode.insert("bf16_params-checkpointed".parse().expect("a mode"), figures);
    });
    let text = merged(None, "char-lm", &entry).expect("it is valid").text;
    let accumulating = |text: &str| {
        let modes = h200(text).mode.into_values();
        modes.map(|mode| mode.batch[&64].reserved_accumulating_bytes).collect::<Vec<_>>()
    };
    assert_eq!(accumulating(&text), [Some(Bytes(1_560_000_000)); 2]);
    let earlier = text.replace("reserved_f32_sums_bytes", "reserved_accumulating_bytes");
    let raised = 1_560_000_000 + 2 * entry.measured.parameters;
    assert_eq!(accumulating(&earlier), [1_560_000_000, raised].map(|bytes| Some(Bytes(bytes))));
    // A new measurement replaces the old figure.
    assert_eq!(merge(&earlier, &entry).text, text);
}
