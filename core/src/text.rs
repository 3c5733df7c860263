//! Values as text: errors of parsers, conversions of values that files have as text, and corrections of misspelt words.

use thiserror::Error;

/// A text that is no such value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct ParseError(pub(crate) String);

/// Converts types from and to the text that files have for them, by `FromStr` and `Display`.
macro_rules! through_text {
    ($($type:ty),+) => {$(
        impl TryFrom<String> for $type {
            type Error = $crate::ParseError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )+};
}
pub(crate) use through_text;

/// Formats `; did you mean `x`?` for the nearest known word; empty if none is within a typing error. Case does not count.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let lower = word.to_lowercase();
    let most = word.len().max(3) / 3;
    // The distance is at least the difference of the lengths. Distances of long texts take long.
    let is_near = |known: &&str| known.chars().count().abs_diff(lower.chars().count()) <= most;
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    let nearest = known.into_iter().filter(is_near).map(|candidate| (distance(candidate), candidate)).min();
    nearest.filter(|(distance, _)| *distance <= most).map_or_else(String::new, |(_, candidate)| did_you_mean(candidate))
}

/// Formats `; did you mean `x`?` for the key of the same meaning in other libraries' configs, else for the nearest key.
pub fn suggest_key(word: &str, known: &[&str]) -> String {
    let is_meant = |(key, words): &&(&str, &str)| words.split(' ').any(|other| other == word) && known.contains(key);
    SYNONYMS.iter().find(is_meant).map_or_else(|| suggest(word, known.iter().copied()), |(key, _)| did_you_mean(key))
}

fn did_you_mean(word: &str) -> String {
    format!("; did you mean `{word}`?")
}

/// Keys, each with its names in configs of Hugging Face, Keras, timm and `PyTorch`. A name may belong to several keys.
const SYNONYMS: &[(&str, &str)] = &[
    ("layers", "num_layers n_layers n_layer num_hidden_layers depth num_blocks decoder_layers"),
    ("encoder_layers", "num_encoder_layers"),
    ("d_model", "hidden_size hidden_dim n_embd embed_dim embedding_dim model_dim dim width"),
    ("hidden", "hidden_size hidden_dim units d_hidden"),
    ("inputs", "input_size input_dim in_features"),
    ("outputs", "output_size output_dim out_features num_classes n_classes classes"),
    ("vocab", "vocab_size n_vocab vocabulary vocabulary_size num_tokens"),
    (
        "seq",
        "seq_len seq_length sequence_length max_seq_len max_seq_length max_sequence_length max_length \
         model_max_length block_size context_length cutoff_len n_ctx n_positions max_position_embeddings",
    ),
    ("heads", "num_heads n_heads n_head num_attention_heads nhead"),
    ("kv_heads", "num_key_value_heads n_kv_heads num_kv_heads"),
    ("head_dim", "d_kv head_size d_head"),
    ("d_ff", "intermediate_size ffn_dim feed_forward mlp_dim dim_feedforward n_inner"),
    ("experts", "num_experts num_local_experts n_experts"),
    ("experts_per_token", "num_experts_per_tok top_k"),
    ("tied_head", "tie_word_embeddings tie_embeddings weight_tying"),
    ("dropout", "dropout_rate hidden_dropout_prob resid_pdrop"),
    ("bias", "use_bias"),
    ("cell", "cell_type rnn_type"),
    ("batch_statistics", "batch_norm use_batch_norm batchnorm"),
    ("blocks", "layers_per_block num_res_blocks"),
    ("context", "cross_attention_dim context_dim"),
    ("classes", "num_classes n_classes num_labels out_channels output_channels num_output_channels"),
    ("image", "image_size img_size resolution input_size sample_size"),
    ("patch", "patch_size"),
    ("channels", "in_channels input_channels num_input_channels image_channels n_channels num_channels in_chans in_ch"),
    ("widths", "hidden_sizes hidden_dims layer_sizes features block_out_channels"),
    ("kernels", "kernel_size"),
    ("global_batch", "batch_size global_batch_size train_batch_size"),
    ("world_size", "num_gpus ranks num_processes"),
    ("lora_rank", "rank lora_r r"),
];

#[cfg(test)]
mod tests;
