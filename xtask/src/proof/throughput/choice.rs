//! A chosen micro-batch, with its memory and throughput.

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Provenance};

use crate::proof::figures::three_digits;
use crate::proof::subject::{MemorySource, Subject};
use crate::proof::sweep::Rate;

/// Settings with their memory and outcome.
#[derive(Clone, Copy)]
pub(in crate::proof) struct Choice {
    pub mode: Mode,
    pub batch: u64,
    pub provenance: Option<Provenance>,
    /// Memory needed, without margin.
    pub need: Bytes,
    pub memory_source: MemorySource,
    pub outcome: Outcome,
}

/// Outcome of running settings.
#[derive(Clone, Copy)]
pub(in crate::proof) enum Outcome {
    Runs(Rate),
    /// The need exceeds the memory, or a repeat of the sweep ran out of memory.
    OutOfMemory,
    /// The sweep timed fewer than two batches of the mode.
    NotTimed,
}

impl Choice {
    pub(super) fn new(
        subject: &Subject,
        memory: Bytes,
        (mode, batch): (Mode, u64),
        provenance: Option<Provenance>,
    ) -> Result<Self> {
        let (need, memory_source) = subject.memory_needed(mode, batch)?;
        let outcome = match subject.sweep.rate(mode, batch) {
            _ if need > memory || subject.sweep.ran_out_of_memory(mode, batch) => Outcome::OutOfMemory,
            Some(rate) => Outcome::Runs(rate),
            None => Outcome::NotTimed,
        };
        Ok(Self { mode, batch, provenance, need, memory_source, outcome })
    }

    /// Samples per second; 0 unless the settings run.
    pub(super) fn samples_per_s(&self) -> f64 {
        match self.outcome {
            Outcome::Runs(rate) => rate.samples_per_s,
            Outcome::OutOfMemory | Outcome::NotTimed => 0.0,
        }
    }

    /// Formats the batch, with `c` for checkpointing.
    pub(super) fn settings(&self) -> String {
        format!("{}{}", self.batch, if self.mode.checkpointing { " c" } else { "" })
    }

    /// Formats samples per second, or the reason why there are none.
    pub(super) fn speed(&self) -> String {
        self.outcome_or(|rate| format!("{}{}", rate.mark(), three_digits(rate.samples_per_s)))
    }

    /// Formats the outcome; `runs` formats a rate.
    pub(super) fn outcome_or(&self, runs: impl Fn(Rate) -> String) -> String {
        match self.outcome {
            Outcome::Runs(rate) => runs(rate),
            Outcome::OutOfMemory => "out of memory".to_owned(),
            Outcome::NotTimed => "not timed".to_owned(),
        }
    }
}
