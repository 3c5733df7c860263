//! Burn's metrics in a recording.

use std::collections::HashMap;

use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{MetricDefinition, MetricId, MetricName, NumericEntry};
use gpu_tuned_observe::recording::{Record, Value};

use crate::course::Course;
use crate::session::Session;
use gpu_tuned_observe::recording::{Recorder, now};

/// A logger of Burn's that passes the numbers on to the session's recording, too: see [`Session::metric_logger`].
#[derive(Debug)]
pub struct RecordedMetrics<L> {
    logger: L,
    recorder: Option<Recorder>,
    course: Course,
    names: HashMap<MetricId, MetricName>,
}

impl<C> Session<C> {
    /// A metric logger for Burn's training loop that logs as `logger` does, and where the session is recorded adds Burn's
    /// numbers to the recording, so that the monitor, TensorBoard and reports show them:
    ///
    /// | name | what | when |
    /// |---|---|---|
    /// | `train/Loss` | of an item of training | after each |
    /// | `train/epoch/Loss`, `valid/epoch/Loss` | of an epoch | at its end |
    ///
    /// Burn's own logger, which is left out as soon as another is given, is
    /// `FileMetricLogger::new(directory)` with the directory of the training run.
    ///
    /// ```no_run
    /// # use burn::train::{LearnerModel, SupervisedTraining, logger::FileMetricLogger};
    /// # fn of<C, M: LearnerModel>(session: &gpu_tuned::Session<C>, training: SupervisedTraining<M>) -> SupervisedTraining<M> {
    /// # let directory = "run";
    /// training.with_metric_logger(session.metric_logger(FileMetricLogger::new(directory)))
    /// # }
    /// ```
    pub fn metric_logger<L: MetricLogger>(&self, logger: L) -> RecordedMetrics<L> {
        let (recorder, course) = (self.recorder.clone(), self.course.clone());
        RecordedMetrics { logger, recorder, course, names: HashMap::new() }
    }
}

impl<L> RecordedMetrics<L> {
    fn record(&self, update: &MetricsUpdate, split: &Split) {
        let Some(recorder) = &self.recorder else { return };
        let is_training = matches!(split, Split::Train);
        for metric in &update.entries_numeric {
            let (Some(name), Some(entry)) = (self.names.get(&metric.entry.metric_id), &metric.numeric_entry) else {
                continue;
            };
            let name = match entry {
                NumericEntry::Final(_) => format!("{split}/epoch/{name}"),
                // Of a validation the epoch counts.
                _ if is_training => format!("{split}/{name}"),
                _ => continue,
            };
            let mut value = Value::new(now(), name, entry.current());
            value.step = self.course.steps();
            if value.value.is_finite() {
                recorder.record(Record::Value(value));
            }
        }
    }
}

impl<L: MetricLogger> MetricLogger for RecordedMetrics<L> {
    fn log(&mut self, update: MetricsUpdate, epoch: usize, split: &Split) {
        self.record(&update, split);
        self.logger.log(update, epoch, split);
    }

    fn read_numeric(&mut self, name: &str, epoch: usize, split: &Split) -> Result<Vec<NumericEntry>, String> {
        self.logger.read_numeric(name, epoch, split)
    }

    fn log_metric_definition(&mut self, definition: MetricDefinition) {
        self.names.insert(definition.metric_id.clone(), definition.name.clone());
        self.logger.log_metric_definition(definition);
    }

    fn log_epoch_summary(&mut self, summary: EpochSummary) {
        self.logger.log_epoch_summary(summary);
    }
}
