//! Metrics of what a step did.

use std::borrow::Cow;

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry, SerializedEntry,
};

use super::history::StepHistory;
use super::series::{Series, missing, numeric_metric};
use crate::train::Step;

/// Why there is nothing to show.
const NO_STEP: &str = "no step of the session's strategy";

/// Samples in each micro-batch that a step was cut into: what is planned, until memory runs out.
#[derive(Clone, Debug)]
pub struct MicroBatch {
    history: StepHistory,
    series: Series,
}

/// Loss scale, which keeps gradients in fp16 from vanishing; 1 for other types.
#[derive(Clone, Debug)]
pub struct LossScale {
    history: StepHistory,
    series: Series,
}

/// Norm of all gradients of a step together, with the loss scale divided out, and before they were clipped. Of a step
/// that was left out, because a gradient was not finite, it is not finite: it is logged so, and not part of the mean.
#[derive(Clone, Debug)]
pub struct GradientNorm {
    history: StepHistory,
    series: Series,
}

/// Makes it a metric of the steps in a record.
macro_rules! of_steps {
    ($metric:ty, $value:expr) => {
        impl $metric {
            pub(super) fn new(history: StepHistory) -> Self {
                Self { history, series: Series::default() }
            }

            fn seen(&self, of: &MetricMetadata) -> Result<(u64, f64), Cow<'static, str>> {
                let value: fn(&Step) -> f64 = $value;
                self.history.find(of, value).ok_or(Cow::Borrowed(NO_STEP))
            }
        }
    };
}

of_steps!(MicroBatch, |step| step.micro_batch as f64);
of_steps!(LossScale, |step| step.loss_scale);
of_steps!(GradientNorm, |step| f64::from(step.gradient_norm));

impl MicroBatch {
    #[expect(clippy::unused_self, reason = "the metric's macro asks every metric")]
    fn text(&self, value: f64) -> String {
        format!("{value}")
    }
}

impl LossScale {
    #[expect(clippy::unused_self, reason = "the metric's macro asks every metric")]
    fn text(&self, value: f64) -> String {
        format!("{value}")
    }
}

impl GradientNorm {
    #[expect(clippy::unused_self, reason = "the metric's macro asks every metric")]
    fn text(&self, value: f64) -> String {
        burn::train::metric::format_float(value, 3)
    }
}

numeric_metric!(MicroBatch, "Micro-batch", Some("samples"), "Samples in each micro-batch of a step");
numeric_metric!(LossScale, "Loss Scale", None, "What the loss is multiplied by for gradients in f16");
numeric_metric!(GradientNorm, "Gradient Norm", None, "Norm of all gradients together, before clipping");
