//! How configs name models and their dimensions.

/// What tells a kind of model in a config.
#[derive(Debug)]
pub(super) struct Names {
    /// The kind, as workloads name it.
    pub kind: &'static str,
    /// What names of such models contain.
    pub words: &'static [&'static str],
    /// Keys that only such models have.
    pub telling: &'static [&'static str],
    /// The names of each dimension, those first that say more of training. A dimension in braces is no dimension of the kind
    /// itself, but others are made of it.
    pub dims: &'static [(&'static str, &'static [&'static str])],
}

const IMAGE: &[&str] =
    &["patch_size", "image_size", "img_size", "crop_size", "patch", "input_resolution", "resolution", "imgsz"];
const INPUT_CHANNELS: &[&str] =
    &["in_channels", "input_channels", "num_input_channels", "image_channels", "in_chans", "in_ch", "n_channels"];
const CLASSES: &[&str] =
    &["num_classes", "n_classes", "classes", "num_labels", "out_channels", "output_channels", "num_output_channels"];
const SEQ: &[&str] = &[
    "max_seq_length",
    "max_seq_len",
    "max_sequence_length",
    "sequence_length",
    "seq_length",
    "seq_len",
    "sequence_len",
    "block_size",
    "context_length",
    "context_size",
    "ctx_len",
    "cutoff_len",
    "max_length",
    "model_max_length",
    "n_ctx",
    "n_positions",
    "max_position_embeddings",
    "seq",
    "sequence",
];

/// Every kind that is told by its names.
pub(super) const KINDS: &[Names] = &[
    Names {
        kind: "transformer",
        words: &["transformer", "gpt", "bert", "llama", "mistral", "qwen", "gemma", "falcon"],
        telling: &[
            "n_heads",
            "n_head",
            "num_heads",
            "num_attention_heads",
            "nhead",
            "num_key_value_heads",
            "d_model",
            "n_embd",
            "block_size",
            "d_ff",
            "intermediate_size",
            "max_position_embeddings",
            "n_positions",
            "n_ctx",
        ],
        dims: &[
            (
                "layers",
                &["n_layers", "n_layer", "num_layers", "num_hidden_layers", "num_encoder_layers", "layers", "depth"],
            ),
            (
                "d_model",
                &["d_model", "n_embd", "hidden_size", "embed_dim", "embedding_dim", "model_dim", "hidden_dim", "dim"],
            ),
            ("vocab", &["vocab_size", "n_vocab", "vocab", "vocabulary_size"]),
            ("seq", SEQ),
            ("heads", &["n_heads", "n_head", "num_heads", "num_attention_heads", "nhead", "heads"]),
            ("kv_heads", &["num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_kv_head", "kv_heads"]),
            ("d_ff", &["d_ff", "intermediate_size", "n_inner", "ffn_dim", "dim_feedforward", "ff_dim", "d_inner"]),
            ("classes", &["n_classes", "num_classes", "num_labels"]),
            ("tied_head", &["tie_word_embeddings", "tied_head", "tie_embeddings", "weight_tying"]),
            ("dropout", &["dropout", "hidden_dropout_prob", "resid_pdrop", "hidden_dropout", "dropout_rate"]),
            ("bias", &["bias", "use_bias"]),
        ],
    },
    Names {
        kind: "recurrent",
        words: &["lstm", "gru", "rnn", "recurrent"],
        telling: &[
            "bidirectional",
            "lookback",
            "lookback_window",
            "input_size",
            "d_hidden",
            "rnn_type",
            "cell_type",
            "n_features",
        ],
        dims: &[
            (
                "inputs",
                &[
                    "input_size",
                    "input_dim",
                    "d_input",
                    "n_features",
                    "num_features",
                    "in_features",
                    "inputs",
                    "features",
                    "feature_columns",
                    "input_features",
                ],
            ),
            (
                "hidden",
                &[
                    "hidden_size",
                    "hidden_dim",
                    "d_hidden",
                    "hidden",
                    "hidden_units",
                    "lstm_hidden_size",
                    "lstm_units",
                    "units",
                    "rnn_size",
                ],
            ),
            ("layers", &["num_layers", "n_layers", "layers", "lstm_layers", "num_lstm_layers", "rnn_layers"]),
            (
                "seq",
                &[
                    "max_sequence_length",
                    "max_seq_length",
                    "max_seq_len",
                    "sequence_length",
                    "seq_length",
                    "seq_len",
                    "sequence_len",
                    "lookback",
                    "lookback_window",
                    "window",
                    "window_size",
                    "window_length",
                    "sequence",
                    "seq",
                    "input_window",
                ],
            ),
            (
                "outputs",
                &[
                    "output_size",
                    "output_dim",
                    "outputs",
                    "n_outputs",
                    "num_outputs",
                    "num_classes",
                    "n_classes",
                    "horizon",
                    "forecast_horizon",
                ],
            ),
            ("bidirectional", &["bidirectional"]),
            ("vocab", &["vocab_size", "vocab"]),
            ("cell", &["cell", "cell_type", "rnn_type"]),
        ],
    },
    Names {
        kind: "convnet",
        words: &["cnn", "resnet", "convnet", "convolutional", "rescnn", "vgg"],
        telling: &[
            "num_blocks",
            "n_blocks",
            "num_res_blocks",
            "num_residual_blocks",
            "base_channels",
            "kernel_size",
            "stages",
        ],
        dims: &[
            ("image", IMAGE),
            ("classes", CLASSES),
            ("channels", INPUT_CHANNELS),
            ("batch_statistics", &["batch_norm", "use_batch_norm", "batchnorm", "batch_statistics"]),
            (
                "{widths}",
                &[
                    "base_channels",
                    "hidden_channels",
                    "num_channels",
                    "channels",
                    "filters",
                    "n_filters",
                    "num_filters",
                    "base_filters",
                    "width",
                    "widths",
                    "num_features",
                    "n_feats",
                ],
            ),
            (
                "{blocks}",
                &[
                    "num_blocks",
                    "n_blocks",
                    "blocks",
                    "num_residual_blocks",
                    "num_res_blocks",
                    "res_blocks",
                    "n_resblocks",
                    "depth",
                    "depths",
                    "num_layers",
                ],
            ),
        ],
    },
    Names {
        kind: "unet",
        words: &["unet"],
        telling: &["features_per_stage", "encoder_channels", "n_stages", "base_num_features"],
        dims: &[
            ("image", IMAGE),
            ("classes", CLASSES),
            ("channels", INPUT_CHANNELS),
            ("batch_statistics", &["batch_norm", "use_batch_norm", "batchnorm"]),
            (
                "{widths}",
                &[
                    "features_per_stage",
                    "encoder_channels",
                    "widths",
                    "features",
                    "channels",
                    "filters",
                    "base_num_features",
                    "base_features",
                    "base_channels",
                    "init_features",
                    "unet_base_num_features",
                    "base_filters",
                ],
            ),
            ("{blocks}", &["n_stages", "num_levels", "levels", "depth", "num_stages"]),
        ],
    },
    Names {
        kind: "mlp",
        words: &["mlp", "perceptron"],
        telling: &["hidden_sizes", "hidden_dims", "hidden_layers", "layer_sizes"],
        dims: &[
            (
                "{inputs}",
                &["input_size", "input_dim", "in_features", "n_features", "num_features", "inputs", "d_input"],
            ),
            (
                "{widths}",
                &[
                    "hidden_sizes",
                    "hidden_dims",
                    "hidden_layers",
                    "layer_sizes",
                    "hidden_size",
                    "hidden_dim",
                    "d_hidden",
                    "hidden",
                    "width",
                ],
            ),
            ("{blocks}", &["num_layers", "n_layers", "layers", "num_hidden_layers", "depth"]),
            (
                "{outputs}",
                &[
                    "output_size",
                    "output_dim",
                    "out_features",
                    "num_classes",
                    "n_classes",
                    "n_outputs",
                    "outputs",
                    "d_output",
                ],
            ),
        ],
    },
];

/// Keys whose texts name a model.
pub(super) const NAMING: &[&str] = &[
    "model",
    "model_type",
    "model_name",
    "arch",
    "architecture",
    "architectures",
    "network",
    "net",
    "backbone",
    "cell",
    "cell_type",
    "rnn_type",
    "model_class",
    "network_class_name",
    "trainer_class_name",
];
/// The same within a table that is a model's.
pub(super) const NAMING_WITHIN: &[&str] = &["type", "name", "kind", "class", "_target_", "class_path"];
/// Tables that are a model's.
pub(super) const SECTIONS: &[&str] =
    &["model", "network", "net", "architecture", "arch", "model_config", "model_args", "init_args"];

/// Words of a model's name, and the dimensions that such models have, as a file has them.
type Layout = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// The layouts that models are known for, whatever their kind.
pub(super) const LAYOUTS: &[Layout] = &[
    (
        &["llama", "mistral", "qwen", "gemma"],
        &[
            ("gated", "true"),
            ("norm", "\"rms\""),
            ("positions", "\"rotary\""),
            ("bias", "false"),
            ("dropout", "false"),
            ("tied_head", "false"),
        ],
    ),
    (&["resnet", "rescnn"], &[("block", "\"basic\"")]),
    (&["bert"], &[("causal", "false"), ("embedding_norm", "true"), ("final_norm", "false"), ("segments", "2")]),
];

/// The names of a kind.
pub(super) fn of(kind: &str) -> Option<&'static Names> {
    KINDS.iter().find(|names| names.kind == kind)
}
