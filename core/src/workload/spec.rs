//! Descriptions of workloads: a kind of model with its dimensions, or with stated costs, and a training method.

use serde::{Deserialize, Serialize};

use super::tensors::values;
use super::{
    Convnet, EncoderDecoder, Family, Mlp, ModelCosts, Product, Recurrent, Tensors, Training, Transformer, Unet, Vit,
    Workload,
};
use crate::dims::{Dim, DimValues, LARGEST, Schema, schema};
use crate::{Bytes, Provenance, suggest};

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
            pub const ALL: &[Self] = &KINDS;
        }

        // Not in the constant, whose functions every crate would compile again.
        static KINDS: [ModelKind; [$($name),+].len()] = [$(ModelKind {
            name: $name,
            type_name: stringify!($model),
            meaning: $meaning,
            dims: $model::DIMS,
            from_values: |values| ModelSpec::$model($model::from_values(values)),
        }),+];

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
                pub fn parameters(&self) -> u64 { values(&self.costs().tensors) }
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
        values(&self.model.costs().tensors)
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

schema! {
    /// A model with user-specified costs.
    pub struct Declared {
        parameters: u64, Count(1..=1 << 50), "parameters";
        activation_bytes_per_sample: u64, Count(1..=LARGEST_BYTES),
            "bytes that each sample keeps from the forward for the backward pass, in f32";
        /// Without this figure the planner does not consider checkpointing.
        checkpointed_activation_bytes_per_sample?: u64, Count(1..=LARGEST_BYTES),
            "bytes kept under activation checkpointing (default: not planned)";
        largest_tensor_bytes_per_sample?: u64, Count(1..=LARGEST_BYTES),
            "bytes of the largest single tensor for one sample";
        input_bytes_per_sample?: u64, Count(1..=LARGEST_BYTES), "bytes of one sample on the device";
        /// With all parameters trained.
        flops_per_sample: f64, Number(1.0..=1e24),
            "floating-point operations of the forward and backward pass for one sample";
        /// The default is that of a dozen layers of about 40 kernels.
        kernels_per_step: u64 = 500, Count(1..=LARGEST), "kernels of one forward and backward pass (default 500)";
        family: Family = Family::Other, Choice(&Family::CHOICES), "kind of network (default other)";
        batch_statistics: bool = false, Flag, "BatchNorm as the norm (default false)";
        tokens_per_sample?: u64, Count(1..=LARGEST), "tokens in a sample";
        /// The device is probed with this product, and speeds are predicted from its width.
        dominant_product?: Product, Product, "the matrix product with most of the arithmetic";
    }
}

/// More bytes than any device has.
const LARGEST_BYTES: u64 = 1 << 50;

impl Declared {
    pub(super) fn costs(&self) -> ModelCosts {
        let values = |bytes: u64| bytes.div_ceil(4);
        ModelCosts {
            // Their shapes are unavailable.
            tensors: vec![Tensors::vectors(self.parameters, 1)],
            kept: values(self.activation_bytes_per_sample),
            kept_checkpointed: self.checkpointed_activation_bytes_per_sample.map(values),
            largest: self.largest_tensor_bytes_per_sample.map(values),
            result: self.largest_tensor_bytes_per_sample.map_or(0, values),
            input: self.input_bytes_per_sample.map(Bytes),
            multiplications: self.flops_per_sample / 6.0,
            tokens: self.tokens_per_sample,
            kernels: self.kernels_per_step,
            family: self.family,
            batch_statistics: self.batch_statistics,
            dominant_product: self.dominant_product,
            provenance: Provenance::Declared,
            ..ModelCosts::default()
        }
    }

    #[expect(clippy::unused_self, reason = "the signature is that of every model")]
    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Beginnings of models' names, and the description of such a model.
const DESCRIPTIONS: &[(&str, &str)] = &[
    ("bert distilbert roberta electra", "transformer(causal = false, …)"),
    ("gpt opt decoder causal_lm lm nanogpt phi pythia", "transformer(…)"),
    ("llama mistral qwen gemma tinyllama smollm falcon", "transformer(gated = true, norm = \"rms\", …)"),
    ("moe mixtral mixture switch", "transformer(experts = …, …)"),
    ("vision_transformer deit clip image_transformer", "vit(…)"),
    ("t5 flan bart mbart marian seq2seq translation whisper", "encoder_decoder(…)"),
    ("resnet50 resnet101 resnet152", "convnet(block = \"bottleneck\", …)"),
    ("resnet", "convnet(block = \"basic\", …)"),
    ("vgg alexnet lenet", "convnet(max_pooling = true, …)"),
    ("mobilenet efficientnet mnasnet", "convnet(block = \"inverted\", …)"),
    ("cnn conv2d convolutional", "convnet(…)"),
    ("lstm bilstm", "recurrent(cell = \"lstm\", …)"),
    ("gru bigru", "recurrent(cell = \"gru\", …)"),
    ("rnn", "recurrent(…)"),
    ("perceptron dense linear feed_forward feedforward fnn", "mlp(…)"),
    ("ddpm ddim diffusion stable_diffusion latent_diffusion", "unet(blocks = …, attention = …, …)"),
    ("u_net segmentation", "unet(…)"),
];

impl ModelKind {
    /// Describes how a model of this name is written, such as `recurrent(cell = "lstm", …)` for `lstm`; `None` if no kind is
    /// known to describe it.
    pub fn description_of(name: &str) -> Option<&'static str> {
        let begins = |words: &str| words.split(' ').any(|word| is_variant(name, word));
        DESCRIPTIONS.iter().find(|(words, _)| begins(words)).map(|(_, description)| *description)
    }

    /// Formats `; did you mean …?` for a misspelt kind, or `; … describes it` for a model that a kind describes.
    pub fn suggest(name: &str) -> String {
        let near = suggest(name, Self::requestable());
        let kind = Self::description_of(name).and_then(|description| description.split('(').next());
        kind.filter(|_| near.is_empty()).map_or(near, |kind| format!("; `{kind}` describes it"))
    }

    /// The way to a plan for a model that no kind describes.
    pub const MEASURE: &str =
        "any Burn program can be measured, without a GPU, too: `cargo gpu-tuned measure`, then plan";

    /// Lists the kinds: `transformer(…), …; declared(…) takes costs`, and the way for other models.
    pub fn list() -> String {
        let described: Vec<_> = Self::ALL.iter().skip(1).map(|kind| format!("`{}(…)`", kind.name)).collect();
        format!("{}; `{}(…)` takes costs; {}", described.join(", "), Self::ALL[0].name, Self::MEASURE)
    }
}

/// Returns true for the word itself, and for variants that add a number, a version or another word: `resnet18`, `mobilenetv2`,
/// `LSTMClassifier`. A word that only begins alike is another model: `densenet`.
fn is_variant(name: &str, word: &str) -> bool {
    let Some((start, rest)) = name.split_at_checked(word.len()).filter(|(start, _)| start.eq_ignore_ascii_case(word))
    else {
        return false;
    };
    let mut letters = rest.chars();
    match (letters.next(), letters.next()) {
        (Some('v' | 'V'), Some('0'..='9')) => true,
        (Some(first), next) if first.is_ascii_uppercase() => {
            start.ends_with(|last: char| last.is_ascii_lowercase())
                || next.is_some_and(|next| next.is_ascii_lowercase())
        }
        (first, _) => !first.is_some_and(char::is_alphabetic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dims::named;

    #[test]
    fn descriptions_have_kinds_and_keys_that_exist() {
        for (_, description) in DESCRIPTIONS {
            let (kind, keys) = description.split_once('(').expect("a kind with keys");
            let kind = ModelKind::named(kind).expect("a kind that exists");
            let keys = keys.split(", ").filter_map(|part| part.split_once(" = "));
            for (key, _) in keys {
                assert!(named(kind.dims, key).is_some(), "{description}");
            }
        }
    }

    #[test]
    fn well_known_models_are_described() {
        assert_eq!(ModelKind::description_of("resnet50"), Some("convnet(block = \"bottleneck\", …)"));
        assert_eq!(ModelKind::description_of("LSTM"), Some("recurrent(cell = \"lstm\", …)"));
        assert_eq!(ModelKind::description_of("moe"), Some("transformer(experts = …, …)"));
        assert_eq!(ModelKind::description_of("ddpm"), Some("unet(blocks = …, attention = …, …)"));
        for name in ["mobilenet_v2", "mobilenetv2", "MobileNetV2", "RESNETV2", "LSTMClassifier", "GPTNeoX", "vgg16"] {
            assert!(ModelKind::description_of(name).is_some(), "{name}");
        }
        for name in ["mamba", "densenet121", "convlstm", "ConvLSTM", "convnext", "lmdb", "LMDB", "grus", "rnnt", ""] {
            assert_eq!(ModelKind::description_of(name), None, "{name}");
        }
        assert_eq!(ModelKind::suggest("resnet50"), "; `convnet` describes it");
        assert_eq!(ModelKind::suggest("transfomer"), "; did you mean `transformer`?");
    }
}
