use serde::{Deserialize, Serialize};

use super::{
    Convnet, Declared, EncoderDecoder, Mlp, ModelCosts, Recurrent, Tensors, Training, Transformer, Unet, Vit, Workload,
};
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

/// Names of recurrent networks by their cell, on command lines.
const CELLS: [&str; 2] = ["lstm", "gru"];

impl ModelKind {
    /// The kind with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL.iter().find(|kind| kind.name == name)
    }

    /// The kind with this name on a command line, and the `cell` that the name gives: `lstm` and `gru` are recurrent.
    pub fn requested(name: &str) -> Option<(&'static Self, Option<&'static str>)> {
        let cell = CELLS.into_iter().find(|cell| *cell == name);
        Some((Self::named(cell.map_or(name, |_| "recurrent"))?, cell))
    }

    /// Names that [`requested`](Self::requested) accepts.
    pub fn requestable() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|kind| kind.name).chain(CELLS)
    }
}

/// Generates everything that lists models. A row is `/// documentation`, then `Model = "name", "meaning";`.
macro_rules! models {
    ($($(#[$doc:meta])* $model:ident = $name:literal, $meaning:literal;)+) => {
        /// A user's description of a model.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ModelSpec { $($(#[$doc])* $model($model),)+ }

        impl ModelKind {
            /// All kinds; the first states costs, the others dimensions.
            pub const ALL: &[Self] = &[$(Self {
                name: $name,
                type_name: stringify!($model),
                meaning: $meaning,
                dims: $model::DIMS,
                from_values: |values| ModelSpec::$model($model::from_values(values)),
            }),+];
        }

        impl ModelSpec {
            /// The kind of the model.
            pub fn kind(&self) -> &'static ModelKind {
                let name = match self { $(Self::$model(_) => $name),+ };
                ModelKind::named(name).expect("BUG: every kind is in the table")
            }

            /// The dimensions that are required or differ from their defaults, by name.
            pub fn values(&self) -> DimValues {
                match self { $(Self::$model(model) => model.values()),+ }
            }

            fn costs(&self) -> ModelCosts {
                match self { $(Self::$model(model) => model.costs()),+ }
            }

            fn out_of_range(&self) -> Vec<(&'static str, String)> {
                match self { $(Self::$model(model) => model.out_of_range()),+ }
            }

            /// Dimensions that contradict each other, as `(dimension, message)`.
            fn contradictions(&self) -> Vec<(&'static str, String)> {
                match self { $(Self::$model(model) => model.contradictions()),+ }
            }
        }

        $(
            impl From<$model> for ModelSpec {
                fn from(model: $model) -> Self { Self::$model(model) }
            }

            impl From<$model> for WorkloadSpec {
                fn from(model: $model) -> Self { ModelSpec::$model(model).into() }
            }

            impl $model {
                /// Costs of one training step that trains the whole model with `AdamW`.
                pub fn workload(&self) -> Workload { WorkloadSpec::from(self.clone()).workload() }

                /// Parameters.
                pub fn parameters(&self) -> u64 { super::tensors::values(&self.costs().tensors) }
            }
        )+
    };
}

models! {
    /// Costs stated by the user.
    Declared = "declared", "costs that you state";
    /// A transformer's dimensions.
    Transformer = "transformer", "a transformer over tokens";
    /// An encoder-decoder's dimensions.
    EncoderDecoder = "encoder_decoder", "a transformer from one sequence to another";
    /// A vision transformer's dimensions.
    Vit = "vit", "a transformer over the patches of an image";
    /// A convnet's dimensions.
    Convnet = "convnet", "a convolutional classifier";
    /// A U-Net's dimensions.
    Unet = "unet", "a U-Net over images";
    /// A multilayer perceptron's dimensions.
    Mlp = "mlp", "a multilayer perceptron";
    /// A recurrent network's dimensions.
    Recurrent = "recurrent", "LSTM or GRU layers over sequences";
}

impl ModelSpec {
    /// Builds a model of this kind from its dimensions; absent dimensions get their defaults.
    ///
    /// Values must be of the kind that their dimension has.
    pub fn from_values(kind: &ModelKind, values: &DimValues) -> Self {
        (kind.from_values)(values)
    }

    /// Every parameter tensor of the model.
    pub fn tensors(&self) -> Vec<Tensors> {
        self.costs().tensors
    }
}

impl WorkloadSpec {
    /// Costs of one training step.
    pub fn workload(&self) -> Workload {
        self.training.apply(&self.model.costs(), self.clone())
    }

    /// The model's parameters, whichever of them are trained.
    pub fn parameters(&self) -> u64 {
        super::tensors::values(&self.model.costs().tensors)
    }

    /// Errors in the dimensions, as `(dimension, message)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = self.model.out_of_range();
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
