//! A made-up GPU for tests of the search.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu_tuned_core::measured::{MeasuredMode, Mode};
use gpu_tuned_core::{Bytes, Precision};

use super::super::{Plan, Trial, measure};
use crate::measure::bench::Budget;
use crate::measure::timed::Run;
use crate::measure::{MeasureError, Memory, Step, Times};

pub(super) const MODES: [Mode; 2] = [Mode::new(Precision::F32, false), Mode::new(Precision::F32, true)];
pub(super) const BUDGET: Duration = Duration::from_mins(2);

/// A GPU with so many MiB, on which steps take memory and time along lines.
pub(super) struct Fake {
    pub(super) total: u64,
    pub(super) fixed: u64,
    /// MiB of a sample; half of it with checkpointing.
    pub(super) sample: u64,
    /// Micro-batch that was planned before.
    pub(super) planned: u64,
    /// No larger batch can be made.
    pub(super) largest: usize,
    /// Largest batch whose gradients can be accumulated.
    pub(super) accumulated: usize,
    /// Memory of executed steps, as a fraction of their dry run.
    pub(super) really: f64,
    /// Duration of the first dry run, which compiles most kernels.
    pub(super) cold: Duration,
    /// Duration of every other dry run.
    pub(super) tuning: Duration,
    /// Duration of the repeats of a batch.
    pub(super) took: Duration,
    /// Milliseconds of a micro-step by its samples, without and with checkpointing.
    pub(super) ms: [fn(f64) -> f64; 2],
    /// Milliseconds of a replayed micro-step by its samples; `None` without CUDA graphs, NaN where they are refused.
    pub(super) graphs_ms: Option<fn(f64) -> f64>,
    pub(super) calls: RefCell<Vec<(&'static str, Step)>>,
    pub(super) now: Cell<Instant>,
}

/// Measurements of a search.
pub(super) struct Found {
    pub(super) modes: BTreeMap<Mode, MeasuredMode>,
    pub(super) kernels: Bytes,
    pub(super) took: Duration,
}

pub(super) fn fake() -> Fake {
    let ms = |batch| 2.0 + batch;
    Fake {
        total: 100_000,
        fixed: 10_000,
        sample: 400,
        planned: 64,
        largest: usize::MAX,
        accumulated: usize::MAX,
        really: 1.0,
        cold: Duration::ZERO,
        tuning: Duration::ZERO,
        took: Duration::from_secs(1),
        ms: [ms, ms],
        graphs_ms: None,
        calls: RefCell::default(),
        now: Cell::new(Instant::now()),
    }
}

impl Fake {
    pub(super) fn reserved(&self, step: Step) -> Bytes {
        let sample = if step.checkpointing { self.sample / 2 } else { self.sample };
        let gradients = if step.micro_batches > 1 { 2000 } else { 0 };
        Bytes::from_mib(self.fixed + gradients + sample * step.batch as u64)
    }

    pub(super) fn plan<'p>(&self, largest_batch: u64, budget: &'p Budget) -> Plan<'p> {
        Plan {
            largest_batch,
            global: None,
            planned: self.planned,
            tolerance: 0.02,
            graphs: self.graphs_ms.is_some(),
            at_open: Bytes::from_mib(self.total - 5000),
            budget,
            progress: &|_, _| (),
        }
    }

    pub(super) fn search(&self, plan: Plan<'_>) -> Result<Found, MeasureError> {
        let (mut modes, mut kernels, begin) = (BTreeMap::new(), Bytes::ZERO, self.now.get());
        let keep = &mut |mode: Mode, found: MeasuredMode, bytes: Bytes| {
            kernels = kernels.max(bytes);
            modes.insert(mode, found);
            Ok(())
        };
        measure(self, plan, &MODES, keep)?;
        Ok(Found { modes, kernels, took: self.now.get() - begin })
    }

    pub(super) fn measured(&self, largest_batch: u64) -> Found {
        self.search(self.plan(largest_batch, &Budget::new(BUDGET))).expect("it can be measured")
    }

    /// Batches of the steps that were run, in their order.
    pub(super) fn ran(&self, checkpointing: bool) -> Vec<usize> {
        self.calls("run").iter().filter(|step| step.checkpointing == checkpointing).map(|step| step.batch).collect()
    }

    pub(super) fn calls(&self, kind: &str) -> Vec<Step> {
        self.calls.borrow().iter().filter(|(name, _)| *name == kind).map(|(_, step)| *step).collect()
    }

    fn takes(&self, duration: Duration) {
        self.now.set(self.now.get() + duration);
    }
}

impl Trial for Fake {
    fn dry(&self, step: Step) -> Result<Memory, MeasureError> {
        self.takes(if self.calls.borrow().is_empty() { self.cold } else { self.tuning });
        self.calls.borrow_mut().push(("dry", step));
        if step.batch > self.largest || step.micro_batches > 1 && step.batch > self.accumulated {
            return Err(step.failed(&"a tensor is too large"));
        }
        let reserved_bytes = self.reserved(step);
        Ok(Memory { reserved_bytes, in_use_bytes: Some(Bytes::ZERO) })
    }

    fn run(&self, step: Step, _: Duration) -> Result<Run, MeasureError> {
        self.takes(self.took);
        self.calls.borrow_mut().push(("run", step));
        let ms = match self.graphs_ms.filter(|_| step.cuda_graphs) {
            Some(ms) => ms(step.batch as f64),
            None => self.ms[usize::from(step.checkpointing)](step.batch as f64),
        };
        if ms.is_infinite() {
            return Err(step.failed(&"out of device memory allocating 13187940352 bytes"));
        }
        if ms.is_nan() {
            return Err(step.failed(&"refused: random operations"));
        }
        let times = Times { micro_step_ms: ms, optimizer_ms: 1.0, spread: 0.0 };
        let reserved = self.reserved(Step { micro_batches: 2, ..step }).scaled(self.really);
        Ok(Run { times, reserved: Some(reserved) })
    }

    fn free(&self) -> Result<Bytes, MeasureError> {
        // A context of 5000, and 3000 of kernels.
        Ok(Bytes::from_mib(self.total - 5000 - 3000))
    }

    fn held(&self) -> Bytes {
        Bytes::ZERO
    }

    fn now(&self) -> Instant {
        self.now.get()
    }
}
