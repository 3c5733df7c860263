use serde::{Deserialize, Serialize};

use super::{Convnet, Declared, Mlp, ModelCosts, Recurrent, Tensors, Training, Transformer, Unet, Workload};
use crate::dims::{Dim, DimValues, Schema};

/// A user's description of a workload: a model and a training method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// The model: costs, or dimensions to compute them from.
    pub model: ModelSpec,
    /// The training method.
    #[serde(default)]
    pub training: Training,
}

/// A user's description of a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelSpec {
    /// Costs stated by the user.
    Declared(Declared),
    /// A transformer's dimensions.
    Transformer(Transformer),
    /// A convnet's dimensions.
    Convnet(Convnet),
    /// A U-Net's dimensions.
    Unet(Unet),
    /// A multilayer perceptron's dimensions.
    Mlp(Mlp),
    /// A recurrent network's dimensions.
    Recurrent(Recurrent),
}

/// A kind of model: the name and the dimensions it takes.
#[derive(Debug)]
pub struct ModelKind {
    /// The name in attributes and files.
    pub name: &'static str,
    /// The structure in Rust, which is also the variant of [`ModelSpec`].
    pub type_name: &'static str,
    /// Short description of the model.
    pub meaning: &'static str,
    /// Its dimensions.
    pub dims: &'static [Dim],
    from_values: fn(&DimValues) -> ModelSpec,
}

macro_rules! kind {
    ($model:ident, $name:literal, $meaning:literal) => {
        Self {
            name: $name,
            type_name: stringify!($model),
            meaning: $meaning,
            dims: $model::DIMS,
            from_values: |values| ModelSpec::$model($model::from_values(values)),
        }
    };
}

impl ModelKind {
    /// All kinds; the first states costs, the others dimensions.
    pub const ALL: &[Self] = &[
        kind!(Declared, "declared", "costs that you state"),
        kind!(Transformer, "transformer", "a transformer over tokens"),
        kind!(Convnet, "convnet", "a convolutional classifier"),
        kind!(Unet, "unet", "a U-Net over images"),
        kind!(Mlp, "mlp", "a multilayer perceptron"),
        kind!(Recurrent, "recurrent", "LSTM or GRU layers over sequences"),
    ];

    /// The kind with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|kind| kind.name == name)
    }
}

/// Evaluates an expression for any kind of model.
macro_rules! with_model {
    ($spec:expr, $model:ident => $result:expr) => {
        match $spec {
            ModelSpec::Declared($model) => $result,
            ModelSpec::Transformer($model) => $result,
            ModelSpec::Convnet($model) => $result,
            ModelSpec::Unet($model) => $result,
            ModelSpec::Mlp($model) => $result,
            ModelSpec::Recurrent($model) => $result,
        }
    };
}

impl ModelSpec {
    /// Builds a model of this kind from its dimensions; absent dimensions get their defaults.
    ///
    /// Values must be of the kind that their dimension has.
    pub fn from_values(kind: &ModelKind, values: &DimValues) -> Self {
        (kind.from_values)(values)
    }

    /// The kind of the model.
    pub fn kind(&self) -> &'static ModelKind {
        let name = match self {
            Self::Declared(_) => "declared",
            Self::Transformer(_) => "transformer",
            Self::Convnet(_) => "convnet",
            Self::Unet(_) => "unet",
            Self::Mlp(_) => "mlp",
            Self::Recurrent(_) => "recurrent",
        };
        ModelKind::named(name).expect("BUG: every kind is in the table")
    }

    /// The dimensions that are required or differ from their defaults, by name.
    pub fn values(&self) -> DimValues {
        with_model!(self, model => model.values())
    }

    /// Every parameter tensor of the model.
    pub fn tensors(&self) -> Vec<Tensors> {
        self.costs().tensors
    }

    fn costs(&self) -> ModelCosts {
        with_model!(self, model => model.costs())
    }

    /// Dimensions that contradict each other, as `(dimension, message)`.
    fn contradictions(&self) -> Vec<(&'static str, String)> {
        with_model!(self, model => model.contradictions())
    }
}

impl WorkloadSpec {
    /// Costs of one training step.
    pub fn workload(&self) -> Workload {
        self.training.apply(&self.model.costs())
    }

    /// The model's parameters, whichever of them are trained.
    pub fn parameters(&self) -> u64 {
        super::tensors::values(&self.model.costs().tensors)
    }

    /// Errors in the dimensions, as `(dimension, message)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = with_model!(&self.model, model => model.out_of_range());
        found.extend(self.training.out_of_range());
        // Contradictions are checked only between valid sizes.
        if found.is_empty() {
            found = self.model.contradictions();
        }
        if found.is_empty() {
            found = self.training.contradictions(&self.model);
        }
        found
    }
}

impl From<ModelSpec> for WorkloadSpec {
    /// The model, trained as a whole with `AdamW`.
    fn from(model: ModelSpec) -> Self {
        Self { model, training: Training::default() }
    }
}

macro_rules! from_models {
    ($($model:ident),*) => {$(
        impl From<$model> for ModelSpec {
            fn from(model: $model) -> Self {
                Self::$model(model)
            }
        }

        impl From<$model> for WorkloadSpec {
            fn from(model: $model) -> Self {
                ModelSpec::$model(model).into()
            }
        }

        impl $model {
            /// Costs of one training step that trains the whole model with `AdamW`.
            pub fn workload(&self) -> Workload {
                WorkloadSpec::from(self.clone()).workload()
            }

            /// Parameters.
            pub fn parameters(&self) -> u64 {
                super::tensors::values(&self.costs().tensors)
            }
        }
    )*};
}
from_models!(Declared, Transformer, Convnet, Unet, Mlp, Recurrent);
