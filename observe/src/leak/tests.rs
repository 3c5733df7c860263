use super::{LeakCheck, leak};

/// A generator of numbers from 0 to 1 that is the same every time.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

const MIB: f64 = 1024.0 * 1024.0;

/// So many steps of what a training run has in use, in MiB; `of` says what it is in a step, with noise from 0 to 1.
fn series(steps: u64, of: impl Fn(f64, f64) -> f64) -> Vec<(u64, u64)> {
    let mut noise = Noise(steps);
    (1..=steps).map(|step| (step, (of(step as f64, noise.next()) * MIB) as u64)).collect()
}

#[test]
fn what_does_not_grow_is_no_leak() {
    type Case = (&'static str, Box<dyn Fn(f64, f64) -> f64>);
    let cases: Vec<Case> = vec![
        ("flat", Box::new(|_, _| 900.0)),
        ("noisy", Box::new(|_, noise| 900.0 + 80.0 * noise)),
        ("a pool that grows in the first steps", Box::new(|step, _| 900.0 - 800.0 / step)),
        ("a pool that fills up", Box::new(|step, noise| 900.0 - 400.0 * (-step / 40.0).exp() + noise)),
        ("another batch size from the middle on", Box::new(|step, _| if step < 250.0 { 900.0 } else { 1200.0 })),
        ("a validation every hundred steps", Box::new(|step, _| if step % 100.0 < 10.0 { 1500.0 } else { 900.0 })),
        ("sequences of different lengths", Box::new(|step, _| 900.0 + 300.0 * (step * 0.7).sin())),
        ("caches that are emptied", Box::new(|step, _| 900.0 + step % 50.0)),
        ("what becomes less", Box::new(|step, noise| 900.0 - 0.5 * step + noise)),
        ("growth too small to matter", Box::new(|step, _| 900.0 + step * 1e-4)),
    ];
    for (name, of) in cases {
        for steps in [500, 503] {
            let found = leak(&series(steps, &of));
            assert!(found.is_none(), "{name}: {found:?}");
        }
    }
}

#[test]
fn what_grows_is_one_by_about_as_much() {
    type Case = (&'static str, f64, Box<dyn Fn(f64, f64) -> f64>);
    let cases: Vec<Case> = vec![
        ("plainly", 1.0, Box::new(|step, _| 900.0 + step)),
        ("after a pool has grown", 0.5, Box::new(|step, _| 900.0 - 800.0 / step + 0.5 * step)),
        ("under noise", 0.5, Box::new(|step, noise| 900.0 + 0.5 * step + 40.0 * noise)),
        (
            "between validations",
            0.2,
            Box::new(|step, _| 900.0 + 0.2 * step + if step % 100.0 < 10.0 { 600.0 } else { 0.0 }),
        ),
        ("every tenth step", 0.3, Box::new(|step, _| 900.0 + 3.0 * (step / 10.0).floor())),
    ];
    for (name, grows, of) in cases {
        let found = leak(&series(500, of)).unwrap_or_else(|| panic!("{name}: none"));
        let per_step = found.bytes_per_step / MIB;
        assert!((per_step / grows - 1.0).abs() < 0.1, "{name}: {per_step}");
        assert!(found.at_least <= found.bytes_per_step && found.bytes_per_step <= found.at_most, "{name}: {found:?}");
        assert!(found.at_least <= grows * MIB * 1.05 && grows * MIB * 0.95 <= found.at_most, "{name}: {found:?}");
    }
}

#[test]
fn noise_alone_is_hardly_ever_taken_for_a_leak() {
    let found = (0..150).filter(|seed| {
        let mut noise = Noise(*seed);
        let series: Vec<_> = (0..200).map(|step| (step, ((900.0 + 100.0 * noise.next()) * MIB) as u64)).collect();
        leak(&series).is_some()
    });
    assert_eq!(found.count(), 0);
}

#[test]
fn too_short_a_series_says_nothing() {
    assert!(leak(&series(39, |step, _| 900.0 + step)).is_none());
    assert!(leak(&[]).is_none());
    assert!(leak(&series(41, |step, _| 900.0 + step)).is_some());
}

#[test]
fn it_says_when_memory_runs_out() {
    let found = leak(&series(400, |step, _| 900.0 + step)).unwrap();
    assert_eq!(found.steps_until((100.0 * MIB) as u64), 100);
    assert_eq!((found.from_step, found.to_step, found.in_use_bytes), (101, 400, (1300.0 * MIB) as u64));
}

#[test]
fn a_run_of_many_steps_is_looked_at_as_it_goes_in_little_memory() {
    let mut check = LeakCheck::new();
    let steady = series(20_000, |_, noise| 900.0 + 10.0 * noise);
    for (step, bytes) in steady {
        assert!(check.observe(step, bytes).is_none(), "{step}");
    }
    assert!(check.series.len() <= 2048, "{}", check.series.len());

    let mut check = LeakCheck::new();
    let leaking = series(20_000, |step, noise| 900.0 + 0.01 * step + 10.0 * noise);
    let found = leaking.iter().find_map(|(step, bytes)| Some((*step, check.observe(*step, *bytes)?)));
    let (step, found) = found.expect("it is found");
    assert!(step < 20_000 && (found.bytes_per_step / MIB / 0.01 - 1.0).abs() < 0.3, "{step}: {found:?}");
}

#[test]
fn the_series_is_that_of_the_run_that_began_last_wherever_it_stands() {
    let run = |at: u32, pid: u32| {
        let step = |step: u32| {
            format!(r#"{{"kind":"step","at":{},"step":{step},"pid":{pid},"in_use_bytes":{}}}"#, at + step, pid + step)
        };
        format!("{{\"kind\":\"run\",\"at\":{at},\"pid\":{pid}}}\n{}\n{}\n", step(1), step(2))
    };
    let (old, new) = (run(100, 1000), run(101, 2000));
    for text in [format!("{old}{new}"), format!("{new}{old}")] {
        let records = crate::recording::parse("run.jsonl", &text).expect("records").records;
        assert_eq!(super::series(&records, 0), [(1, 2001), (2, 2002)]);
    }
}
