//! Parameter tensors by shape and role, and the optimizer state that each needs.

use serde::{Deserialize, Serialize};

use crate::dims::{Choices, choices};

/// Parameter tensors of one shape and purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensors {
    /// Number of tensors.
    pub count: u64,
    /// Product of the dimensions before the last two; 1 for matrices and vectors.
    pub planes: u64,
    /// The dimension before the last; 1 for vectors.
    pub rows: u64,
    /// The last dimension.
    pub columns: u64,
    /// Purpose of the tensors.
    pub role: Role,
}

choices! {
    /// Purpose of a parameter tensor.
    pub enum Role: "role", "workload::Matrix" {
        /// The projection to an attention's queries.
        Query = "query",
        /// The projection to an attention's keys.
        Key = "key",
        /// The projection to an attention's values.
        Value = "value",
        /// The projection of an attention's result.
        Output = "output",
        /// The gate of a gated feed-forward layer.
        Gate = "gate",
        /// The first matrix of a feed-forward layer.
        Up = "up",
        /// The last matrix of a feed-forward layer.
        Down = "down",
        /// Any other matrix within the network.
        Dense = "dense",
        /// The matrix that makes the network's result.
        Head = "head",
        /// A lookup table.
        Embedding = "embedding",
        /// A convolution's kernel.
        Convolution = "convolution",
        /// A bias, or the scale or shift of a norm.
        Vector = "vector",
    }
}

impl Role {
    /// The roles of matrices, for users.
    pub(super) const MATRICES: Choices =
        Choices { what: "matrix", names: Self::CHOICES.names.split_at(10).0, ..Self::CHOICES };

    /// Returns true for a matrix between other layers. Adapters, packing and Muon apply to such matrices.
    pub const fn is_hidden_matrix(self) -> bool {
        !matches!(self, Self::Embedding | Self::Convolution | Self::Head | Self::Vector)
    }
}

impl Tensors {
    /// `count` matrices.
    pub(super) const fn matrices(count: u64, rows: u64, columns: u64, role: Role) -> Self {
        Self { count, planes: 1, rows, columns, role }
    }

    /// `count` vectors.
    pub const fn vectors(count: u64, length: u64) -> Self {
        Self { count, planes: 1, rows: 1, columns: length, role: Role::Vector }
    }

    /// `count` kernels of convolutions.
    pub(super) const fn kernels(count: u64, outputs: u64, inputs: u64, side: u64) -> Self {
        Self { count, planes: outputs * inputs, rows: side, columns: side, role: Role::Convolution }
    }

    /// Values in one of them.
    pub const fn values_each(&self) -> u64 {
        self.planes.saturating_mul(self.rows).saturating_mul(self.columns)
    }

    /// Values in all of them.
    pub const fn values(&self) -> u64 {
        self.count.saturating_mul(self.values_each())
    }
}

/// More values than any device has, far enough from overflow that such counts can be added.
pub(super) const MOST_VALUES: u64 = u64::MAX / 8;

/// Limits a count of values to [`MOST_VALUES`].
pub(super) fn limited(values: u128) -> u64 {
    u64::try_from(values).map_or(MOST_VALUES, |values| values.min(MOST_VALUES))
}

/// Values in all of these tensors.
pub(super) fn values(tensors: &[Tensors]) -> u64 {
    tensors.iter().fold(0, |sum, group| sum.saturating_add(group.values()))
}

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
