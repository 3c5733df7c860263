//! The choices for one model, precision and card, with their memory and throughput.

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::plan::{MemoryEstimate, PlanError};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, Precision, Provenance, Setting, plan};

use super::swept;
use crate::figures::{or_dash, three_digits};
use crate::markdown::cells;
use crate::proof::subject::{Card, MemorySource, Subject};
use crate::proof::sweep::Rate;

/// A model in one precision with one card's memory.
pub(in crate::proof) struct Row {
    pub card: Card,
    /// The fastest batch of the sweep that fits.
    pub(super) best: Option<Choice>,
    /// Choices in the order of [`METHODS`](super::METHODS); an error is the reason why there is none.
    pub choices: [Result<Choice, &'static str>; 4],
}

impl Row {
    pub(super) fn new(subject: &Subject, precision: Precision, card: Card) -> Result<Self> {
        let memory = card.facts.memory_available;
        let choice = |mode, batch, provenance| Choice::new(subject, memory, (mode, batch), provenance);
        let goal = Goal { precision: Some(precision.into()), ..subject.goal.clone() };
        let planned = |workload: &Workload| match plan(&card.facts, workload, &goal) {
            Ok(plan) => {
                let reason = plan.reasons.iter().find(|reason| reason.setting == Setting::BatchSize);
                let mode = Mode::new(precision, plan.settings.gradient_checkpointing);
                choice(mode, plan.settings.batch_size, reason.map(|reason| reason.provenance)).map(Ok)
            }
            Err(PlanError::DoesNotFit(_)) => Ok(Err("does not fit")),
            Err(error) => Err(error.into()),
        };
        let headroom = memory.scaled(goal.memory_headroom);
        let estimate = MemoryEstimate { available: memory, headroom, ..MemoryEstimate::default() };
        let all = swept(subject, precision).into_iter().map(|(mode, batch)| choice(mode, batch, None));
        let mut fitting = all.collect::<Result<Vec<_>>>()?;
        fitting.retain(|choice| choice.need <= estimate.budget());
        let by_rate = |a: &&Choice, b: &&Choice| a.samples_per_s().total_cmp(&b.samples_per_s());
        let best = fitting.iter().max_by(by_rate).copied();
        let largest = fitting.iter().max_by_key(|choice| (!choice.mode.checkpointing, choice.batch)).copied();
        let sixty_four = choice(Mode::new(precision, false), 64, None)?;
        let choices =
            [planned(&subject.on_gpu)?, planned(&subject.derived)?, largest.ok_or("none fits"), Ok(sixty_four)];
        Ok(Self { card, best, choices })
    }

    /// Throughput relative to the best batch.
    pub(super) fn ratio(&self, choice: &Choice) -> Option<f64> {
        let Outcome::Runs(rate) = choice.outcome else { return None };
        Some(rate.samples_per_s / self.best?.samples_per_s())
    }

    pub(super) fn cells(&self) -> [String; 9] {
        let [planned, others @ ..] = &self.choices;
        let [settings, by, speed, ratio] = match planned {
            Ok(choice) => {
                let by = choice.provenance.map(|it| it.to_string()).unwrap_or_default();
                [choice.settings(), by, choice.speed(), self.formatted_ratio(choice)]
            }
            Err(reason) => cells![reason, "", "", reason],
        };
        let best = self.best.map(|best| format!("{}: {}", best.settings(), best.speed()));
        let best = best.unwrap_or_else(|| "none fits".to_owned());
        let [derived, largest, fixed] = others.each_ref().map(|other| match other {
            Ok(choice) => format!("{}: {}", choice.settings(), self.formatted_ratio(choice)),
            Err(reason) => (*reason).to_owned(),
        });
        [self.card.name.clone(), settings, by, speed, best, ratio, derived, largest, fixed]
    }

    fn formatted_ratio(&self, choice: &Choice) -> String {
        choice.outcome_or(|rate| or_dash(self.ratio(choice), |ratio| format!("{}{ratio:.3}", rate.mark())))
    }
}

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
