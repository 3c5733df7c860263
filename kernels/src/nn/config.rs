//! Configs that make this crate's modules, with the fields, defaults and files of Burn's.

use std::ops::{Deref, DerefMut};

use burn::config::Config;
use burn::nn::activation::ActivationConfig;
use burn::nn::attention as burn_attention;
use burn::nn::conv as burn_conv;
use burn::nn::gru as burn_gru;
use burn::nn::transformer as burn_transformer;
use burn::nn::{self as burn_nn, Initializer, LinearLayout, PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
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

    /// Config of a batch norm.
    BatchNormConfig(burn_nn::BatchNormConfig) of burn_nn::BatchNorm {
        new(num_features: usize);
        with_epsilon: f64,
        with_momentum: f64,
    }

    /// Config of a group norm.
    GroupNormConfig(burn_nn::GroupNormConfig) of burn_nn::GroupNorm {
        new(num_groups: usize, num_channels: usize);
        with_epsilon: f64,
        with_affine: bool,
    }

    /// Config of an instance norm.
    InstanceNormConfig(burn_nn::InstanceNormConfig) of burn_nn::InstanceNorm {
        new(num_channels: usize);
        with_epsilon: f64,
        with_affine: bool,
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

    /// Config of a convolution of one size.
    Conv1dConfig(burn_conv::Conv1dConfig) of burn_conv::Conv1d {
        new(channels_in: usize, channels_out: usize, kernel_size: usize);
        with_stride: usize,
        with_dilation: usize,
        with_groups: usize,
        with_padding: PaddingConfig1d,
        with_bias: bool,
        with_initializer: Initializer,
    }

    /// Config of a convolution of two sizes.
    Conv2dConfig(burn_conv::Conv2dConfig) of burn_conv::Conv2d {
        new(channels: [usize; 2], kernel_size: [usize; 2]);
        with_stride: [usize; 2],
        with_dilation: [usize; 2],
        with_groups: usize,
        with_padding: PaddingConfig2d,
        with_bias: bool,
        with_initializer: Initializer,
    }

    /// Config of a convolution of three sizes.
    Conv3dConfig(burn_conv::Conv3dConfig) of burn_conv::Conv3d {
        new(channels: [usize; 2], kernel_size: [usize; 3]);
        with_stride: [usize; 3],
        with_dilation: [usize; 3],
        with_groups: usize,
        with_padding: PaddingConfig3d,
        with_bias: bool,
        with_initializer: Initializer,
    }

    /// Config of a transposed convolution of one size.
    ConvTranspose1dConfig(burn_conv::ConvTranspose1dConfig) of burn_conv::ConvTranspose1d {
        new(channels: [usize; 2], kernel_size: usize);
        with_stride: usize,
        with_dilation: usize,
        with_groups: usize,
        with_padding: usize,
        with_padding_out: usize,
        with_bias: bool,
        with_initializer: Initializer,
    }

    /// Config of a transposed convolution of two sizes.
    ConvTranspose2dConfig(burn_conv::ConvTranspose2dConfig) of burn_conv::ConvTranspose2d {
        new(channels: [usize; 2], kernel_size: [usize; 2]);
        with_stride: [usize; 2],
        with_dilation: [usize; 2],
        with_groups: usize,
        with_padding: [usize; 2],
        with_padding_out: [usize; 2],
        with_bias: bool,
        with_initializer: Initializer,
    }

    /// Config of an LSTM.
    LstmConfig(burn_nn::LstmConfig) of burn_nn::Lstm {
        new(d_input: usize, d_hidden: usize, bias: bool);
        with_initializer: Initializer,
        with_batch_first: bool,
        with_reverse: bool,
        with_clip: Option<f64>,
        with_input_forget: bool,
        with_gate_activation: ActivationConfig,
        with_cell_activation: ActivationConfig,
        with_hidden_activation: ActivationConfig,
    }

    /// Config of two LSTMs in opposite directions.
    BiLstmConfig(burn_nn::BiLstmConfig) of burn_nn::BiLstm {
        new(d_input: usize, d_hidden: usize, bias: bool);
        with_initializer: Initializer,
        with_batch_first: bool,
        with_clip: Option<f64>,
        with_input_forget: bool,
        with_gate_activation: ActivationConfig,
        with_cell_activation: ActivationConfig,
        with_hidden_activation: ActivationConfig,
    }

    /// Config of a gated recurrent unit.
    GruConfig(burn_gru::GruConfig) of burn_gru::Gru {
        new(d_input: usize, d_hidden: usize, bias: bool);
        with_reset_after: bool,
        with_initializer: Initializer,
        with_gate_activation: ActivationConfig,
        with_hidden_activation: ActivationConfig,
        with_clip: Option<f64>,
    }

    /// Config of two gated recurrent units in opposite directions.
    BiGruConfig(burn_gru::BiGruConfig) of burn_gru::BiGru {
        new(d_input: usize, d_hidden: usize, bias: bool);
        with_reset_after: bool,
        with_initializer: Initializer,
        with_batch_first: bool,
        with_gate_activation: ActivationConfig,
        with_hidden_activation: ActivationConfig,
        with_clip: Option<f64>,
    }

    /// Config of a transposed convolution of three sizes.
    ConvTranspose3dConfig(burn_conv::ConvTranspose3dConfig) of burn_conv::ConvTranspose3d {
        new(channels: [usize; 2], kernel_size: [usize; 3]);
        with_stride: [usize; 3],
        with_dilation: [usize; 3],
        with_groups: usize,
        with_padding: [usize; 3],
        with_padding_out: [usize; 3],
        with_bias: bool,
        with_initializer: Initializer,
    }
}
