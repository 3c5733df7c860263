use core::fmt;

use serde::{Deserialize, Serialize};

use super::{Role, Tensors};
use crate::dims::Choices;

/// An optimizer; determines the size of the optimizer state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Gradient descent without momentum: keeps nothing.
    Sgd,
    /// Gradient descent with momentum: keeps the velocity.
    Momentum,
    /// Adam: keeps two moments.
    Adam,
    /// Adam with decoupled weight decay: keeps two moments.
    #[default]
    AdamW,
    /// Adafactor without momentum: keeps the second moment, factored to a row and a column for matrices, always in fp32.
    Adafactor,
    /// Muon on the inner matrices, keeps the velocity; `AdamW` on everything else, because Burn's Muon takes matrices
    /// only.
    Muon,
}

impl Optimizer {
    /// All optimizers.
    pub const ALL: [Self; 6] = [Self::Sgd, Self::Momentum, Self::Adam, Self::AdamW, Self::Adafactor, Self::Muon];

    /// The names for users.
    pub const CHOICES: Choices = Choices {
        what: "optimizer",
        path: "workload::Optimizer",
        names: &[
            ("sgd", "Sgd"),
            ("momentum", "Momentum"),
            ("adam", "Adam"),
            ("adamw", "AdamW"),
            ("adafactor", "Adafactor"),
            ("muon", "Muon"),
        ],
    };

    /// The name in attributes and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Momentum => "momentum",
            Self::Adam => "adam",
            Self::AdamW => "adamw",
            Self::Adafactor => "adafactor",
            Self::Muon => "muon",
        }
    }

    /// Values that Burn's optimizer stores for tensors of one shape.
    pub fn state_values(self, tensors: &Tensors) -> u64 {
        let all = tensors.values();
        match self {
            Self::Sgd => 0,
            Self::Momentum => all,
            Self::Muon if tensors.role.is_hidden_matrix() => all,
            Self::Adam | Self::AdamW | Self::Muon => all.saturating_mul(2),
            Self::Adafactor if tensors.role == Role::Vector => all,
            // The last two dimensions are factored, for each index of those before.
            Self::Adafactor => {
                tensors.count.saturating_mul(tensors.planes.saturating_mul(tensors.rows + tensors.columns))
            }
        }
    }

    /// Returns true if the state is fp32 for any format of the parameters.
    pub const fn keeps_f32(self) -> bool {
        matches!(self, Self::Adafactor)
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
