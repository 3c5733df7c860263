//! Burn's metrics in a recording.

use std::collections::HashMap;

use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{MetricDefinition, MetricId, MetricName, NumericEntry};
use gpu_tuned_observe::recording::{Record, Value};
use gpu_tuned_observe::recording::{Recorder, now};

use crate::timing::StepInstrumentation;

/// Metric logger that also adds the numbers to the session's recording: see `Session::metric_logger`.
#[derive(Debug)]
pub struct RecordedMetrics<L> {
    logger: L,
    recorder: Option<Recorder>,
    instrumentation: StepInstrumentation,
    names: HashMap<MetricId, MetricName>,
}

impl<L> RecordedMetrics<L> {
    /// Adds the numbers of `logger` to a recording.
    #[doc(hidden)]
    pub fn new(logger: L, recorder: Option<Recorder>, instrumentation: StepInstrumentation) -> Self {
        Self { logger, recorder, instrumentation, names: HashMap::new() }
    }

    fn record(&self, update: &MetricsUpdate, split: &Split) {
        let Some(recorder) = &self.recorder else { return };
        let is_training = matches!(split, Split::Train);
        for metric in &update.entries_numeric {
            let (Some(name), Some(entry)) = (self.names.get(&metric.entry.metric_id), &metric.numeric_entry) else {
                continue;
            };
            let name = match entry {
                NumericEntry::Final(_) => format!("{split}/epoch/{name}"),
                // Validation records epochs only.
                _ if is_training => format!("{split}/{name}"),
                _ => continue,
            };
            let mut value = Value::new(now(), name, entry.current());
            value.step = self.instrumentation.steps();
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
