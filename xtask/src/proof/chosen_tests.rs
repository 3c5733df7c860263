//! Which points measuring would keep of the models of the sweep, and how good the plans are that follow.
//!
//! The truth is what the sweep ran; between its batches the seconds of a micro-batch lie on lines, below its smallest they
//! are those of the smallest, which launches bound. Memory is what the lock says of there.

use std::collections::BTreeMap;
use std::path::Path;

use gpu_tuned_core::measured::select::{Sample, Seconds, Selected, ladder, select, time_residual};
use gpu_tuned_core::measured::{Measured, MeasuredMode, Point};
use gpu_tuned_core::{Bytes, Goal, Precision, plan};
use gpu_tuned_project::lock::LockedWorkload;

use super::data::Results;
use super::subject;

const GLOBAL: u64 = 512;
/// Seconds of the optimizer, about.
const OPTIMIZER: f64 = 0.0015;

/// By model, whether it is f32 and whether it checkpoints.
type Sweep = BTreeMap<(String, bool, bool), BTreeMap<u64, f64>>;

fn results() -> Results {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/hardware/results");
    Results::read(&folder).expect("they can be read").expect("they are there")
}

/// Samples per second by batch, of each model, precision and checkpointing.
fn sweep(results: &Results) -> Sweep {
    let mut runs: BTreeMap<_, BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for line in &results.sweep {
        let (Some(rate), mode) = (line.samples_per_second, line.mode()) else { continue };
        let key = (line.model.clone(), mode.precision == Precision::F32, mode.checkpointing);
        runs.entry(key).or_default().entry(line.batch).or_default().push(rate);
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    runs.into_iter().map(|(key, runs)| (key, runs.into_iter().map(|(at, all)| (at, median(all))).collect())).collect()
}

/// Seconds of a micro-batch.
fn micro_step(rates: &BTreeMap<u64, f64>, batch: u64) -> f64 {
    let seconds = |at: u64| (GLOBAL as f64 / rates[&at] - OPTIMIZER) * at as f64 / GLOBAL as f64;
    let below = rates.range(..=batch).next_back().map(|(at, _)| *at);
    let above = rates.range(batch..).next().map(|(at, _)| *at);
    match (below, above) {
        (Some(below), Some(above)) if below < above => {
            let share = (batch - below) as f64 / (above - below) as f64;
            seconds(below) * (1.0 - share) + seconds(above) * share
        }
        (_, Some(at)) => seconds(at),
        (at, None) => seconds(at.expect("a batch")),
    }
}

fn rate(rates: &BTreeMap<u64, f64>, batch: u64) -> f64 {
    GLOBAL as f64 / (micro_step(rates, batch) * GLOBAL as f64 / batch as f64 + OPTIMIZER)
}

/// What a mode of the lock says of a batch.
fn reserved(mode: &MeasuredMode, batch: u64) -> Bytes {
    mode.reserved(batch).expect("memory was measured")
}

/// The mode as it would be measured: memory along the ladder and where lines begin, times at powers of two.
fn measured(mode: &MeasuredMode, rates: &BTreeMap<u64, f64>) -> MeasuredMode {
    let mut batches: Vec<u64> = ladder(GLOBAL).into_iter().chain(mode.batch.keys().copied()).collect();
    batches.sort_unstable();
    batches.dedup();
    let sample = |batch: &u64| Sample {
        batch: *batch,
        reserved: reserved(mode, *batch),
        in_use: None,
        held: None,
        seconds: batch
            .is_power_of_two()
            .then(|| Seconds { micro_step: micro_step(rates, *batch), optimizer: OPTIMIZER }),
    };
    let samples: Vec<Sample> = batches.iter().map(sample).collect();
    let Selected { batches: kept, pieces, .. } = select(&samples, Measured::MOST_POINTS, Some(GLOBAL));
    let points = pieces.iter().map(|piece| {
        let seconds = samples.iter().find(|sample| sample.batch == piece.batch).and_then(|sample| sample.seconds);
        let point = Point {
            reserved_bytes: Some(reserved(mode, piece.batch)),
            reserved_bytes_per_sample: Some(piece.per_sample),
            reserved_from: Some(piece.from),
            residual: Some(piece.residual),
            micro_step_ms: seconds.map(|seconds| seconds.micro_step * 1e3),
            optimizer_ms: seconds.map(|seconds| seconds.optimizer * 1e3),
            ..Point::default()
        };
        (piece.batch, point)
    });
    let time_residual = time_residual(&samples, &kept, Some(GLOBAL));
    MeasuredMode { time_residual, pages: BTreeMap::new(), batch: points.collect(), ..mode.clone() }
}

/// What context and kernels take, about.
const BESIDE: Bytes = Bytes::from_mib(600);

/// The plan's share of the best of the sweep that fits, for each precision on each card.
fn shares(name: &str, device: &str, entry: &LockedWorkload, sweep: &Sweep) -> Vec<(String, f64)> {
    let mut shares = Vec::new();
    for precision in [Precision::F32, Precision::Bf16Params] {
        let is_swept =
            |checkpointing| sweep.contains_key(&(name.to_owned(), precision == Precision::F32, checkpointing));
        // A model may be swept without checkpointing alone.
        if ![false, true].into_iter().all(is_swept) {
            continue;
        }
        let rates = |checkpointing| &sweep[&(name.to_owned(), precision == Precision::F32, checkpointing)];
        let (mut figures, mut old) = (entry.measured.clone(), BTreeMap::new());
        for (mode, measured) in figures.on.values_mut().flat_map(|on| &mut on.mode) {
            if mode.precision == precision {
                let kept = self::measured(measured, rates(mode.checkpointing));
                old.insert(mode.checkpointing, core::mem::replace(measured, kept));
            }
        }
        let spec = entry.described.as_ref().expect("it is described");
        let workload = spec.workload().with_measured(figures);
        let goal = Goal { global_batch: Some(GLOBAL), precision: Some(precision), ..Goal::default() };
        for card in subject::cards(device).expect("a shipped profile") {
            let plan = plan(&card.facts, &workload, &goal).expect("it fits");
            let (batch, checkpointing) = (plan.settings.batch_size, plan.settings.gradient_checkpointing);
            let most = card.facts.memory_available.scaled(1.0 - goal.memory_headroom);
            let fits = |kept: bool, batch: u64| reserved(&old[&kept], batch) + BESIDE <= most;
            let all =
                [false, true].into_iter().flat_map(|kept| rates(kept).iter().map(move |(at, rate)| (kept, *at, *rate)));
            let best = all.filter(|(kept, at, _)| fits(*kept, *at)).map(|(.., rate)| rate).fold(0.0, f64::max);
            let share = rate(rates(checkpointing), batch) / best;
            let what = format!("{name}, {precision}, {}: {batch}{}", card.name, if checkpointing { " c" } else { "" });
            shares.push((what, share));
        }
    }
    shares
}

#[test]
fn plans_by_the_points_that_would_be_kept_are_nearly_the_fastest() {
    let results = results();
    let sweep = sweep(&results);
    let of = |(name, device): (&String, &String)| shares(name, device, &results.lock.workload[name], &sweep);
    let shares: Vec<_> = results.devices.iter().flat_map(of).collect();
    for (what, share) in &shares {
        println!("{what}: {share:.3}");
    }
    let mean = (shares.iter().map(|(_, share)| share.ln()).sum::<f64>() / shares.len() as f64).exp();
    println!("geometric mean {mean:.3}");
    assert_eq!(shares.len(), 44);
    assert!(shares.iter().all(|(_, share)| *share >= 0.93) && mean >= 0.98, "{mean}: {shares:#?}");
}
