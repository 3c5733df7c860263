mod modes;
mod slips;
use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredOn};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Mlp, Optimizer, Transformer, WorkloadSpec};

use super::{Lock, LockedWorkload, Merged, SpecChange, merged};

const WHOLE: &str = r#"# Measurements of this package's workloads, written by `cargo gpu-tuned measure`. Commit this file.
# After a conflicting merge keep either side, or delete the file, and measure again.
format = 2

[workload.char-lm]
host_ms_per_sample = 0.01235
parameters = 818_256
shape = "5e1f"

[workload.char-lm.described]
optimizer = "muon"

[workload.char-lm.described.transformer]
d_model = 128
layers = 4
seq = 128
vocab = 65

[workload.char-lm.goal]
global_batch = 512

[workload.char-lm.on.h200]
burn = "0.22.1"
context_bytes = 563_085_312
cubecl = "0.11.3"
device = "NVIDIA H200"
driver = "580.95.05"
kernels_bytes = 8_388_608
kind = "gpu"
memory_bytes = 150_754_820_096
sm_count = 132

[workload.char-lm.on.h200.mode.f32]
method = "dry-run"

[workload.char-lm.on.h200.mode.f32.batch]
64 = { in_use_bytes = 1_000_000, micro_step_ms = 12.31, optimizer_ms = 1.234, reserved_accumulating_bytes = 1_560_000_000, reserved_bytes = 1_548_747_520, spread = 0.01 }
1024 = { reserved_bytes = 24_779_960_320 }

# end of gpu-tuned.lock
"#;

fn transformer() -> Transformer {
    Transformer::new(4, 128, 65, 128)
}

fn whole() -> LockedWorkload {
    parse(WHOLE).expect("it is valid").workload.remove("char-lm").expect("it is there")
}

/// The measurements with another H200.
fn with_h200(change: impl FnOnce(&mut MeasuredOn)) -> LockedWorkload {
    let mut entry = whole();
    change(entry.measured.on.get_mut("h200").expect("it was measured"));
    entry
}

/// Measurements in a file of the H200.
fn h200(text: &str) -> MeasuredOn {
    parse(text).expect("it is valid").workload["char-lm"].measured.on["h200"].clone()
}

fn source(text: &str) -> Source<'_> {
    Source { file: Lock::NAME, text }
}

fn parse(text: &str) -> Result<Lock, Vec<FileError>> {
    Lock::parse(source(text))
}

fn merge(text: &str, entry: &LockedWorkload) -> Merged {
    merged(Some(source(text)), "char-lm", entry).expect("both are valid")
}

#[test]
fn a_lock_is_sorted_with_one_short_fact_a_line() {
    assert_eq!(parse(WHOLE).expect("it is valid").to_toml(), WHOLE);
    let longer = WHOLE.replace("12.31", "12.308_7").replace("1.234", "1.234_049").replace("0.01235", "0.012_345_6");
    assert_eq!(parse(&longer).expect("it is valid").to_toml(), WHOLE);
    let entry = whole();
    let (described, h200) = (entry.described.as_ref().expect("it is described"), &entry.measured.on["h200"]);
    assert_eq!((described.training.optimizer, &described.model), (Optimizer::Muon, &transformer().into()));
    assert_eq!((h200.kind, h200.memory_bytes, h200.sm_count), (DeviceKind::Gpu, Bytes(150_754_820_096), 132));
    assert_eq!(merged(None, "char-lm", &entry).expect("it is valid").text, WHOLE);
}

#[test]
fn a_workload_is_found_by_its_description() {
    let lock = parse(WHOLE).expect("it is valid");
    let spec = whole().described.expect("it is described");
    assert_eq!(lock.measured_for(None, &spec, &[]), Some(("char-lm", &lock.workload["char-lm"])));
    assert_eq!(lock.measured_for(None, &transformer().into(), &[]), None);
}

#[test]
fn all_mistakes_are_found_at_once() {
    let text = WHOLE.replace("12.31", "0").replace("kind =", "knid =").replace("seq = 128", "seq = -1");
    let places: Vec<_> = parse(&text).expect_err("three").iter().map(|found| found.place.line).collect();
    assert_eq!(places, [16, 22, 37]);
}

#[test]
fn the_two_sides_of_a_merge_are_told_at_the_first_marker() {
    let sides = WHOLE.replace(
        "method = \"dry-run\"\n",
        "<<<<<<< HEAD\nmethod = \"dry-run\"\n=======\nmethod = \"executed\"\n>>>>>>> branch\n",
    );
    for text in [sides.clone(), sides.replace('\n', "\r\n")] {
        let mistakes = parse(&text).expect_err("a conflict");
        let [only] = mistakes.as_slice() else { panic!("{mistakes:?}") };
        let found = only.to_string();
        assert!(found.starts_with("gpu-tuned.lock:34:1: a merge left both sides here: keep either side"), "{found}");
    }
    let comment = WHOLE.replace("[workload.char-lm.goal]", "# ======= goal\n#=======\n[workload.char-lm.goal]");
    assert!(parse(&comment).is_ok());
}

#[test]
fn the_format_of_a_newer_release_is_refused() {
    let mistakes = parse("format = 3\nworkload = \"elsewhere\"\n").expect_err("format 3");
    let found: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    let expected = "gpu-tuned.lock:1:10: format 3 was written by a newer release of gpu-tuned, this one reads format 2: update \
                    gpu-tuned and its command line";
    assert_eq!(found, [expected]);
}

#[test]
fn the_format_of_an_older_release_is_read_as_an_empty_lock_and_replaced() {
    let older =
        "format = 1\n\n[workload.char-lm]\nparameters = 818_256\n\n[workload.char-lm.on.h200.mode.f32]\nway = 5\n";
    let lock = parse(older).expect("its measurements are left out");
    assert!(lock.is_empty());
    let warning = lock.older_warning().expect("a warning");
    let expected = "gpu-tuned.lock: an older release wrote it (format 1), and its measurements are not used: measure again \
                    (`cargo gpu-tuned measure`)";
    assert_eq!(warning, expected);
    assert_eq!(parse(WHOLE).expect("it is valid").older_warning(), None);
    assert_eq!(merge(older, &whole()), merged(None, "char-lm", &whole()).expect("it is valid"));
}

/// A file of a newer release.
fn newer() -> String {
    let more = "[workload.char-lm.on.h200.mode.fp8]\nscale = -inf\n\n[[tools]]\nname = \"\"\n";
    WHOLE
        .replace("\n# end", &format!("\n{more}\n# end"))
        .replace("format = 2\n", "format = 2\nwritten = 1979-05-27T07:32:00Z\n")
        .replace("shape = ", "energy = { joules = 1.50, \"per step\" = [1, 0x10, \"a\\nb\"] }\nshape = ")
        .replace("global_batch = 512", "global_batch = 512\nwatts = 300")
        .replace("sm_count = 132", "l2_bytes = 50_000_000\nsm_count = 132")
        .replace("spread = 0.01", "peak = 1e300, spread = 0.01")
}

#[test]
fn what_a_newer_release_wrote_survives() {
    let newer = newer();
    assert_eq!(parse(&newer).expect("it is valid"), parse(WHOLE).expect("it is valid"));
    let mut other = whole();
    other.measured.on.clear();
    let Merged { text, dropped } = merged(Some(source(&newer)), "other", &other).expect("both are valid");
    assert_eq!(dropped, [""; 0]);
    let (before, mut after): (toml::Table, toml::Table) =
        (newer.parse().expect("it is TOML"), text.parse().expect("it is TOML"));
    let workloads = after["workload"].as_table_mut().expect("a table");
    assert!(workloads.remove("other").is_some());
    assert_eq!(before, after);
    assert_eq!(merged(Some(source(&text)), "other", &other).expect("both are valid").text, text);
}

#[test]
fn a_description_that_says_more_is_not_taken_for_one_that_says_less() {
    let kept = [
        WHOLE.replace("d_model = 128", "d_model = 128\ndepth_of_mixture = 8"),
        WHOLE.replace("described.transformer]", "described.mamba]"),
        WHOLE.replace("optimizer = \"muon\"", "loss_scale = 8"),
    ];
    for text in kept {
        let lock = parse(&text).expect("it is valid");
        assert_eq!(lock.workload["char-lm"].described, None, "{text}");
        let dropped =
            merge(&text, &LockedWorkload { measured: Measured { on: [].into(), ..whole().measured }, ..whole() });
        assert_eq!(dropped.dropped, ["workload.char-lm.on.h200: measured of the model before it changed"]);
    }
}

#[test]
fn kernels_of_modes_that_stay_are_not_forgotten() {
    let measured = |text: &str, modes: &[&str], mib: u64| {
        let again = with_h200(|on| {
            let figures = on.mode.pop_first().expect("it was measured").1;
            on.mode = modes.iter().map(|mode| (mode.parse().expect("a mode"), figures.clone())).collect();
            on.kernels_bytes = Some(Bytes::from_mib(mib));
        });
        merge(text, &again).text
    };
    // On an H200 those of a ResNet-18 took 1,360 MiB in bf16, and 44 in f32.
    let both = measured(&measured(WHOLE, &["bf16_params"], 1360), &["f32"], 44);
    assert_eq!(h200(&both).kernels_bytes, Some(Bytes::from_mib(1360)));
    let again = h200(&measured(&both, &["f32", "bf16_params"], 40));
    assert_eq!((again.kernels_bytes, again.mode.len()), (Some(Bytes::from_mib(40)), 2));
}

#[test]
fn measurements_of_another_model_go() {
    let mut a100 = whole();
    let h200 = a100.measured.on.remove("h200").expect("it was measured");
    a100.measured.on.insert("a100".to_owned(), MeasuredOn { device: "NVIDIA A100".to_owned(), ..h200 });
    let both = merge(WHOLE, &a100);
    assert_eq!(
        (both.dropped.as_slice(), parse(&both.text).expect("valid").workload["char-lm"].measured.on.len()),
        (&[][..], 2)
    );
    let gone = ["workload.char-lm.on.a100: measured of the model before it changed"];
    let mut larger = Measured { parameters: 900_000, ..whole().measured };
    larger.host_ms_per_sample = None;
    let trained = WorkloadSpec { ..transformer().into() };
    for entry in [
        LockedWorkload { measured: larger, ..whole() },
        LockedWorkload { measured: Measured { shape: "5e20".to_owned(), ..whole().measured }, ..whole() },
        LockedWorkload { described: Some(trained), ..whole() },
    ] {
        let Merged { text, dropped } = merge(&both.text, &entry);
        assert_eq!(dropped, gone);
        let alone = merged(None, "char-lm", &entry).expect("it is valid").text;
        assert_eq!(text, alone);
    }
    // Neither a description that is missing nor what the host takes makes it another model.
    let mut slower = whole();
    slower.described.as_mut().expect("it is described").training.host_ms_per_sample = Some(3.0);
    for entry in [slower, LockedWorkload { described: None, ..whole() }] {
        assert_eq!(merge(&both.text, &entry).dropped, [""; 0]);
    }
}

#[test]
fn figures_that_cannot_be_are_not_written() {
    let changes: [fn(&mut MeasuredBatch); 6] = [
        |point| point.micro_step_ms = Some(f64::NAN),
        |point| point.optimizer_ms = Some(0.0),
        |point| point.spread = Some(f64::INFINITY),
        |point| point.reserved_bytes = Some(Bytes(u64::MAX)),
        |point| point.reserved_bytes = Some(Bytes(999_999)),
        |point| point.reserved_bytes = None,
    ];
    for change in changes {
        let entry = with_h200(|on| {
            let batches = on.mode.values_mut().flat_map(|mode| &mut mode.batch);
            batches.filter(|(size, _)| **size == 64).for_each(|(_, point)| change(point));
        });
        let found = merged(None, "char-lm", &entry).expect_err("a wrong figure").swap_remove(0).to_string();
        assert!(found.starts_with("what was measured:"), "{found}");
    }
}

#[test]
fn changes_are_named_with_both_values() {
    let changes = |was: WorkloadSpec, now: WorkloadSpec| {
        SpecChange::between(&was, &now).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let lm = Transformer::new(4, 128, 65, 128);
    let deeper = Transformer { heads: Some(8), layers: 6, ..lm.clone() };
    assert_eq!(changes(lm.clone().into(), lm.clone().into()), Vec::<String>::new());
    assert_eq!(changes(lm.clone().into(), deeper.into()), ["heads = its default, now 8", "layers = 4, now 6"]);
    assert_eq!(changes(lm.into(), Mlp { widths: vec![8, 8] }.into()), ["model = transformer, now mlp"]);
}
