//! The rule that decides what growth is a leak, and its users: the detector and diagnosis.

use gpu_tuned_observe::diagnose::{Kind, diagnose};
use gpu_tuned_observe::leak::{LeakCheck, leak, leak_within, series};
use gpu_tuned_observe::recording::{Record, Run, StepRecord, parse};

/// A generator of reproducible numbers from 0 to 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const KB: u64 = 1000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// MiB in use by the number of the step and noise from 0 to 1.
type InUse = Box<dyn Fn(f64, f64) -> f64>;

/// Steps and the bytes in use after them.
fn run(steps: u64, in_use_mib: impl Fn(f64, f64) -> f64) -> Vec<(u64, u64)> {
    run_from(steps, steps, in_use_mib)
}

fn run_from(seed: u64, steps: u64, in_use_mib: impl Fn(f64, f64) -> f64) -> Vec<(u64, u64)> {
    let mut noise = Noise(seed);
    (1..=steps).map(|step| (step, (in_use_mib(step as f64, noise.next()) * MIB as f64) as u64)).collect()
}

/// Steps that keep `per_step` bytes each.
fn keeping(steps: u64, base: u64, per_step: u64) -> Vec<(u64, u64)> {
    (1..=steps).map(|step| (step, base + step * per_step)).collect()
}

/// Returns whether diagnosis finds a leak in these steps, of a run that may use `limit_bytes` in all.
fn is_diagnosed(series: &[(u64, u64)], limit_bytes: Option<u64>) -> bool {
    let mut start = Run::new(0.0, 1);
    start.memory_budget_bytes = limit_bytes;
    let mut records = vec![Record::Run(Box::new(start))];
    for (step, bytes) in series {
        let mut record = StepRecord::new(*step as f64, *step);
        (record.seconds, record.samples, record.in_use_bytes) = (1.0, 1, Some(*bytes));
        records.push(Record::Step(Box::new(record)));
    }
    diagnose(&records).findings.iter().any(|finding| finding.kind == Kind::MemoryLeak)
}

#[test]
fn detector_and_diagnosis_apply_one_rule() {
    for (base, per_step, steps, limit, is_leak) in [
        // 30 MB within the judged steps, 100 GB in a million steps.
        (80 * GIB, 100 * KB, 400, None, true),
        // 0.6 MB within the judged steps.
        (100 * MIB, 2 * KB, 400, None, false),
        // The same growth adds 1 MiB in a longer run, or fills a small limit in a million steps.
        (100 * MIB, 2 * KB, 1000, None, true),
        (100 * MIB, 2 * KB, 400, Some(GIB), true),
        (100 * MIB, 2 * KB, 400, Some(80 * GIB), false),
        // 1 MiB in 300 steps is 3,496 bytes a step.
        (100 * MIB, 3600, 400, None, true),
        (100 * MIB, 3400, 400, None, false),
        // 1 GiB in a million steps is 1,074 bytes a step.
        (100 * MIB, 1100, 3000, None, true),
        (100 * MIB, 1050, 3000, None, false),
    ] {
        let series = keeping(steps, base, per_step);
        let what = format!("{base} + {per_step} a step, {steps} steps, limit {limit:?}");
        assert_eq!(leak_within(&series, limit).is_some(), is_leak, "{what}");
        assert_eq!(is_diagnosed(&series, limit), is_leak, "{what}, diagnosed");
        let mut check = limit.map_or_else(LeakCheck::new, |limit| LeakCheck::new().limit(limit));
        for (step, bytes) in &series {
            check.observe(*step, *bytes);
        }
        assert_eq!(check.judge().is_some(), is_leak, "{what}, checked");
    }
}

#[test]
fn memory_that_does_not_go_on_growing_is_no_leak() {
    let cases: Vec<(&str, InUse)> = vec![
        ("flat", Box::new(|_, _| 900.0)),
        ("noisy", Box::new(|_, noise| 900.0 + 80.0 * noise)),
        ("a pool that grows in the first steps", Box::new(|step, _| 900.0 - 800.0 / step)),
        ("a pool that fills up", Box::new(|step, noise| 900.0 - 400.0 * (-step / 40.0).exp() + noise)),
        ("one jump at a quarter", Box::new(|step, _| if step < 150.0 { 900.0 } else { 1200.0 })),
        ("another batch size from the middle on", Box::new(|step, _| if step < 250.0 { 900.0 } else { 1200.0 })),
        ("a validation every hundred steps", Box::new(|step, _| if step % 100.0 < 10.0 { 1500.0 } else { 900.0 })),
        ("sequences of different lengths", Box::new(|step, _| 900.0 + 300.0 * (step * 0.7).sin())),
        ("caches that are emptied", Box::new(|step, _| 900.0 + step % 50.0)),
        ("falling", Box::new(|step, noise| 900.0 - 0.5 * step + noise)),
        ("growth too small to matter", Box::new(|step, _| 900.0 + step * 1e-4)),
    ];
    for (name, in_use) in cases {
        for steps in [500, 503] {
            let found = leak(&run(steps, &in_use));
            assert!(found.is_none(), "{name}: {found:?}");
        }
    }
    for seed in 0..150 {
        let noisy = run_from(seed, 200, |_, noise| 900.0 + 100.0 * noise);
        assert!(leak(&noisy).is_none(), "noise from {seed}");
    }
}

#[test]
fn growth_is_measured_within_its_bounds() {
    let cases: Vec<(&str, f64, InUse)> = vec![
        ("plain", 1.0, Box::new(|step, _| 900.0 + step)),
        ("after a pool has grown", 0.5, Box::new(|step, _| 900.0 - 800.0 / step + 0.5 * step)),
        ("under noise", 0.5, Box::new(|step, noise| 900.0 + 0.5 * step + 40.0 * noise)),
        ("with spikes", 3.0, Box::new(|step, _| 900.0 + 3.0 * step + if step % 17.0 == 0.0 { 1e6 } else { 0.0 })),
        (
            "between validations",
            0.2,
            Box::new(|step, _| 900.0 + 0.2 * step + if step % 100.0 < 10.0 { 600.0 } else { 0.0 }),
        ),
        ("every tenth step", 0.3, Box::new(|step, _| 900.0 + 3.0 * (step / 10.0).floor())),
        ("in pages of 60 MiB", 3.0, Box::new(|step, _| (3.0 * step / 60.0).floor() * 60.0)),
    ];
    for (name, grows, in_use) in cases {
        let found = leak(&run(500, in_use)).unwrap_or_else(|| panic!("{name}: none"));
        let per_step = found.bytes_per_step / MIB as f64;
        assert!((per_step / grows - 1.0).abs() < 0.1, "{name}: {per_step}");
        assert!(found.at_least <= found.bytes_per_step && found.bytes_per_step <= found.at_most, "{name}: {found:?}");
        let (least, most) = (grows * MIB as f64 * 0.95, grows * MIB as f64 * 1.05);
        assert!(found.at_least <= most && least <= found.at_most, "{name}: {found:?}");
    }
}

#[test]
fn a_short_series_is_not_judged_and_the_first_steps_of_a_long_one_are_not() {
    assert!(leak(&[]).is_none());
    assert!(leak(&keeping(19, GIB, MIB)).is_none());
    assert!(leak(&keeping(20, GIB, MIB)).is_some());
    let found = leak(&keeping(400, 900 * MIB, MIB)).unwrap();
    assert_eq!((found.from_step, found.to_step, found.in_use_bytes), (101, 400, 1300 * MIB));
}

#[test]
fn a_slow_leak_under_noise_is_found_in_a_long_run() {
    let leaking = run(20_000, |step, noise| 900.0 + 0.01 * step + 10.0 * noise);
    let mut check = LeakCheck::new();
    let found = leaking.iter().find_map(|(step, bytes)| Some((*step, check.observe(*step, *bytes)?)));
    let (step, found) = found.expect("a leak");
    assert!(step < 20_000 && (found.bytes_per_step / MIB as f64 / 0.01 - 1.0).abs() < 0.3, "{step}: {found:?}");
    let mut check = LeakCheck::new();
    for (step, bytes) in run(20_000, |_, noise| 900.0 + 10.0 * noise) {
        assert!(check.observe(step, bytes).is_none(), "{step}");
    }
}

#[test]
fn the_series_is_that_of_the_run_that_began_last() {
    let run = |at: u32, pid: u32| {
        let step = |step: u32| {
            format!(r#"{{"kind":"step","at":{},"step":{step},"pid":{pid},"in_use_bytes":{}}}"#, at + step, pid + step)
        };
        format!("{{\"kind\":\"run\",\"at\":{at},\"pid\":{pid}}}\n{}\n{}\n", step(1), step(2))
    };
    let (old, new) = (run(100, 1000), run(101, 2000));
    for text in [format!("{old}{new}"), format!("{new}{old}")] {
        let records = parse("run.jsonl", &text).expect("records").records;
        assert_eq!(series(&records, 0), [(1, 2001), (2, 2002)]);
    }
}
