//! The choices for one model, precision and card.

use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::plan::{MemoryEstimate, PlanError};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, Precision, Setting, plan};

use super::choice::{Choice, Outcome};
use super::swept;
use crate::proof::figures::or_dash;
use crate::proof::subject::{Card, Subject};

/// A model in one precision with one card's memory.
pub(in crate::proof) struct Row {
    pub card: Card,
    /// The fastest batch of the sweep that fits.
    pub(super) best: Option<Choice>,
    /// Choices in the order of [`COLUMNS`](super::COLUMNS); an error is the reason why there is none.
    pub choices: [Result<Choice, &'static str>; 4],
}

impl Row {
    pub(super) fn new(subject: &Subject, precision: Precision, card: Card) -> Result<Self> {
        let memory = card.facts.memory_available;
        let choice = |mode, batch, provenance| Choice::new(subject, memory, (mode, batch), provenance);
        let goal = Goal { precision: Some(precision), ..subject.goal.clone() };
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

    /// Writes a line of the table.
    pub(super) fn line(&self, text: &mut String) -> Result<()> {
        write!(text, "| {} |", self.card.name)?;
        let [planned, others @ ..] = &self.choices;
        match planned {
            Ok(choice) => {
                let provenance = choice.provenance.map(|it| it.to_string()).unwrap_or_default();
                write!(text, " {} | {provenance} | {} |", choice.settings(), choice.speed())?;
            }
            Err(reason) => write!(text, " {reason} | | |")?,
        }
        match self.best {
            Some(best) => write!(text, " {}: {} |", best.settings(), best.speed())?,
            None => write!(text, " none fits |")?,
        }
        write!(
            text,
            " {} |",
            planned.as_ref().map_or_else(|reason| (*reason).to_owned(), |it| self.formatted_ratio(it))
        )?;
        for other in others {
            match other {
                Ok(choice) => write!(text, " {}: {} |", choice.settings(), self.formatted_ratio(choice))?,
                Err(reason) => write!(text, " {reason} |")?,
            }
        }
        writeln!(text)?;
        Ok(())
    }

    fn formatted_ratio(&self, choice: &Choice) -> String {
        choice.outcome_or(|rate| or_dash(self.ratio(choice), |ratio| format!("{}{ratio:.3}", rate.mark())))
    }
}
