//! A measured model, with the planner's predictions.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::measured::{Measured, MeasuredOn, MeasurementMethod, Mode};
use gpu_tuned_core::plan::MemoryEstimate;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{ModelKind, Workload};
use gpu_tuned_core::{Bytes, Goal, Pins, Precision, plan};

use crate::results::{Line, Results, Sweep};

/// Memory of the simulated smaller cards, in GiB.
const CARDS: [u64; 5] = [8, 12, 16, 24, 80];

/// A measured model.
pub struct Subject<'a> {
    pub name: &'a str,
    /// Profile of the measured device, which is also the device's name in the lock.
    pub device: &'a str,
    pub kind: &'static ModelKind,
    /// Goal of the measured program.
    pub goal: Goal,
    /// All measurements.
    pub measured: &'a Measured,
    /// The workload with the measurements on GPUs.
    pub on_gpu: Workload,
    /// The workload without measurements.
    pub derived: Workload,
    pub sweep: Sweep,
    /// Maximum bytes reserved by the memory pools, executed or dry.
    observed: BTreeMap<Run, Bytes>,
}

/// Source of the pool memory of a step. Context and kernels are the lock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemorySource {
    /// Observed in such steps.
    Step,
    /// Observed with one micro-batch, plus the lock's difference for accumulation.
    MicroBatch,
    /// Predicted from the lock.
    Lock,
}

/// Mode and split of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    pub mode: Mode,
    pub accumulate: u64,
    pub queue: u64,
    pub batch: u64,
}

/// The device with another amount of memory.
pub struct Card {
    /// Name, such as `8 GiB`.
    pub name: String,
    pub facts: DeviceFacts,
}

/// Predicted memory of a run.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Memory pools, with prefetched batches.
    pub pools: Bytes,
    /// Difference of the bound to the prediction.
    pub margin: Bytes,
    /// Context and kernels.
    pub fixed: Bytes,
}

impl<'a> Subject<'a> {
    /// Collects the workloads of the lock.
    pub fn all(results: &'a Results) -> Result<Vec<Self>> {
        let subject = |(name, device): (&'a String, &'a String)| {
            let entry = &results.lock.workload[name];
            let described = entry.described.as_ref();
            let described = described.with_context(|| format!("workload.{name} has no description"))?;
            let derived = described.workload();
            let mut on_gpu = entry.measured.clone();
            on_gpu.on.retain(|_, on| on.kind == DeviceKind::Gpu);
            for on in on_gpu.on.values_mut() {
                on.mode.retain(|_, mode| mode.method != MeasurementMethod::Simulated);
            }
            Ok(Self {
                name,
                device,
                kind: described.model.kind(),
                goal: entry.goal.clone().unwrap_or_default(),
                measured: &entry.measured,
                on_gpu: derived.clone().with_measured(on_gpu),
                derived,
                sweep: Sweep::new(&results.sweep, name),
                observed: observed(results, name),
            })
        };
        results.devices.iter().map(subject).collect()
    }

    /// Measurements on the model's device.
    pub fn on(&self) -> &'a MeasuredOn {
        &self.measured.on[self.device]
    }

    /// Returns true if the lock has measurements of this mode on the device.
    pub fn has(&self, mode: Mode) -> bool {
        self.on_gpu.measured.on.get(self.device).is_some_and(|on| on.mode.contains_key(&mode))
    }

    /// Returns true if the lock has this micro-batch.
    pub fn is_measured(&self, mode: Mode, batch: u64) -> bool {
        let on = self.on_gpu.measured.on.get(self.device);
        on.and_then(|on| on.mode.get(&mode)).is_some_and(|mode| mode.batch.contains_key(&batch))
    }

    /// Measured precisions.
    pub fn precisions(&self) -> impl Iterator<Item = Precision> {
        let measured = |precision: &Precision| {
            [false, true].into_iter().any(|checkpointing| self.has(Mode::new(*precision, checkpointing)))
        };
        Precision::ALL.into_iter().filter(measured)
    }

    /// Memory of an optimizer step with micro-batches of this size, and the source of its pool memory.
    pub fn memory_needed(&self, mode: Mode, batch: u64) -> Result<(Bytes, MemorySource)> {
        let plain = Run::plain(mode, batch);
        let accumulate = self.goal.global_batch.map_or(1, |global| global.div_ceil(batch).max(1));
        let run = Run { accumulate, ..plain };
        let need = self.need(run)?;
        let (pools, source) = match (self.observed.get(&run), self.observed.get(&plain)) {
            (Some(observed), _) => (*observed, MemorySource::Step),
            (None, Some(observed)) => (*observed + (need.pools - self.need(plain)?.pools), MemorySource::MicroBatch),
            (None, None) => (need.pools, MemorySource::Lock),
        };
        Ok((pools + need.fixed, source))
    }

    /// Predicted memory of a run, from measurements on GPUs.
    pub fn need(&self, run: Run) -> Result<Need> {
        need(self.device, &self.on_gpu, run).with_context(|| format!("{} at batch {}", self.name, run.batch))
    }
}

/// Maximum bytes reserved by the memory pools in each run of a model.
fn observed(results: &Results, model: &str) -> BTreeMap<Run, Bytes> {
    let mut observed: BTreeMap<Run, Bytes> = BTreeMap::new();
    for line in results.traced().chain(&results.confirmed).filter(|line| line.model == model) {
        if let Some(bytes) = line.reserved() {
            let max = observed.entry(Run::new(line)).or_default();
            *max = bytes.max(*max);
        }
    }
    observed
}

/// Predicted memory of a run on a device with unlimited memory.
fn need(device: &str, workload: &Workload, run: Run) -> Result<Need> {
    let unlimited = Bytes(Measured::LARGEST);
    let facts = with_memory(&facts(device)?, unlimited);
    let mut pins = Pins::default();
    pins.batch_size = Some(run.batch);
    pins.gradient_accumulation = Some(run.accumulate);
    pins.gradient_checkpointing = Some(run.mode.checkpointing);
    let goal = Goal { precision: Some(run.mode.precision.into()), pins, ..Goal::default() };
    let memory = plan(&facts, workload, &goal)?.memory;
    let input = workload.sample.input.unwrap_or_default().times(run.batch);
    let MemoryEstimate { margin, kernels, context, .. } = memory;
    let planned_queue = memory.inputs - input;
    let pools = memory.total() - margin - kernels - context - planned_queue + input.times(run.queue);
    Ok(Need { pools, margin, fixed: kernels + context })
}

impl Run {
    /// A step of one micro-batch, without prefetch.
    pub const fn plain(mode: Mode, batch: u64) -> Self {
        Self { mode, accumulate: 1, queue: 0, batch }
    }

    /// Run of a line of results.
    pub const fn new(line: &Line) -> Self {
        Self { mode: line.mode(), accumulate: line.accumulate, queue: line.queue, batch: line.batch }
    }

    /// Formats the step, such as `8 x 64, 2 waiting`.
    pub fn step(self) -> String {
        let Self { accumulate, queue, batch, .. } = self;
        let times = if accumulate == 1 { String::new() } else { format!("{accumulate} x ") };
        let waiting = if queue == 0 { String::new() } else { format!(", {queue} waiting") };
        format!("{times}{batch}{waiting}")
    }
}

impl Need {
    /// Sum, without margin.
    pub fn total(self) -> Bytes {
        self.pools + self.fixed
    }

    /// Upper bound of the memory pools.
    pub fn bound(self) -> Bytes {
        self.pools + self.margin
    }
}

/// Returns the device with the memory of smaller cards, and with its own memory.
pub fn cards(device: &str) -> Result<Vec<Card>> {
    let own = facts(device)?;
    let smaller = CARDS.map(|gib| (format!("{gib} GiB"), Bytes::from_mib(gib * 1024)));
    let names = smaller.into_iter().filter(|(_, memory)| *memory < own.memory_total);
    let names = names.chain([(format!("{:.0} GiB", own.memory_total.gib()), own.memory_total)]);
    Ok(names.map(|(name, memory)| Card { name, facts: with_memory(&own, memory) }).collect())
}

fn facts(device: &str) -> Result<DeviceFacts> {
    let profile = ProfileTable::builtin_profile(device).with_context(|| format!("there is no profile {device}"))?;
    Ok(DeviceFacts::nominal(&profile))
}

fn with_memory(facts: &DeviceFacts, memory: Bytes) -> DeviceFacts {
    DeviceFacts { memory_total: memory, memory_available: memory, ..facts.clone() }
}
