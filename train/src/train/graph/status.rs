//! Use of CUDA graphs, as a trainer reports it.

use std::fmt;

use burn::module::Module;
use serde::Serialize;

use crate::train::trainer::Trainer;

/// Use of CUDA graphs by a trainer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[non_exhaustive]
pub enum GraphStatus {
    /// Not asked for.
    #[default]
    Off,
    /// Asked for; micro-steps still run one kernel at a time.
    WarmingUp,
    /// Recorded; replays are compared with plain micro-steps.
    Checking,
    /// Micro-steps of full size are replayed.
    Replaying,
    /// Impossible for this model, batch or device.
    Refused {
        /// The reason.
        because: String,
    },
}

impl fmt::Display for GraphStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::WarmingUp => f.write_str("warming up"),
            Self::Checking => f.write_str("recorded, not yet checked"),
            Self::Replaying => f.write_str("replaying"),
            Self::Refused { because } => write!(f, "refused: {because}"),
        }
    }
}

impl<M: Module> Trainer<M> {
    /// Replays micro-steps of full size as CUDA graphs, after some plain ones. See [`graph_status`](Self::graph_status).
    ///
    /// Takes memory for a second copy of the parameters, and keeps the memory of one micro-step's activations.
    #[must_use]
    pub fn cuda_graphs(self) -> Self {
        let mut graphs = self.trained.graphs.lock();
        if self.stepper.rank.is_some() {
            graphs.refuse("while one rank records, the driver fails the allocations of the others".to_owned());
        } else {
            graphs.switch_on();
        }
        drop(graphs);
        self
    }

    /// Use of [CUDA graphs](Self::cuda_graphs), with the reason if they were refused.
    pub fn graph_status(&self) -> GraphStatus {
        self.trained.graphs.lock().status().clone()
    }
}
