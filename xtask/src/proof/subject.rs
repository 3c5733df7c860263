//! A model that was measured, and what the planner says of it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::measured::{Measured, MeasuredOn, MeasurementMethod, Mode};
use gpu_tuned_core::plan::MemoryEstimate;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{ModelKind, Workload};
use gpu_tuned_core::{Bytes, Goal, Pins, Precision, plan};

use super::data::{Line, Results};
use super::sweep::Sweep;

/// Memory of the smaller cards, in GiB.
const CARDS: [u64; 5] = [8, 12, 16, 24, 80];

/// A model that was measured.
pub(super) struct Subject<'a> {
    pub name: &'a str,
    /// The profile of the device that it was measured on, which is also its name in the lock.
    pub device: &'a str,
    pub kind: &'static ModelKind,
    /// What the measured program asked for.
    pub goal: Goal,
    /// What was measured of it, all of it.
    pub measured: &'a Measured,
    /// The workload with what was measured on GPUs.
    pub on_gpu: Workload,
    /// The workload with what the CPU told of the GPU; `None` where nothing is on record.
    pub on_cpu: Option<Workload>,
    /// The workload by its dimensions alone.
    pub derived: Workload,
    pub sweep: Sweep,
    /// What the memory pools held at most, executed or dry.
    observed: BTreeMap<Run, Bytes>,
}

/// What stands behind the memory that a step is said to take; context and kernels are the lock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// What the memory pools held in such steps.
    Step,
    /// What they held with one of its micro-batches, and what the lock says of adding gradients up.
    MicroBatch,
    /// What the lock says.
    Lock,
}

/// How a step is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub mode: Mode,
    pub accumulate: u64,
    pub queue: u64,
    pub batch: u64,
}

/// The device with so much memory.
pub(super) struct Card {
    /// Such as `8 GiB`.
    pub name: String,
    pub facts: DeviceFacts,
}

/// What a run is predicted to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    /// Memory pools, with the batches that wait.
    pub pools: Bytes,
    /// What a prediction is raised by to be a bound.
    pub margin: Bytes,
    /// Context and kernels.
    pub fixed: Bytes,
}

impl<'a> Subject<'a> {
    /// The workloads of the lock that were measured on their devices.
    pub(super) fn all(results: &'a Results) -> Result<Vec<Self>> {
        let subject = |(name, device): (&'a String, &'a String)| {
            let entry = &results.lock.workload[name];
            let described = entry.described.as_ref();
            let described = described.with_context(|| format!("workload.{name} has no description"))?;
            let derived = described.workload();
            let measured_in = |is_replayed: bool| {
                let mut measured = entry.measured.clone();
                measured.on.retain(|_, on| on.kind == DeviceKind::Gpu);
                for on in measured.on.values_mut() {
                    on.mode.retain(|_, mode| (mode.method == MeasurementMethod::Simulated) == is_replayed);
                }
                measured
            };
            let replayed = measured_in(true);
            let has_replays = replayed.on.values().any(|on| !on.mode.is_empty());
            Ok(Self {
                name,
                device,
                kind: described.model.kind(),
                goal: entry.goal.clone().unwrap_or_default(),
                measured: &entry.measured,
                on_gpu: derived.clone().with_measured(measured_in(false)),
                on_cpu: has_replays.then(|| derived.clone().with_measured(replayed)),
                derived,
                sweep: Sweep::of(&results.sweep, name),
                observed: observed(results, name),
            })
        };
        results.devices.iter().map(subject).collect()
    }

    /// What was measured on its device.
    pub(super) fn on(&self) -> &'a MeasuredOn {
        &self.measured.on[self.device]
    }

    /// Returns true if the lock has measurements of this mode on the device.
    pub(super) fn has(&self, mode: Mode) -> bool {
        self.on_gpu.measured.on.get(self.device).is_some_and(|on| on.mode.contains_key(&mode))
    }

    /// Returns true if the lock has this micro-batch.
    pub(super) fn is_measured(&self, mode: Mode, batch: u64) -> bool {
        let on = self.on_gpu.measured.on.get(self.device);
        on.and_then(|on| on.mode.get(&mode)).is_some_and(|mode| mode.batch.contains_key(&batch))
    }

    /// The number formats in which it was measured.
    pub(super) fn precisions(&self) -> impl Iterator<Item = Precision> {
        let measured = |precision: &Precision| {
            [false, true].into_iter().any(|checkpointing| self.has(Mode::new(*precision, checkpointing)))
        };
        Precision::ALL.into_iter().filter(measured)
    }

    /// What a step of the goal's samples takes with micro-batches of this size, and how that is known.
    pub(super) fn takes(&self, mode: Mode, batch: u64) -> Result<(Bytes, Known)> {
        let plain = Run::plain(mode, batch);
        let accumulate = self.goal.global_batch.map_or(1, |global| global.div_ceil(batch).max(1));
        let run = Run { accumulate, ..plain };
        let need = self.need(run)?;
        let (pools, known) = match (self.observed.get(&run), self.observed.get(&plain)) {
            (Some(held), _) => (*held, Known::Step),
            (None, Some(held)) => (*held + (need.pools - self.need(plain)?.pools), Known::MicroBatch),
            (None, None) => (need.pools, Known::Lock),
        };
        Ok((pools + need.fixed, known))
    }

    /// What a run takes, by what was measured on GPUs.
    pub(super) fn need(&self, run: Run) -> Result<Need> {
        need(self.device, &self.on_gpu, run).with_context(|| format!("{} at batch {}", self.name, run.batch))
    }
}

fn observed(results: &Results, model: &str) -> BTreeMap<Run, Bytes> {
    let mut observed: BTreeMap<Run, Bytes> = BTreeMap::new();
    for line in results.traced().chain(&results.confirmed).filter(|line| line.model == model) {
        if let Some(bytes) = line.reserved() {
            let most = observed.entry(Run::of(line)).or_default();
            *most = bytes.max(*most);
        }
    }
    observed
}

/// What a run takes on a device, whatever there is.
pub(super) fn need(device: &str, workload: &Workload, run: Run) -> Result<Need> {
    let unlimited = Bytes(Measured::LARGEST);
    let facts = with_memory(&facts(device)?, unlimited);
    let mut pins = Pins::default();
    pins.batch_size = Some(run.batch);
    pins.gradient_accumulation = Some(run.accumulate);
    pins.gradient_checkpointing = Some(run.mode.checkpointing);
    let goal = Goal { precision: Some(run.mode.precision), pins, ..Goal::default() };
    let memory = plan(&facts, workload, &goal)?.memory;
    let input = workload.sample.input.unwrap_or_default().times(run.batch);
    let MemoryEstimate { margin, kernels, context, .. } = memory;
    let planned_queue = memory.inputs - input;
    let pools = memory.total() - margin - kernels - context - planned_queue + input.times(run.queue);
    Ok(Need { pools, margin, fixed: kernels + context })
}

impl Run {
    /// A step of one micro-batch, which nothing waits for.
    pub(super) const fn plain(mode: Mode, batch: u64) -> Self {
        Self { mode, accumulate: 1, queue: 0, batch }
    }

    /// The run that a line tells of.
    pub(super) const fn of(line: &Line) -> Self {
        Self { mode: line.mode(), accumulate: line.accumulate, queue: line.queue, batch: line.batch }
    }

    /// Such as `8 x 64, 2 waiting`.
    pub(super) fn step(self) -> String {
        let Self { accumulate, queue, batch, .. } = self;
        let times = if accumulate == 1 { String::new() } else { format!("{accumulate} x ") };
        let waiting = if queue == 0 { String::new() } else { format!(", {queue} waiting") };
        format!("{times}{batch}{waiting}")
    }
}

impl Need {
    /// All that is predicted.
    pub(super) fn total(self) -> Bytes {
        self.pools + self.fixed
    }

    /// What the memory pools are predicted not to exceed.
    pub(super) fn bound(self) -> Bytes {
        self.pools + self.margin
    }
}

/// The device with the memory of smaller cards, and with its own.
pub(super) fn cards(device: &str) -> Result<Vec<Card>> {
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
