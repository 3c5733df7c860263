//! Metrics of steps and of the GPU, for Burn's training loop.

mod gpu;
mod series;
#[cfg(all(test, feature = "nvml"))]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::TensorReadError;
use burn::train::logger::MetricLogger;
use burn::train::metric::store::{EpochSummary, MetricsUpdate, Split};
use burn::train::metric::{
    Metric, MetricAttributes, MetricDefinition, MetricId, MetricMetadata, MetricName, Numeric, NumericAttributes,
    NumericEntry, SerializedEntry, format_float,
};
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_observe::recording::{Record, Recorder, Value, now};
use serde::Serialize;

use super::{GradientHealth, LayerHealth, Step};
use crate::timing::StepInstrumentation;
use series::{Series, missing, not_logged, numeric_metric};

pub use gpu::{Gpu, GpuMemory, GpuUtilisation};

/// Metrics of a session's steps and of its GPU.
#[derive(Clone, Debug)]
pub struct Metrics {
    history: StepHistory,
    gpu: Gpu,
}

impl Metrics {
    /// Metrics of the steps in `history`, and of a GPU.
    #[doc(hidden)]
    pub fn new(history: StepHistory, gpu: Option<&GpuReading>) -> Self {
        Self { history, gpu: gpu.map_or_else(Gpu::none, |gpu| Gpu::of(gpu, None)) }
    }

    /// Used GPU memory, in GiB.
    pub fn gpu_memory(&self) -> GpuMemory {
        self.gpu.memory()
    }

    /// Share of the time in which a kernel ran on the GPU, in percent.
    pub fn gpu_utilisation(&self) -> GpuUtilisation {
        self.gpu.utilisation()
    }

    /// Samples in each micro-batch of a step.
    pub fn micro_batch(&self) -> MicroBatch {
        MicroBatch::new(self.history.clone())
    }

    /// Loss scale, for gradients in fp16.
    pub fn loss_scale(&self) -> LossScale {
        LossScale::new(self.history.clone())
    }

    /// Norm of all gradients of a step together.
    pub fn gradient_norm(&self) -> GradientNorm {
        GradientNorm::new(self.history.clone())
    }

    /// Counts of gradient values, parameter by parameter. Requests counts from the strategy, in the first step of a
    /// training run and in every `every`th after it; the last request counts.
    pub fn gradient_health(&self, every: u64) -> GradientReport {
        self.history.request_health(every);
        GradientReport::new(self.history.clone())
    }

    /// Result of the last step; `None` before the first. Its loss is zero, because Burn's loop computes the loss: see
    /// Burn's `LossMetric`.
    pub fn last_step(&self) -> Option<Step> {
        self.history.last()
    }
}

/// Length of the history. The thread of metrics is at most three items behind.
const LENGTH: usize = 8;

/// Recent steps of a session's strategy. Clones share the history.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct StepHistory(Arc<Mutex<History>>);

#[derive(Debug, Default)]
struct History {
    taken: u64,
    steps: VecDeque<StepEntry>,
    health_every: Option<u64>,
}

/// Entry of the history.
#[derive(Debug)]
struct StepEntry {
    /// Number of the step over all epochs.
    number: u64,
    /// Number of the step in its epoch, from 1.
    iteration: usize,
    step: Step,
}

impl StepHistory {
    /// Begins a training run. Returns the interval of gradient counts, in steps.
    pub(super) fn begin(&self) -> Option<u64> {
        let mut history = self.lock();
        history.steps.clear();
        history.health_every
    }

    /// Adds a step, without access to the device.
    pub(super) fn push(&self, iteration: usize, step: &Step) {
        let mut history = self.lock();
        history.taken += 1;
        let entry = StepEntry { number: history.taken, iteration, step: step.clone() };
        history.steps.push_back(entry);
        if history.steps.len() > LENGTH {
            history.steps.pop_front();
        }
    }

    /// Requests counts of gradient values.
    fn request_health(&self, every: u64) {
        self.lock().health_every = Some(every.max(1));
    }

    /// Last step.
    fn last(&self) -> Option<Step> {
        self.lock().steps.back().map(|entry| entry.step.clone())
    }

    /// Reads the step of a training item, with the step's number; an error for validation items.
    fn find<T>(&self, item: &MetricMetadata, read: impl FnOnce(&Step) -> T) -> Result<(u64, T), String> {
        let history = self.lock();
        // Training items have a learning rate. Validation batches have the same numbers as steps.
        let mut newest_first = history.steps.iter().rev().filter(|_| item.lr.is_some());
        let entry = newest_first.find(|entry| item.iteration.is_none_or(|iteration| iteration == entry.iteration));
        let entry = entry.ok_or("no step of the session's strategy")?;
        Ok((entry.number, read(&entry.step)))
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

numeric_metric! {
    /// Samples in each micro-batch of a step: as planned, until memory runs out.
    MicroBatch(StepHistory): "Micro-batch", Some("samples"), "Samples in each micro-batch of a step",
    seen: |history, item| history.find(item, |step| step.micro_batch as f64),
    text: |_, value| value.to_string()
}

numeric_metric! {
    /// Loss scale, which keeps gradients in fp16 from vanishing; 1 for other types.
    LossScale(StepHistory): "Loss Scale", None, "What the loss is multiplied by for gradients in f16",
    seen: |history, item| history.find(item, |step| step.loss_scale),
    text: |_, value| value.to_string()
}

numeric_metric! {
    /// Norm of all gradients of a step together, without the loss scale and before clipping. The norm of a skipped step is not
    /// finite: it is logged, and left out of the mean.
    GradientNorm(StepHistory): "Gradient Norm", None, "Norm of all gradients together, before clipping",
    seen: |history, item| history.find(item, |step| f64::from(step.gradient_norm)),
    text: |_, value| format_float(value, 3)
}

/// Parameters that are named in a line of text.
const NAMED: usize = 3;

/// Counts of NaN, infinite and zero gradients of each parameter, in the steps that count. Shows a line of text with the
/// step's number over all epochs and the parameters that are not finite. Logs a line of JSON with `iteration`, the
/// step's number in its epoch, and the fields of [`GradientHealth`].
#[derive(Clone, Debug)]
pub struct GradientReport {
    history: StepHistory,
    last: Option<u64>,
    shown: Option<String>,
}

/// Line of the log.
#[derive(Serialize)]
struct Line<'h> {
    iteration: Option<usize>,
    #[serde(flatten)]
    health: &'h GradientHealth,
}

impl GradientReport {
    fn new(history: StepHistory) -> Self {
        Self { history, last: None, shown: None }
    }

    /// Shows the last counts again, without a log entry.
    fn last_shown(&self) -> SerializedEntry {
        match &self.shown {
            Some(shown) => SerializedEntry::new(shown.clone(), not_logged()),
            None => missing("not counted yet"),
        }
    }
}

impl Metric for GradientReport {
    type Input = ();

    fn name(&self) -> MetricName {
        Arc::new("Gradient Health".to_owned())
    }

    fn description(&self) -> Option<String> {
        Some("Values of gradients that are NaN, Inf or zero, by parameter".to_owned())
    }

    fn update(&mut self, (): &(), of: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
        if let Ok((number, Some(health))) = self.history.find(of, |step| step.gradient_health.clone())
            && self.last != Some(number)
        {
            let text = format!("step {number}: {}", text(&health));
            (self.last, self.shown) = (Some(number), Some(text.clone()));
            let line = Line { iteration: of.iteration, health: &health };
            return Ok(SerializedEntry::new(text, serde_json::to_string(&line).unwrap_or_else(|_| not_logged())));
        }
        Ok(self.last_shown())
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(self.last_shown())
    }

    /// The last counts are shown until the next ones.
    fn clear(&mut self) {}
}

/// Text of one line: parameters that are not finite, and the share of zeros.
fn text(health: &GradientHealth) -> String {
    let total = health.total();
    let zero = format!("{:.1}% zero", 100.0 * total.zero as f64 / total.values.max(1) as f64);
    let unhealthy: Vec<_> = health.unhealthy().collect();
    if unhealthy.is_empty() {
        return format!("all finite, {zero}");
    }
    let name = |layer: &&LayerHealth| format!("{} ({} NaN, {} Inf)", layer.path, layer.nan, layer.infinite);
    let named: Vec<_> = unhealthy.iter().take(NAMED).map(name).collect();
    let more = match unhealthy.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} NaN, {} Inf, {zero}; in {}{more}", total.nan, total.infinite, named.join(", "))
}

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
