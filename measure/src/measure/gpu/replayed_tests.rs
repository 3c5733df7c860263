//! Searches over GPUs whose figures are on record: plans from few sizes are compared with the best of all sizes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, Mode, micro_batches};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, plan};
use gpu_tuned_project::lock::LockFile;
use serde::Deserialize;

use super::{Plan, Trial, measure};
use crate::measure::bench::{Budget, ON_A_GPU};
use crate::measure::timed::Run;
use crate::measure::{MeasureError, Memory, Step, Times};

const GLOBAL: u64 = 512;
/// Least throughput of a plan, as a fraction of the best that fits.
const LEAST: f64 = 0.98;

/// A model on record: folder and name, and seconds that its first size and every other one take to compile and autotune.
///
/// First steps of these models took 30 to 80 s with empty caches. Other sizes took 2 to 10 s, and those of the LSTM up to
/// 60 s on one machine.
const MODELS: [(&str, &str, f64, f64); 4] = [
    ("h200", "convnet", 30.0, 8.0),
    ("h200", "transformer", 65.0, 5.0),
    ("h100-sxm5-80gb", "resnet", 65.0, 8.0),
    ("h100-sxm5-80gb", "lstm", 75.0, 12.0),
];

/// A line of `sweep.jsonl`.
#[derive(Deserialize)]
struct Swept {
    model: String,
    precision: String,
    checkpointing: bool,
    batch: u64,
    samples_per_second: f64,
}

/// Figures of one mode by micro-batch, with straight lines between them.
#[derive(Default)]
struct Recorded {
    /// Milliseconds of a micro-batch and its share of the optimizer.
    ms: BTreeMap<u64, f64>,
    reserved: BTreeMap<u64, f64>,
    accumulating: BTreeMap<u64, f64>,
}

/// A GPU on record, and the time that a search takes on it.
struct Replay {
    on: MeasuredOn,
    modes: BTreeMap<bool, Recorded>,
    cold: f64,
    tuning: f64,
    tuned: RefCell<BTreeSet<(usize, bool)>>,
    begin: Instant,
    seconds: Cell<f64>,
}

fn results(gpu: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/hardware/results").join(gpu)
}

/// The figure at a size. Below the first one it falls to half of it, beyond the last it extends the last line.
fn line(figures: &BTreeMap<u64, f64>, batch: u64) -> f64 {
    let figures: Vec<_> = figures.iter().map(|(batch, figure)| (*batch as f64, *figure)).collect();
    let (first, at_first) = figures[0];
    let batch = batch as f64;
    if batch <= first {
        return at_first * (0.5 + 0.5 * batch / first);
    }
    let above = figures.partition_point(|(known, _)| *known < batch).min(figures.len() - 1);
    let ((low, figure), (high, other)) = (figures[above - 1], figures[above]);
    figure + (other - figure) * (batch - low) / (high - low)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl Recorded {
    fn new(found: &MeasuredMode, swept: &[&Swept]) -> Self {
        let mut rates: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for line in swept {
            rates.entry(line.batch).or_default().push(line.samples_per_second);
        }
        let smallest = *rates.keys().next().expect("sizes were swept");
        let swept = rates.into_iter().map(|(batch, rates)| (batch, batch as f64 * 1e3 / median(rates)));
        let timed = found.batch.iter().filter(|(batch, _)| **batch < smallest);
        let timed = timed.filter_map(|(batch, point)| Some((*batch, point.micro_step_ms?)));
        let bytes = |figure: fn(&MeasuredBatch) -> Option<Bytes>| {
            let points = found.batch.iter().filter_map(move |(batch, point)| Some((*batch, figure(point)?.0 as f64)));
            points.collect()
        };
        Self {
            ms: timed.chain(swept).collect(),
            reserved: bytes(|point| point.reserved_bytes),
            accumulating: bytes(|point| point.reserved_accumulating_bytes),
        }
    }

    fn rate(&self, batch: u64) -> f64 {
        batch as f64 * 1e3 / line(&self.ms, batch)
    }

    fn bytes(&self, batch: u64, accumulates: bool) -> Bytes {
        let single = line(&self.reserved, batch);
        Bytes(if accumulates { single.max(line(&self.accumulating, batch)) } else { single } as u64)
    }
}

impl Replay {
    fn takes(&self, seconds: f64) {
        self.seconds.set(self.seconds.get() + seconds);
    }

    fn recorded(&self, checkpointing: bool) -> &Recorded {
        &self.modes[&checkpointing]
    }
}

impl Trial for Replay {
    fn dry(&self, step: Step) -> Result<Memory, MeasureError> {
        let mut tuned = self.tuned.borrow_mut();
        let recomputed = tuned.contains(&(step.batch, !step.checkpointing));
        let is_first = tuned.is_empty();
        if tuned.insert((step.batch, step.checkpointing)) {
            // Most kernels of a size are those of the other mode.
            self.takes(if is_first { self.cold } else { self.tuning * if recomputed { 0.5 } else { 1.0 } });
        }
        let recorded = self.recorded(step.checkpointing);
        // The host issues a step in 20 ms, and a recurrent network's in as long as it takes.
        let is_slow = self.tuning > 10.0;
        let host = if is_slow { line(&recorded.ms, step.batch as u64) / 1e3 } else { 0.02 };
        self.takes(host * if is_slow { 9.0 } else { 13.0 * step.micro_batches as f64 });
        let reserved_bytes = recorded.bytes(step.batch as u64, step.micro_batches > 1);
        Ok(Memory { reserved_bytes, in_use_bytes: None })
    }

    fn run(&self, step: Step, spend: Duration) -> Result<Run, MeasureError> {
        let ms = line(&self.recorded(step.checkpointing).ms, step.batch as u64);
        self.takes(spend.as_secs_f64().max(12.0 * ms / 1e3) + 10.0 * ms / 1e3);
        Ok(Run { times: Times { micro_step_ms: ms, optimizer_ms: 1e-3, spread: 0.0 }, reserved: None })
    }

    fn free(&self) -> Result<Bytes, MeasureError> {
        Ok(self.on.memory_bytes - self.on.context_bytes.unwrap_or_default() - self.on.kernels_bytes.unwrap_or_default())
    }

    fn held(&self) -> Bytes {
        Bytes::ZERO
    }

    fn now(&self) -> Instant {
        self.begin + Duration::from_secs_f64(self.seconds.get())
    }
}

/// Outcome of a replayed search.
struct Outcome {
    /// Sizes that were tried, without checkpointing and with it, in their order.
    tried: [Vec<u64>; 2],
    /// Seconds after which two sizes had memory and time.
    usable: f64,
    /// Seconds of the whole search.
    done: f64,
    /// Throughput of plans over the best that fits, with 80, 24 and 8 GiB free.
    shares: Vec<f64>,
}

/// Searches, and plans from what was found.
fn replay(gpu: &str, model: &str, precision: &str, cold: f64, tuning: f64) -> Outcome {
    let lock = LockFile::new(results(gpu).join("gpu-tuned.lock")).read().expect("it can be read").expect("a lock");
    let locked = &lock.workload[model];
    let on = &locked.measured.on[gpu];
    let text = fs::read_to_string(results(gpu).join("sweep.jsonl")).expect("it can be read");
    let swept: Vec<Swept> = text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
    let mode = |checkpointing: bool| Mode::new(precision.parse().expect("a precision"), checkpointing);
    let recorded = |checkpointing: bool| {
        let same = |line: &&Swept| {
            line.model == model && precision.starts_with(&line.precision) && line.checkpointing == checkpointing
        };
        let lines: Vec<_> = swept.iter().filter(same).collect();
        (checkpointing, Recorded::new(&on.mode[&mode(checkpointing)], &lines))
    };
    let replay = Replay {
        on: on.clone(),
        modes: [false, true].map(recorded).into(),
        cold,
        tuning,
        tuned: RefCell::default(),
        begin: Instant::now(),
        seconds: Cell::default(),
    };
    let device = DeviceFacts::nominal(ProfileTable::builtin().get(gpu).expect("a shipped profile"));
    let goal = Goal { global_batch: Some(GLOBAL), precision: Some(mode(false).precision.into()), ..Goal::default() };
    let described = locked.described.as_ref().expect("a description").workload();
    let search = Plan {
        largest_batch: GLOBAL,
        global: Some(GLOBAL),
        planned: plan(&device, &described, &goal).expect("it fits").settings.batch_size,
        tolerance: goal.throughput_tolerance,
        graphs: false,
        at_open: on.memory_bytes - on.context_bytes.unwrap_or_default(),
        budget: &Budget::new(ON_A_GPU),
        progress: &|_, _| (),
    };
    let (mut found, mut usable, mut tried) = (on.clone(), f64::INFINITY, [Vec::new(), Vec::new()]);
    found.mode.clear();
    let keep = &mut |mode: Mode, modes: MeasuredMode, _: Bytes| {
        if modes.batch.values().filter(|point| point.micro_step_ms.is_some()).count() == 2 {
            usable = usable.min(replay.seconds.get());
        }
        let order: &mut Vec<u64> = &mut tried[usize::from(mode.checkpointing)];
        order.extend(modes.batch.keys().filter(|size| !order.contains(size)).copied().collect::<Vec<_>>());
        found.mode.insert(mode, modes);
        Ok(())
    };
    measure(&replay, search, &[mode(false), mode(true)], keep).expect("it can be measured");
    let workload =
        described.with_measured(Measured { on: [(gpu.to_owned(), found)].into(), ..locked.measured.clone() });
    let shares = [80, 24, 8].map(|gib| {
        let device = DeviceFacts { memory_available: Bytes::from_mib(gib * 1024), ..device.clone() };
        share(&replay, &device, &workload, &goal)
    });
    Outcome { tried, usable, done: replay.seconds.get(), shares: shares.into() }
}

/// Throughput of the plan over the best that fits; 0 if the plan does not fit.
fn share(replay: &Replay, device: &DeviceFacts, workload: &Workload, goal: &Goal) -> f64 {
    let plan = plan(device, workload, goal).expect("a small micro-batch fits");
    let memory = &plan.memory;
    let pools = memory.budget() - memory.context - memory.kernels;
    let rate = |batch: u64, checkpointing: bool| {
        let recorded = replay.recorded(checkpointing);
        let fits = recorded.bytes(batch, batch < GLOBAL) <= pools;
        if fits { recorded.rate(batch) } else { 0.0 }
    };
    let swept = replay.modes.values().flat_map(|recorded| recorded.ms.keys().copied());
    let sizes: BTreeSet<u64> = swept.chain(micro_batches(GLOBAL, Some(GLOBAL))).collect();
    let all = sizes.iter().flat_map(|size| [false, true].map(|checkpointing| rate(*size, checkpointing)));
    rate(plan.settings.batch_size, plan.settings.gradient_checkpointing) / all.fold(0.0, f64::max)
}

#[test]
fn plans_from_few_sizes_reach_the_best_throughput_within_memory() {
    let mut rows = String::new();
    for (gpu, model, cold, tuning) in MODELS {
        for precision in ["f32", "bf16_params"] {
            let Outcome { tried, usable, done, shares } = replay(gpu, model, precision, cold, tuning);
            let percent = shares.iter().map(|share| format!("{:.1}%", share * 100.0)).collect::<Vec<_>>().join(" ");
            let sizes = tried.map(|sizes| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" "));
            let [plain, checkpointed] = sizes;
            rows += &format!("{model} {precision}: {plain} / {checkpointed}; {usable:.0} s, {done:.0} s; {percent}\n");
            assert!(done <= 120.0 && shares.iter().all(|share| *share >= LEAST), "{rows}");
        }
    }
    // Sizes without checkpointing / with it; seconds until two sizes are measured, and all; throughput.
    insta::assert_snapshot!(rows, @r"
    convnet f32: 32 128 8 16 64 256 4 / 64; 46 s, 114 s; 98.1% 98.1% 98.1%
    convnet bf16_params: 32 128 8 16 64 / 64 256 16 32; 45 s, 113 s; 99.2% 99.2% 99.2%
    transformer f32: 64 256 512 128 / ; 82 s, 113 s; 99.4% 99.1% 99.8%
    transformer bf16_params: 64 256 16 32 128 8 / 64; 80 s, 119 s; 100.0% 100.0% 100.0%
    resnet f32: 128 512 256 64 / 512; 80 s, 110 s; 98.3% 98.3% 98.3%
    resnet bf16_params: 128 512 32 64 256 / ; 81 s, 115 s; 99.3% 99.3% 99.3%
    lstm f32: 128 512 / ; 109 s, 109 s; 100.0% 100.0% 100.0%
    lstm bf16_params: 128 512 / ; 106 s, 106 s; 100.0% 100.0% 100.0%
    ");
}
