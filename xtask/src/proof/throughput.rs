//! How fast planned settings run, beside the best of the sweep that fits the same memory.

use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::plan::{MemoryEstimate, PlanError};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, Precision, Provenance, Setting, plan};

use super::figures::{geometric_mean, or_dash, three_digits};
use super::subject::{Card, Known, Subject, cards};
use super::sweep::{From, Rate};

/// A model in one precision with one card's memory.
pub(super) struct Row {
    pub card: Card,
    /// The fastest of the sweep that fits.
    best: Option<Choice>,
    /// In the order of [`COLUMNS`]; an error says why there is none.
    pub choices: [Result<Choice, &'static str>; 4],
}

/// Settings, and what comes of them.
#[derive(Clone, Copy)]
pub(super) struct Choice {
    pub mode: Mode,
    pub batch: u64,
    provenance: Option<Provenance>,
    /// What the settings take, without margin.
    pub need: Bytes,
    /// How that is known.
    known: Known,
    pub outcome: Outcome,
}

/// What comes of settings.
#[derive(Clone, Copy)]
pub(super) enum Outcome {
    Runs(Rate),
    /// They take more than there is.
    OutOfMemory,
    /// Too little was timed to tell.
    NotTimed,
}

/// A model in one precision with the memory of each card.
pub(super) struct Table {
    pub model: String,
    pub precision: Precision,
    pub rows: Vec<Row>,
}

/// One way to choose, over all rows.
#[derive(Default)]
pub(super) struct Column {
    ratios: Vec<f64>,
    /// How many of the ratios are of rates on lines between batches of the sweep, and beyond them.
    between: usize,
    beyond: usize,
    /// The least ratio and where it is.
    worst: Option<(f64, String)>,
    out_of_memory: usize,
    /// How the memory of each choice is known, and where the choice is.
    known: Vec<(Known, String)>,
    no_choice: usize,
    not_timed: usize,
}

/// The ways to choose.
pub(super) const COLUMNS: [&str; 4] = ["planned, measured", "planned, derived only", "largest that fits", "batch 64"];

/// The goals of the geometric mean and of the worst.
pub(super) const GOALS: (f64, f64) = (0.98, 0.93);

/// A table for each model and precision that has points in the lock and batches in the sweep.
pub(super) fn tables(subjects: &[Subject]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for subject in subjects {
        for precision in subject.precisions().filter(|precision| !swept(subject, *precision).is_empty()) {
            let rows = cards(subject.device)?
                .into_iter()
                .map(|card| Row::of(subject, precision, card))
                .collect::<Result<_>>()?;
            tables.push(Table { model: subject.name.to_owned(), precision, rows });
        }
    }
    Ok(tables)
}

/// Every batch of the sweep in one precision, with its median.
fn swept(subject: &Subject, precision: Precision) -> Vec<(Mode, u64)> {
    let modes = [false, true].map(|checkpointing| Mode::new(precision, checkpointing));
    let batches = |mode: Mode| subject.sweep.medians(mode).into_iter().map(move |(batch, _)| (mode, batch));
    modes.into_iter().flat_map(batches).collect()
}

impl Row {
    fn of(subject: &Subject, precision: Precision, card: Card) -> Result<Self> {
        let memory = card.facts.memory_available;
        let settle = |mode, batch, provenance| Choice::of(subject, memory, (mode, batch), provenance);
        let goal = Goal { precision: Some(precision), ..subject.goal.clone() };
        let planned = |workload: &Workload| match plan(&card.facts, workload, &goal) {
            Ok(plan) => {
                let reason = plan.reasons.iter().find(|reason| reason.setting == Setting::BatchSize);
                let mode = Mode::new(precision, plan.settings.gradient_checkpointing);
                settle(mode, plan.settings.batch_size, reason.map(|reason| reason.provenance)).map(Ok)
            }
            Err(PlanError::DoesNotFit(_)) => Ok(Err("does not fit")),
            Err(error) => Err(error.into()),
        };
        let budget = MemoryEstimate {
            available: memory,
            headroom: memory.scaled(goal.memory_headroom),
            ..MemoryEstimate::default()
        };
        let all = swept(subject, precision).into_iter().map(|(mode, batch)| settle(mode, batch, None));
        let mut fitting = all.collect::<Result<Vec<_>>>()?;
        fitting.retain(|choice| choice.need <= budget.budget());
        let by_rate = |a: &&Choice, b: &&Choice| a.samples_per_s().total_cmp(&b.samples_per_s());
        let best = fitting.iter().max_by(by_rate).copied();
        let largest = fitting.iter().max_by_key(|choice| (!choice.mode.checkpointing, choice.batch)).copied();
        let sixty_four = settle(Mode::new(precision, false), 64, None)?;
        let choices =
            [planned(&subject.on_gpu)?, planned(&subject.derived)?, largest.ok_or("none fits"), Ok(sixty_four)];
        Ok(Self { card, best, choices })
    }

    fn ratio(&self, choice: &Choice) -> Option<f64> {
        let Outcome::Runs(rate) = choice.outcome else { return None };
        Some(rate.samples_per_s / self.best?.samples_per_s())
    }

    fn line(&self, text: &mut String) -> Result<()> {
        write!(text, "| {} |", self.card.name)?;
        let [planned, others @ ..] = &self.choices;
        match planned {
            Ok(choice) => {
                let provenance = choice.provenance.map(|it| it.to_string()).unwrap_or_default();
                write!(text, " {} | {provenance} | {} |", choice.settings(), choice.speed())?;
            }
            Err(why) => write!(text, " {why} | | |")?,
        }
        match self.best {
            Some(best) => write!(text, " {}: {} |", best.settings(), best.speed())?,
            None => write!(text, " none fits |")?,
        }
        write!(text, " {} |", planned.as_ref().map_or_else(|why| (*why).to_owned(), |choice| self.ratio_of(choice)))?;
        for other in others {
            match other {
                Ok(choice) => write!(text, " {}: {} |", choice.settings(), self.ratio_of(choice))?,
                Err(why) => write!(text, " {why} |")?,
            }
        }
        writeln!(text)?;
        Ok(())
    }

    fn ratio_of(&self, choice: &Choice) -> String {
        match (choice.outcome, self.ratio(choice)) {
            (Outcome::Runs(rate), Some(ratio)) => format!("{}{ratio:.3}", rate.mark()),
            (Outcome::Runs(_), None) => "-".to_owned(),
            (Outcome::OutOfMemory, _) => "out of memory".to_owned(),
            (Outcome::NotTimed, _) => "not timed".to_owned(),
        }
    }
}

impl Choice {
    fn of(
        subject: &Subject,
        memory: Bytes,
        (mode, batch): (Mode, u64),
        provenance: Option<Provenance>,
    ) -> Result<Self> {
        let (need, known) = subject.takes(mode, batch)?;
        let outcome = match subject.sweep.rate(mode, batch) {
            _ if need > memory || subject.sweep.ran_out(mode, batch) => Outcome::OutOfMemory,
            Some(rate) => Outcome::Runs(rate),
            None => Outcome::NotTimed,
        };
        Ok(Self { mode, batch, provenance, need, known, outcome })
    }

    /// 0 where nothing runs.
    fn samples_per_s(&self) -> f64 {
        match self.outcome {
            Outcome::Runs(rate) => rate.samples_per_s,
            Outcome::OutOfMemory | Outcome::NotTimed => 0.0,
        }
    }

    fn settings(&self) -> String {
        format!("{}{}", self.batch, if self.mode.checkpointing { " c" } else { "" })
    }

    fn speed(&self) -> String {
        match self.outcome {
            Outcome::Runs(found) => format!("{}{}", found.mark(), three_digits(found.samples_per_s)),
            Outcome::OutOfMemory => "out of memory".to_owned(),
            Outcome::NotTimed => "not timed".to_owned(),
        }
    }
}

impl Column {
    /// What became of each way to choose.
    pub(super) fn all(tables: &[Table]) -> [Self; 4] {
        let mut columns: [Self; 4] = Default::default();
        let rows = tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
        for (table, row) in rows.filter(|(_, row)| row.best.is_some()) {
            let place = || format!("{}, {}, {}", table.model, table.precision, row.card.name);
            for (column, choice) in columns.iter_mut().zip(&row.choices) {
                match choice {
                    Err(_) => column.no_choice += 1,
                    Ok(choice) => column.add(choice, row.ratio(choice), place),
                }
            }
        }
        columns
    }

    fn add(&mut self, choice: &Choice, ratio: Option<f64>, place: impl Fn() -> String) {
        self.known.push((choice.known, place()));
        match (choice.outcome, ratio) {
            (Outcome::OutOfMemory, _) => self.out_of_memory += 1,
            (Outcome::Runs(rate), Some(ratio)) => {
                self.between += usize::from(rate.from == From::Between);
                self.beyond += usize::from(rate.from == From::Beyond);
                self.ratios.push(ratio);
                if self.worst.as_ref().is_none_or(|(worst, _)| ratio < *worst) {
                    self.worst = Some((ratio, place()));
                }
            }
            _ => self.not_timed += 1,
        }
    }

    pub(super) fn mean(&self) -> Option<f64> {
        geometric_mean(&self.ratios)
    }

    /// The least ratio and where it is.
    pub(super) fn worst(&self) -> String {
        or_dash(self.worst.as_ref(), |(ratio, place)| format!("{ratio:.3} ({place})"))
    }

    /// How many take more than there is.
    pub(super) fn misfits(&self) -> String {
        let all = self.ratios.len() + self.out_of_memory + self.not_timed;
        format!("{} of {all} (memory observed at {})", self.out_of_memory, self.observed())
    }

    /// Choices whose memory pools were observed, with all of their micro-batches or with one.
    fn observed(&self) -> usize {
        self.known.iter().filter(|(known, _)| *known != Known::Lock).count()
    }

    /// How the memory of its choices is known, in a sentence.
    fn whence(&self) -> String {
        let ways = [
            (Known::Step, "by the most that memory pools held in [such steps](#smaller-cards), whatever was free"),
            (Known::MicroBatch, "by what they held with one of the micro-batches, and what the lock adds for several"),
            (Known::Lock, "by what the lock predicts"),
        ];
        let said = ways.into_iter().filter_map(|(known, what)| {
            let places: Vec<&str> =
                self.known.iter().filter(|(its, _)| *its == known).map(|(_, place)| place.as_str()).collect();
            let which = if known == Known::Step { String::new() } else { format!(" ({})", places.join("; ")) };
            (!places.is_empty()).then(|| format!("in {} of them {what}{which}", places.len()))
        });
        said.collect::<Vec<_>>().join(", ")
    }
}

/// The section about the tables.
pub(super) fn section(text: &mut String, tables: &[Table]) -> Result<()> {
    text.push_str(INTRODUCTION);
    for Table { model, precision, rows } in tables {
        writeln!(text, "\n### {model}, {precision}\n")?;
        text.push_str(
            "| memory | planned | by | samples/s | best that fits | planned / best | derived only | largest that fits | \
             batch 64 |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        rows.iter().try_for_each(|row| row.line(text))?;
    }
    text.push_str(
        "\n### All of them\n\nOf the rows where anything of the sweep fits. What ran out of memory, and where there was no \
         plan, is counted and in no mean.",
    );
    let columns = Column::all(tables);
    writeln!(text, " Planned rows are judged to fit, or not, {}.\n", columns[0].whence())?;
    text.push_str(
        "| | rows | `~` | `≈` | geometric mean | worst | out of memory | memory observed | no plan | not timed |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (name, column) in COLUMNS.iter().zip(&columns) {
        let Column { ratios, between, beyond, out_of_memory, no_choice, not_timed, .. } = column;
        let observed = column.observed();
        let mean = or_dash(column.mean(), |mean| format!("{mean:.3}"));
        let worst = column.worst();
        writeln!(
            text,
            "| {name} | {} | {between} | {beyond} | {mean} | {worst} | {out_of_memory} | {observed} | {no_choice} | {not_timed} |",
            ratios.len()
        )?;
    }
    writeln!(text, "| goal of the first | | | | {:.2} | {:.2} | 0 | | | |", GOALS.0, GOALS.1)?;
    Ok(())
}

const INTRODUCTION: &str = "
## Throughput

What is planned for the device with the memory of smaller cards, beside the fastest batch of the sweep that fits the same
memory less 10% headroom. What fits follows from context and kernels as the lock has them, and from memory pools: as observed where
such steps were taken, or one of their micro-batches, else as the lock predicts them, without margin. `c` stands for gradient checkpointing. Samples/s are medians of the sweep; `~` marks one on a line between the
seconds of steps of two batches of the sweep, `≈` one on such a line beyond all of them. The last three columns are other
ways to choose, with their share of the best: a plan of the dimensions alone, the largest batch of the sweep that fits
(without checkpointing if any does), which is what batch finders pick, and batch 64. What takes more than the whole memory
or ran out of memory in the
sweep, counts as out of memory.
";
