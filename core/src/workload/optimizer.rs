use super::{Role, Tensors};
use crate::dims::choices;

choices! {
    /// An optimizer; determines the size of the optimizer state.
    #[derive(Default, Hash)]
    pub enum Optimizer: "optimizer", "workload::Optimizer" {
        /// Gradient descent without momentum: keeps nothing.
        Sgd = "sgd",
        /// Gradient descent with momentum: keeps the velocity.
        Momentum = "momentum",
        /// Adam: keeps two moments.
        Adam = "adam",
        /// Adam with decoupled weight decay: keeps two moments.
        #[default]
        AdamW = "adamw",
        /// Adafactor without momentum: keeps the second moment, factored to a row and a column for matrices, always in fp32.
        Adafactor = "adafactor",
        /// Muon on the inner matrices, keeps the velocity; `AdamW` on everything else, because Burn's Muon takes matrices
        /// only.
        Muon = "muon",
    }
}

impl Optimizer {
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
