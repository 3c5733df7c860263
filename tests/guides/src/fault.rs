//! Deliberate mistakes in a training loop.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use burn::tensor::Tensor;
use models_tests::work::Work;

/// Host time of the metrics of a micro-batch.
const METRICS: Duration = Duration::from_millis(3);

/// Deliberate mistakes. Others are settings of the config, such as no workers and micro-batches of one.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Read the loss back in the loss function, and use it for 3 ms, like metrics on the host
    #[arg(long)]
    sync: bool,
    /// Keep a feature map of every micro-batch
    #[arg(long)]
    leak: bool,
}

/// Injects the mistakes of a run.
#[derive(Debug)]
pub(crate) struct FaultInjector {
    faults: Faults,
    metrics: Work,
    kept: Mutex<Vec<Tensor<1>>>,
}

impl FaultInjector {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, metrics: Work::for_duration(METRICS), kept: Mutex::default() }
    }

    /// Called before the loss of a micro-batch.
    pub(crate) fn keep(&self, feature_map: impl FnOnce() -> Tensor<1>) {
        if self.faults.leak {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(feature_map());
        }
    }

    /// Called after the loss of a micro-batch.
    pub(crate) fn read(&self, loss: &Tensor<1>) {
        if self.faults.sync {
            let _: f32 = loss.clone().into_scalar();
            self.metrics.run();
        }
    }
}
