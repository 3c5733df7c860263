//! What goes wrong in training loops, done on purpose.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use burn::tensor::Tensor;
use models_tests::work::Work;

/// What metrics of a micro-batch take on the host.
const METRICS: Duration = Duration::from_millis(3);

/// Mistakes; others are settings of the config, such as no workers and micro-batches of one.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Reads the loss back in the loss function, and works with it for 3 ms, as metrics on the host do
    #[arg(long)]
    sync: bool,
    /// Keeps a feature map of every micro-batch
    #[arg(long)]
    leak: bool,
}

/// The mistakes of a run, and what is kept by one of them.
#[derive(Debug)]
pub(crate) struct Done {
    faults: Faults,
    metrics: Work,
    kept: Mutex<Vec<Tensor<1>>>,
}

impl Done {
    pub(crate) fn new(faults: Faults) -> Self {
        Self { faults, metrics: Work::lasting(METRICS), kept: Mutex::default() }
    }

    /// Before the loss of a micro-batch.
    pub(crate) fn keep(&self, feature_map: impl FnOnce() -> Tensor<1>) {
        if self.faults.leak {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(feature_map());
        }
    }

    /// After it.
    pub(crate) fn read(&self, loss: &Tensor<1>) {
        if self.faults.sync {
            let _: f32 = loss.clone().into_scalar();
            self.metrics.done();
        }
    }
}
