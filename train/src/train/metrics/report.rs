//! Metric of gradient counts.

use std::sync::Arc;

use burn::tensor::TensorReadError;
use burn::train::metric::{Metric, MetricMetadata, MetricName, SerializedEntry};
use serde::Serialize;

use super::history::StepHistory;
use super::series::{missing, not_logged};
use crate::train::{GradientHealth, LayerHealth};

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
    pub(super) fn new(history: StepHistory) -> Self {
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
