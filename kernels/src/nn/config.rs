//! Configs that make this crate's modules, with the fields, defaults and files of Burn's.

use std::ops::{Deref, DerefMut};

use burn::config::Config;
use burn::nn::activation::ActivationConfig;
use burn::nn::attention as burn_attention;
use burn::nn::transformer as burn_transformer;
use burn::nn::{self as burn_nn, Initializer, LinearLayout};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::ByLibrary;

macro_rules! configs {
    ($(
        $(#[$doc:meta])*
        $name:ident($burn:path) of $module:path {
            new($($field:ident: $field_type:ty),*);
            $($with:ident: $type:ty),* $(,)?
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($burn);

        impl $name {
            /// The config with these values, and Burn's defaults.
            #[allow(clippy::new_without_default, reason = "Burn's configs have no default either")]
            pub fn new($($field: $field_type),*) -> Self {
                Self(<$burn>::new($($field),*))
            }

            $(
                #[doc = concat!("See [`", stringify!($burn), "`].")]
                #[must_use]
                pub fn $with(self, value: $type) -> Self {
                    Self(self.0.$with(value))
                }
            )*

            /// Initialises the module on a device.
            pub fn init(&self, device: &Device) -> ByLibrary<$module> {
                self.0.init(device).into()
            }
        }

        impl Config for $name {}

        impl From<$burn> for $name {
            fn from(config: $burn) -> Self {
                Self(config)
            }
        }

        impl Deref for $name {
            type Target = $burn;

            fn deref(&self) -> &$burn {
                &self.0
            }
        }

        impl DerefMut for $name {
            fn deref_mut(&mut self) -> &mut $burn {
                &mut self.0
            }
        }
    )*};
}

configs! {
    /// Config of a linear layer.
    LinearConfig(burn_nn::LinearConfig) of burn_nn::Linear {
        new(d_input: usize, d_output: usize);
        with_bias: bool,
        with_initializer: Initializer,
        with_layout: LinearLayout,
    }

    /// Config of a lookup table.
    EmbeddingConfig(burn_nn::EmbeddingConfig) of burn_nn::Embedding {
        new(n_embedding: usize, d_model: usize);
        with_initializer: Initializer,
    }

    /// Config of attention with several heads.
    MultiHeadAttentionConfig(burn_attention::MultiHeadAttentionConfig) of burn_attention::MultiHeadAttention {
        new(d_model: usize, n_heads: usize);
        with_dropout: f64,
        with_min_float: f64,
        with_quiet_softmax: bool,
        with_initializer: Initializer,
        with_key_bias: bool,
        with_value_bias: bool,
        with_query_bias: bool,
        with_output_bias: bool,
    }

    /// Config of a feed-forward network at each position.
    PositionWiseFeedForwardConfig(burn_transformer::PositionWiseFeedForwardConfig)
    of burn_transformer::PositionWiseFeedForward {
        new(d_model: usize, d_ff: usize);
        with_dropout: f64,
        with_initializer: Initializer,
        with_activation: ActivationConfig,
    }

    /// Config of a transformer's encoder.
    TransformerEncoderConfig(burn_transformer::TransformerEncoderConfig) of burn_transformer::TransformerEncoder {
        new(d_model: usize, d_ff: usize, n_heads: usize, n_layers: usize);
        with_dropout: f64,
        with_norm_first: bool,
        with_quiet_softmax: bool,
        with_initializer: Initializer,
        with_activation: ActivationConfig,
        with_layer_norm_eps: f64,
    }

    /// Config of a layer norm.
    LayerNormConfig(burn_nn::LayerNormConfig) of burn_nn::LayerNorm {
        new(d_model: usize);
        with_epsilon: f64,
        with_bias: bool,
    }

    /// Config of a cross-entropy loss.
    CrossEntropyLossConfig(burn_nn::loss::CrossEntropyLossConfig) of burn_nn::loss::CrossEntropyLoss {
        new();
        with_pad_tokens: Option<Vec<usize>>,
        with_weights: Option<Vec<f32>>,
        with_smoothing: Option<f32>,
        with_logits: bool,
    }
}
