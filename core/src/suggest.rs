/// Formats `; did you mean `x`?` for the nearest known word; empty if none is within a typing error. Case does not count.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let lower = word.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&lower, &candidate.to_lowercase());
    let nearest = known.into_iter().map(|candidate| (distance(candidate), candidate)).min();
    match nearest {
        Some((distance, candidate)) if distance * 3 <= word.len().max(3) => did_you_mean(candidate),
        _ => String::new(),
    }
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
mod tests {
    use super::{SYNONYMS, suggest, suggest_key};
    use crate::dims::Schema as _;
    use crate::workload::{ModelKind, Training};

    #[test]
    fn only_a_near_miss_is_suggested() {
        let known = ["rtx4090", "h200"];
        assert_eq!(suggest("rtx4900", known), "; did you mean `rtx4090`?");
        assert_eq!(suggest("RTX4900", known), "; did you mean `rtx4090`?");
        assert_eq!(suggest("AdamW", ["adam", "adamw"]), "; did you mean `adamw`?");
        assert_eq!(suggest("voodoo2", known), "");
    }

    #[test]
    fn names_of_other_libraries_suggest_the_key_that_the_model_has() {
        let keys = |kind| ModelKind::named(kind).expect("a kind").dims.iter().map(|dim| dim.name).collect::<Vec<_>>();
        for (kind, word, key) in [
            ("transformer", "hidden_size", "d_model"),
            ("recurrent", "hidden_size", "hidden"),
            ("transformer", "vocab_size", "vocab"),
            ("transformer", "seq_len", "seq"),
            ("encoder_decoder", "num_heads", "heads"),
            ("vit", "patch_size", "patch"),
            ("unet", "layers_per_block", "blocks"),
            // A typing error of a key.
            ("transformer", "layer", "layers"),
        ] {
            assert_eq!(suggest_key(word, &keys(kind)), format!("; did you mean `{key}`?"), "{kind}: {word}");
        }
        assert_eq!(suggest_key("hidden_size", &keys("unet")), "");
    }

    #[test]
    fn every_key_with_synonyms_exists() {
        let of_goal = ["global_batch", "world_size"];
        for (key, _) in SYNONYMS {
            let mut dims = ModelKind::ALL.iter().flat_map(|kind| kind.dims).chain(Training::DIMS);
            assert!(of_goal.contains(key) || dims.any(|dim| dim.name == *key), "{key}");
        }
    }
}
