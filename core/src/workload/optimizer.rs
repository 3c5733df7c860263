use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// An optimizer, for the state it keeps beside the weights.
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
}

impl Optimizer {
    /// All optimizers.
    pub const ALL: [Self; 4] = [Self::Sgd, Self::Momentum, Self::Adam, Self::AdamW];

    /// The name in attributes and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Momentum => "momentum",
            Self::Adam => "adam",
            Self::AdamW => "adamw",
        }
    }

    /// Values kept for each parameter, in the parameter's number format, as Burn stores them.
    pub const fn values_per_parameter(self) -> u64 {
        match self {
            Self::Sgd => 0,
            Self::Momentum => 1,
            Self::Adam | Self::AdamW => 2,
        }
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no optimizer.
#[derive(Debug, Error)]
#[error("`{0}` is not an optimizer: expected sgd, momentum, adam or adamw")]
pub struct ParseOptimizerError(String);

impl FromStr for Optimizer {
    type Err = ParseOptimizerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|optimizer| optimizer.name() == text);
        named.ok_or_else(|| ParseOptimizerError(text.to_owned()))
    }
}
