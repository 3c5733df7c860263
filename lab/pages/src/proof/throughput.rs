//! Throughput of planned settings, relative to the best batch of the sweep that fits the same memory.

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::plan::{MemoryEstimate, PlanError};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, Precision, Provenance, Setting, plan, three_digits};

use super::subject::{Card, MemorySource, Subject, cards};
use crate::figures::{geometric_mean, or_dash};
use crate::generated::{cells, table};
use crate::results::{Rate, RateSource};

/// A model in one precision with the memory of each card.
pub struct Table {
    pub model: String,
    pub precision: Precision,
    pub rows: Vec<Row>,
}

/// Methods of choosing a batch.
const METHODS: [&str; 4] = ["planned, measured", "planned, derived only", "largest that fits", "batch 64"];

/// Indices of choices.
pub const PLANNED: usize = 0;
pub const LARGEST: usize = 2;
pub const FIXED: usize = 3;

/// Goals of the geometric mean and of the worst ratio.
pub const GOALS: (f64, f64) = (0.98, 0.93);

/// Compares every model and precision that is in the lock and in the sweep.
pub fn tables(subjects: &[Subject]) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for subject in subjects {
        for precision in subject.precisions().filter(|precision| !swept(subject, *precision).is_empty()) {
            let rows = cards(subject.device)?.into_iter().map(|card| Row::new(subject, precision, card));
            tables.push(Table { model: subject.name.to_owned(), precision, rows: rows.collect::<Result<_>>()? });
        }
    }
    Ok(tables)
}

/// Every batch of the sweep in one precision that has a median.
fn swept(subject: &Subject, precision: Precision) -> Vec<(Mode, u64)> {
    let modes = [false, true].map(|checkpointing| Mode::new(precision, checkpointing));
    let batches = |mode: Mode| subject.sweep.medians(mode).into_iter().map(move |(batch, _)| (mode, batch));
    modes.into_iter().flat_map(batches).collect()
}

/// A model in one precision with one card's memory.
pub struct Row {
    pub card: Card,
    /// The fastest batch of the sweep that fits.
    pub best: Option<Choice>,
    /// Choices in the order of [`METHODS`]; an error is the reason why there is none.
    pub choices: [Result<Choice, &'static str>; 4],
}

impl Row {
    pub fn new(subject: &Subject, precision: Precision, card: Card) -> Result<Self> {
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
    pub fn ratio(&self, choice: &Choice) -> Option<f64> {
        let Outcome::Runs(rate) = choice.outcome else { return None };
        Some(rate.samples_per_s / self.best?.samples_per_s())
    }

    pub fn cells(&self) -> [String; 9] {
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
pub struct Choice {
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
pub enum Outcome {
    Runs(Rate),
    /// The need exceeds the memory, or a repeat of the sweep ran out of memory.
    OutOfMemory,
    /// The sweep timed fewer than two batches of the mode.
    NotTimed,
}

impl Choice {
    pub fn new(
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
    pub fn samples_per_s(&self) -> f64 {
        match self.outcome {
            Outcome::Runs(rate) => rate.samples_per_s,
            Outcome::OutOfMemory | Outcome::NotTimed => 0.0,
        }
    }

    /// Formats the batch, with `c` for checkpointing.
    pub fn settings(&self) -> String {
        format!("{}{}", self.batch, if self.mode.checkpointing { " c" } else { "" })
    }

    /// Formats samples per second, or the reason why there are none.
    pub fn speed(&self) -> String {
        self.outcome_or(|rate| format!("{}{}", rate.mark(), three_digits(rate.samples_per_s)))
    }

    /// Formats the outcome; `runs` formats a rate.
    pub fn outcome_or(&self, runs: impl Fn(Rate) -> String) -> String {
        match self.outcome {
            Outcome::Runs(rate) => runs(rate),
            Outcome::OutOfMemory => "out of memory".to_owned(),
            Outcome::NotTimed => "not timed".to_owned(),
        }
    }
}

/// Outcomes of one method of choosing a batch. Places are such as `convnet, f32, 8 GiB`.
#[derive(Default)]
pub struct Column {
    /// Throughput relative to the best batch, with its place.
    ratios: Vec<(f64, RateSource, String)>,
    /// Source of the memory of each choice, with its place.
    memory_sources: Vec<(MemorySource, String)>,
    out_of_memory: usize,
    no_choice: usize,
    not_timed: usize,
}

impl Column {
    /// Collects the outcomes of each method.
    pub fn all(tables: &[Table]) -> [Self; 4] {
        let mut columns: [Self; 4] = Default::default();
        let rows = tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
        for (table, row) in rows.filter(|(_, row)| row.best.is_some()) {
            let place = format!("{}, {}, {}", table.model, table.precision, row.card.name);
            for (column, choice) in columns.iter_mut().zip(&row.choices) {
                match choice {
                    Err(_) => column.no_choice += 1,
                    Ok(choice) => column.add(choice, row.ratio(choice), &place),
                }
            }
        }
        columns
    }

    fn add(&mut self, choice: &Choice, ratio: Option<f64>, place: &str) {
        self.memory_sources.push((choice.memory_source, place.to_owned()));
        match (choice.outcome, ratio) {
            (Outcome::OutOfMemory, _) => self.out_of_memory += 1,
            (Outcome::Runs(rate), Some(ratio)) => self.ratios.push((ratio, rate.source, place.to_owned())),
            _ => self.not_timed += 1,
        }
    }

    /// Geometric mean of the ratios.
    pub fn mean(&self) -> String {
        self.mean_where(|_| true)
    }

    /// Geometric mean of the ratios at some places.
    fn mean_where(&self, included: impl Fn(&str) -> bool) -> String {
        let ratios = self.ratios.iter().filter(|(.., place)| included(place));
        let ratios: Vec<f64> = ratios.map(|(ratio, ..)| *ratio).collect();
        or_dash(geometric_mean(&ratios), |mean| format!("{mean:.3}"))
    }

    /// The smallest ratio with its place.
    pub fn worst(&self) -> String {
        let worst = self.ratios.iter().min_by(|(a, ..), (b, ..)| a.total_cmp(b));
        or_dash(worst, |(ratio, _, place)| format!("{ratio:.3} ({place})"))
    }

    /// Number of choices out of memory, of all.
    pub fn out_of_memory(&self) -> String {
        format!("{} of {} (memory observed at {})", self.out_of_memory, self.choices(), self.observed())
    }

    fn choices(&self) -> usize {
        self.ratios.len() + self.out_of_memory + self.not_timed
    }

    /// Number of choices whose memory pools were observed, with all of their micro-batches or with one.
    fn observed(&self) -> usize {
        self.memory_sources.iter().filter(|(source, _)| *source != MemorySource::Lock).count()
    }

    /// Lists the sources of memory, with the number of their choices.
    pub fn memory_sources(&self) -> String {
        let sources = [
            (MemorySource::Step, "observed in [such steps](#smaller-cards)"),
            (MemorySource::MicroBatch, "observed with one micro-batch, plus the lock's difference for accumulation"),
            (MemorySource::Lock, "predicted by the lock"),
        ];
        let line = |(source, description)| {
            let places = self.memory_sources.iter().filter(|(its, _)| *its == source);
            let places: Vec<&str> = places.map(|(_, place)| place.as_str()).collect();
            let list = if source == MemorySource::Step { String::new() } else { format!(": {}", places.join("; ")) };
            (!places.is_empty()).then(|| format!("- {description} in {} rows{list}\n", places.len()))
        };
        sources.into_iter().filter_map(line).collect()
    }

    /// Formats a row of the summary.
    pub fn cells(&self, name: &str) -> [String; 10] {
        let count = |source| self.ratios.iter().filter(|(_, its, _)| *its == source).count();
        let (interpolated, extrapolated) = (count(RateSource::Interpolated), count(RateSource::Extrapolated));
        let Self { ratios, out_of_memory, no_choice, not_timed, .. } = self;
        let (rows, mean, worst, observed) = (ratios.len(), self.mean(), self.worst(), self.observed());
        cells![name, rows, interpolated, extrapolated, mean, worst, out_of_memory, observed, no_choice, not_timed]
    }

    /// Formats a row of the README: the mean, also without LSTMs, for which launches decide.
    pub fn summary(&self, name: &str) -> [String; 4] {
        let others = self.mean_where(|place| !place.starts_with("lstm"));
        let mean = format!("{} ({others} without the LSTM)", self.mean());
        cells![name, mean, self.worst(), format!("{} of {}", self.out_of_memory, self.choices())]
    }
}

/// Formats the rows of each model and precision.
pub fn by_card(tables: &[Table]) -> String {
    let section = |Table { model, precision, rows }: &Table| {
        let headings = [
            "memory",
            "planned",
            "by",
            "samples/s",
            "best that fits",
            "planned / best",
            "derived only",
            "largest that fits",
            "batch 64",
        ];
        format!("### {model}, {precision}\n\n{}\n", table(headings, rows.iter().map(Row::cells)))
    };
    tables.iter().map(section).collect()
}

/// Formats the outcomes of each method.
pub fn methods(columns: &[Column; 4]) -> String {
    let headings = [
        "",
        "rows",
        "`~`",
        "`≈`",
        "geometric mean",
        "worst",
        "out of memory",
        "memory observed",
        "no plan",
        "not timed",
    ];
    let rows = METHODS.iter().zip(columns).map(|(name, column)| column.cells(name));
    let (mean, worst) = (format!("{:.2}", GOALS.0), format!("{:.2}", GOALS.1));
    table(headings, rows.chain([cells!["goal of the first", "", "", "", mean, worst, 0, "", "", ""]]))
}

/// Formats means and worst cases of each method.
pub fn summary(columns: &[Column; 4]) -> String {
    let names = ["planned, with measurements", "planned, from dimensions only", "largest that fits", "batch 64"];
    let rows = names.iter().zip(columns).map(|(name, column)| column.summary(name));
    table(["micro-batch", "throughput / best that fits, mean", "worst", "out of memory"], rows)
}
