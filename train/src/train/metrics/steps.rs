//! Metrics of what a step did.

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry, SerializedEntry,
    format_float,
};

use super::history::StepHistory;
use super::series::{Series, missing, numeric_metric};

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
