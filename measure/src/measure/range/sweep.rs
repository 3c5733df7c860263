//! Setup after setup, none that would run out of memory.

use std::collections::BTreeMap;
use std::time::Instant;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_observe::bench::{Figures, Line, Outcome, Setup};
use gpu_tuned_train::out_of_memory::is_out_of_memory;

use super::super::{MeasureError, Memory, Step};
use super::journal::Journal;
use super::report::{self, Progress};
use super::runner::StepRunner;

/// Micro-batches whose memory predicts that of larger ones, without a dry run.
const PROBES: [u64; 2] = [1, 2];

/// The setups of one process.
pub(super) struct Sweep<'c> {
    pub(super) runner: &'c dyn StepRunner,
    /// Samples that a step has on one rank.
    pub(super) largest: u64,
    /// With and without recomputing activations, as far as the model can be had so.
    pub(super) checkpointing: &'static [bool],
    /// Results on record, including those of this process.
    pub(super) known: Vec<(Setup, Outcome)>,
    pub(super) journal: &'c mut Journal,
    /// Called after output.
    pub(super) after_output: &'c dyn Fn(),
}

impl Sweep<'_> {
    /// Runs what is not on record. Ends before the last of them where memory ran out.
    pub(super) fn run(mut self, setups: &[Setup]) -> Result<(), MeasureError> {
        let is_done = |setup: &Setup| self.outcome(*setup).is_some_and(|outcome| !outcome.is_transient());
        let todo: Vec<_> = setups.iter().copied().filter(|setup| !is_done(setup)).collect();
        self.known.retain(|(_, outcome)| !outcome.is_transient());
        let mut progress = Progress::new(setups, todo.len());
        let mut memory = self.known_memory();
        for setup in todo {
            let begin = Instant::now();
            self.journal.add(&Line::Started(setup))?;
            let outcome = self.attempt(setup, memory.entry(setup.mode()).or_default())?;
            self.journal.add(&Line::Ended { setup, outcome: Box::new(outcome.clone()) })?;
            report::point(&progress.after(setup, begin.elapsed()), &outcome);
            (self.after_output)();
            let is_over = matches!(outcome, Outcome::OutOfMemory { .. });
            self.known.push((setup, outcome));
            if is_over {
                report::memory_ran_out();
                return Ok(());
            }
        }
        Ok(())
    }

    fn outcome(&self, setup: Setup) -> Option<&Outcome> {
        self.known.iter().rev().find(|(known, _)| *known == setup).map(|(_, outcome)| outcome)
    }

    /// Measured memory by mode and batch.
    fn known_memory(&self) -> BTreeMap<Mode, KnownMemory> {
        let mut memory: BTreeMap<Mode, KnownMemory> = BTreeMap::new();
        for (setup, outcome) in self.known.iter().filter(|(setup, _)| setup.feed.is_none()) {
            memory.entry(setup.mode()).or_default().learn(setup.batch, outcome.figures());
        }
        memory
    }

    fn attempt(&self, setup: Setup, memory: &mut KnownMemory) -> Result<Outcome, MeasureError> {
        if setup.batch > self.largest {
            return Ok(Outcome::TooLarge { samples: self.largest });
        }
        if !self.checkpointing.contains(&setup.checkpointing) {
            let how = if setup.checkpointing { "without" } else { "with" };
            let message = format!("the program makes its model on a device {how} gradient checkpointing");
            return Ok(Outcome::Failed { message });
        }
        let step = Step::single(setup.batch, setup.checkpointing);
        let outcome = match setup.feed {
            None => self.alone(step, memory),
            // Where steps do not run with their batch at hand, they do not run otherwise.
            Some(feed) => match self.outcome(setup.unfed()) {
                Some(Outcome::Measured(_)) => {
                    self.runner.run_fed(step, feed).map(|figures| figures.map_or(Outcome::Unfed, Outcome::Measured))
                }
                Some(outcome) => Ok(outcome.clone()),
                None => Ok(Outcome::Failed { message: "it did not run by itself".to_owned() }),
            },
        };
        outcome.or_else(failure)
    }

    fn alone(&self, step: Step, memory: &mut KnownMemory) -> Result<Outcome, MeasureError> {
        let batch = step.batch as u64;
        for probe in PROBES.into_iter().filter(|probe| *probe < batch) {
            if memory.0.keys().all(|known| *known == PROBES[0]) {
                // Models that take no batch so small are run without knowing.
                let probed = self.runner.probe(Step { batch: probe as usize, ..step }).ok().flatten();
                memory.add(probe, probed.map(|memory| memory.reserved_bytes));
            }
        }
        let available_bytes = self.runner.room()?;
        let misfit = |needed_bytes| Outcome::DoesNotFit { needed_bytes, available_bytes };
        if let Some(needed) = memory.expected(batch).filter(|needed| *needed > available_bytes) {
            return Ok(misfit(needed));
        }
        let foreseen = self.runner.foresee(step)?;
        let predicted_bytes = foreseen.map(|memory| memory.reserved_bytes);
        memory.add(batch, predicted_bytes);
        if let Some(needed) = predicted_bytes.filter(|needed| *needed > available_bytes) {
            return Ok(misfit(needed));
        }
        let in_use = foreseen.and_then(|Memory { in_use_bytes, .. }| in_use_bytes);
        let ran = self.runner.run(step)?;
        let figures = Figures { predicted_bytes, in_use_bytes: ran.in_use_bytes.or(in_use), ..ran };
        memory.learn(batch, Some(&figures));
        Ok(Outcome::Measured(figures))
    }
}

/// Turns a failed step into an outcome. Other errors end the process.
fn failure(error: MeasureError) -> Result<Outcome, MeasureError> {
    match error {
        MeasureError::Step { message, .. } if is_out_of_memory(&message) => Ok(Outcome::OutOfMemory { message }),
        MeasureError::Step { message, .. } => Ok(Outcome::Failed { message }),
        error => Err(error),
    }
}

/// Measured memory of one mode by batch.
#[derive(Debug, Default)]
struct KnownMemory(BTreeMap<u64, Bytes>);

impl KnownMemory {
    fn add(&mut self, batch: u64, bytes: Option<Bytes>) {
        let known = self.0.get(&batch).copied();
        self.0.extend(bytes.max(known).map(|bytes| (batch, bytes)));
    }

    fn learn(&mut self, batch: u64, figures: Option<&Figures>) {
        self.add(batch, figures.and_then(|figures| figures.reserved_bytes.max(figures.predicted_bytes)));
    }

    /// Extrapolated memory of a batch, from the two nearest smaller ones; `None` for fewer.
    fn expected(&self, batch: u64) -> Option<Bytes> {
        let mut smaller = self.0.range(..batch).rev();
        let ((b, above), (a, below)) = (smaller.next()?, smaller.next()?);
        let slope = (above.0 as f64 - below.0 as f64).max(0.0) / (b - a) as f64;
        Some(*above + Bytes((slope * (batch - b) as f64) as u64))
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
