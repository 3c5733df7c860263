//! Validation that has no memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::tensor::{ExecutionError, TensorReadError};
use burn::train::SupervisedTraining;
use burn::train::metric::{LossInput, Metric, MetricMetadata, MetricName, SerializedEntry};
use networks::Classifier;

use super::{session, trained, weights};

const OUT_OF_MEMORY: &str = "out of device memory allocating 1024 bytes";

/// A metric that cannot read what was computed: on a GPU that is how memory that ran out is noticed.
#[derive(Clone)]
struct Unread(&'static str);

impl Metric for Unread {
    type Input = LossInput;

    fn name(&self) -> MetricName {
        Arc::new("Unread".to_owned())
    }

    fn update(&mut self, _: &LossInput, _: &MetricMetadata) -> Result<SerializedEntry, TensorReadError> {
        Err(ExecutionError::with_context(self.0).into())
    }

    fn compute(&mut self) -> Result<SerializedEntry, TensorReadError> {
        Ok(SerializedEntry::new(String::new(), String::new()))
    }

    fn clear(&mut self) {}
}

/// Result of three epochs: the error, and the weights.
fn failed(
    starved: usize,
    and: impl FnOnce(SupervisedTraining<Classifier>) -> SupervisedTraining<Classifier>,
) -> (String, Vec<f32>) {
    let model = Classifier::new(&session().device());
    model.failing_in_validation.store(starved, Ordering::Relaxed);
    let result = trained(model, session().strategy().expect("one rank"), and);
    (result.error.as_ref().expect("an error").to_string(), weights(&result))
}

#[test]
fn validation_without_memory_ends_training_with_what_helps() {
    let once = trained(Classifier::new(&session().device()), session().strategy().expect("one rank"), |training| {
        training.num_epochs(1)
    });
    let planned = session().plan().settings.eval_batch_size;
    for (error, weights_then) in
        [failed(usize::MAX, |training| training), failed(0, |training| training.metric_valid(Unread(OUT_OF_MEMORY)))]
    {
        let reported = ["in the validation of epoch 1", "a smaller `batch_size`", OUT_OF_MEMORY];
        assert!(reported.into_iter().all(|reported| error.contains(reported)), "{error}");
        assert!(error.contains(&format!("{planned} is planned as `eval_batch_size`")), "{error}");
        assert_eq!(weights_then, weights(&once), "those of the epoch that was trained");
    }
}

#[test]
fn memory_is_not_blamed_for_other_failures_of_metrics() {
    let (error, _) = failed(0, |training| training.metric_valid(Unread("ptxas: syntax")));
    assert!(error.contains("ptxas: syntax") && !error.contains("eval_batch_size"), "{error}");
    let (error, _) = failed(0, |training| training.metric_train(Unread(OUT_OF_MEMORY)));
    assert!(error.contains(OUT_OF_MEMORY) && !error.contains("eval_batch_size"), "{error}");
}
