//! One method of choosing a batch, over all rows.

use super::Table;
use super::row::{Choice, Outcome};
use crate::figures::{geometric_mean, or_dash};
use crate::markdown::cells;
use crate::proof::subject::MemorySource;
use crate::proof::sweep::RateSource;

/// Outcomes of one method of choosing a batch. Places are such as `convnet, f32, 8 GiB`.
#[derive(Default)]
pub(in crate::proof) struct Column {
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
    pub(in crate::proof) fn all(tables: &[Table]) -> [Self; 4] {
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
    pub(in crate::proof) fn mean(&self) -> String {
        self.mean_where(|_| true)
    }

    /// Geometric mean of the ratios at some places.
    fn mean_where(&self, included: impl Fn(&str) -> bool) -> String {
        let ratios = self.ratios.iter().filter(|(.., place)| included(place));
        let ratios: Vec<f64> = ratios.map(|(ratio, ..)| *ratio).collect();
        or_dash(geometric_mean(&ratios), |mean| format!("{mean:.3}"))
    }

    /// The smallest ratio with its place.
    pub(in crate::proof) fn worst(&self) -> String {
        let worst = self.ratios.iter().min_by(|(a, ..), (b, ..)| a.total_cmp(b));
        or_dash(worst, |(ratio, _, place)| format!("{ratio:.3} ({place})"))
    }

    /// Number of choices out of memory, of all.
    pub(in crate::proof) fn out_of_memory(&self) -> String {
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
    pub(in crate::proof) fn memory_sources(&self) -> String {
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
    pub(super) fn cells(&self, name: &str) -> [String; 10] {
        let count = |source| self.ratios.iter().filter(|(_, its, _)| *its == source).count();
        let (interpolated, extrapolated) = (count(RateSource::Interpolated), count(RateSource::Extrapolated));
        let Self { ratios, out_of_memory, no_choice, not_timed, .. } = self;
        let (rows, mean, worst, observed) = (ratios.len(), self.mean(), self.worst(), self.observed());
        cells![name, rows, interpolated, extrapolated, mean, worst, out_of_memory, observed, no_choice, not_timed]
    }

    /// Formats a row of the README: the mean, also without LSTMs, for which launches decide.
    pub(super) fn summary(&self, name: &str) -> [String; 4] {
        let others = self.mean_where(|place| !place.starts_with("lstm"));
        let mean = format!("{} ({others} without the LSTM)", self.mean());
        cells![name, mean, self.worst(), format!("{} of {}", self.out_of_memory, self.choices())]
    }
}
