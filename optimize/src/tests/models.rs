//! Models by the keys of Hugging Face, compared with published numbers of parameters; lengths, adapters and packed weights.

use gpu_tuned_core::workload::{Matrix, Recurrent, WeightFormat};
use serde::Deserialize;

use super::{file, model, tuned};
use crate::{Config, Format, Model, ModelRequest, OptimizeError};

/// The model of a published config, with the training of another.
fn read(model: &str, training: &str) -> Result<Model, OptimizeError> {
    let (training, model) = (file(Format::Yaml, training), file(Format::Json, model));
    let config = Config::read(&training.entries()?, &training, &[])?;
    Model::read(&model.entries()?, &model, &ModelRequest { config: Some(&config), ..ModelRequest::default() })
}

fn refused(model: &str, training: &str) -> String {
    match read(model, training) {
        Ok(model) => panic!("not refused: {:?}", model.spec),
        Err(error) => error.to_string(),
    }
}

fn seq(model: &Model) -> &str {
    model.dims.iter().find(|dim| dim.name == "seq").map_or("", |dim| dim.value.as_str())
}

const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": true,
    "max_position_embeddings": 131072, "torch_dtype": "bfloat16", "attention_bias": false, "head_dim": 64,
    "task_specific_params": {"summarization": {"max_length": 20, "num_layers": 2}}}"#;

/// A model of `models.toml` or `refused_models.toml`.
#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(default)]
    aliases: String,
    parameters: Option<u64>,
    refused: Option<String>,
    config: Option<String>,
}

fn listed(text: &str) -> Vec<Listed> {
    #[derive(Deserialize)]
    struct Table {
        model: Vec<Listed>,
    }
    toml::from_str::<Table>(text).expect("a valid table").model
}

#[test]
fn parameters_are_as_published_or_the_model_is_refused_by_name() {
    let known = listed(include_str!("../models.toml"));
    assert!(known.len() >= 60);
    for Listed { name, parameters, refused: words, config, .. } in
        known.into_iter().chain(listed(include_str!("refused_models.toml")))
    {
        let Some(config) = config else { continue };
        // A shorter training leaves the table of positions as it is.
        for training in ["batch_size: 8\nlr: 1\nseq_len: 128\n", "per_device_train_batch_size: 8\nmax_seq_length: 64\n"]
        {
            match read(&config, training) {
                Ok(model) => assert_eq!(Some(model.spec.parameters()), parameters, "{name}"),
                Err(error) => {
                    let (expected, error) = (words.clone().unwrap_or_default(), error.to_string());
                    assert!(!expected.is_empty() && error.starts_with(&expected), "{name}: {error}");
                }
            }
        }
    }
}

/// Adapters of PEFT 0.21, by the widths of the matrices.
#[test]
fn adapters_are_on_the_matrices_that_peft_names() {
    let adapters = |text: &str| {
        let training =
            file(Format::Yaml, &format!("per_device_train_batch_size: 1\nlora_r: 8\nmax_seq_length: 64\n{text}\n"));
        let entries = training.entries().expect("YAML");
        let config = Config::read(&entries, &training, &[]).expect("a config");
        let request = ModelRequest { config: Some(&config), ..ModelRequest::default() };
        let model = Model::read(&entries, &training, &request).map_err(|error| error.to_string())?;
        Ok::<_, String>(model.spec.workload().trained_parameters().0)
    };
    assert_eq!(adapters("model_name_or_path: microsoft/phi-2"), Ok(9_175_040));
    let bert = "model_name_or_path: google-bert/bert-base-uncased\nlora_target_modules:";
    assert_eq!(adapters(&format!("{bert} [dense]")), Ok(12 * 8 * (2 * 768 + 2 * (768 + 3072))));
    assert!(
        adapters(&format!("{bert} [encoder.layer.0.attention.self.query]")).is_err_and(|it| it.contains("no matrix"))
    );
}

#[test]
fn well_known_models_are_recognised_by_their_names() {
    let parameters = |training: &str| {
        let file = file(Format::Yaml, training);
        let entries = file.entries().expect("YAML");
        let config = Config::read(&entries, &file, &[]).expect("a config");
        let request = ModelRequest { config: Some(&config), ..ModelRequest::default() };
        Model::read(&entries, &file, &request).map(|model| model.spec.parameters()).map_err(|error| error.to_string())
    };
    let named = |name: &str| {
        parameters(&format!("per_device_train_batch_size: 8\nmax_seq_length: 64\nmodel_name_or_path: {name}\n"))
    };
    for model in listed(include_str!("../models.toml")).into_iter().filter(|model| model.config.is_some()) {
        for name in [model.name.as_str()].into_iter().chain(model.aliases.split(' ').filter(|alias| !alias.is_empty()))
        {
            assert_eq!(named(name).ok(), model.parameters, "{name}");
        }
    }
    for (name, published) in [
        ("NousResearch/Llama-2-7b-hf", 6_738_415_616),
        ("/tmp/Meta-Llama-3-8B-Instruct/", 8_030_261_248),
        ("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
        ("google/gemma-2-2b-it", 2_614_341_888),
        ("gpt2", 124_439_808),
    ] {
        assert_eq!(named(name), Ok(published), "{name}");
    }
    let builder = "batch_size: 2\ntokenizer: {_component_: x, max_seq_len: 512}\noptimizer: {_component_: torch.optim.AdamW}\n\
                   model: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b, lora_rank: 8, lora_attn_modules: ['q_proj']}\n";
    assert_eq!(parameters(builder), Ok(1_235_814_400));
    for other in [
        "TechxGenus/Meta-Llama-3-8B-Instruct-GPTQ",
        "our/llama-3-8b-pruned",
        "facebook/opt-13b",
        "Qwen/Qwen2.5-VL-7B-Instruct",
    ] {
        assert!(named(other).is_err_and(|words| words.contains("--model-config")), "{other}");
    }
    // The folder of a checkpoint is no name in torchtune.
    let folder = format!("{builder}checkpointer: {{checkpoint_dir: /tmp/Meta-Llama-3-8B}}\n");
    assert_eq!(parameters(&folder), Ok(1_235_814_400));
    let changed = "per_device_train_batch_size: 8\nmodel_name_or_path: gpt2\nconfig_overrides: {n_layer: 4}\n";
    assert!(parameters(changed).is_err());
}

/// Parameters of a hand-written transformer by the formula of its layers, with two norms each, for each key beside the usual ones.
#[test]
fn keys_of_hand_written_transformers_change_the_model() {
    let (layers, d, vocab, seq) = (6_u64, 512_u64, 8192_u64, 256_u64);
    let parameters = |key: &str| {
        let model = format!(
            "{{n_layer: {layers}, n_embd: {d}, n_head: 8, vocab_size: {vocab}, block_size: {seq}, bias: false, {key}}}"
        );
        let file = file(Format::Yaml, &format!("model: {model}\nbatch_size: 8\nlr: 1\n"));
        let model = Model::read(&file.entries().expect("YAML"), &file, &ModelRequest::default());
        model.unwrap_or_else(|error| panic!("{key}: {error}")).spec.parameters()
    };
    let usual = parameters("");
    for (key, more) in [
        ("swiglu: true", layers * 4 * d * d),
        ("activation: swiglu", layers * 4 * d * d),
        ("d_mlp: 4096", layers * 2 * d * 2048),
        ("mlp: {type: swiglu}", layers * 4 * d * d),
        ("activation: swiglu_fused", layers * 4 * d * d),
        ("ffn_type: swiglufused", layers * 4 * d * d),
        ("mlp: {type: SwiGLUMLP}", layers * 4 * d * d),
        ("mlp_type: no_glu", 0),
        ("ffn_type: linear", 0),
        ("feed_forward: {type: linear}", 0),
        ("init_from: scratch", 0),
        ("tie_weights: false", vocab * d),
        ("untied: true", vocab * d),
        ("gated_mlp: true", layers * 4 * d * d),
        ("activation_function: swiglu", layers * 4 * d * d),
        ("gate: true", layers * 4 * d * d),
        ("dim_ff: 4096", layers * 2 * d * 2048),
        ("tie_lm_head: false", vocab * d),
        ("no_tie: true", vocab * d),
        ("causal: false", 0),
        ("act_fn: swiglu, rope_full_precision: null, softcap: 30", layers * 4 * d * d),
        ("d_ff: '${model.wide}', wide: 4096", layers * 2 * d * 2048),
    ] {
        assert_eq!(parameters(key), usual + more, "{key}");
    }
    assert_eq!(parameters("multi_query: true"), usual - layers * 2 * d * (d - 64));
    assert_eq!(parameters("num_kv: 2"), usual - layers * 2 * d * (d - 128));
    assert_eq!(parameters("n_heads_kv: 2"), parameters("num_kv: 2"));
    for rotary in ["rope: true", "positional_encoding: rope", "pos: rotary", "rope_theta: 10000"] {
        assert_eq!(parameters(rotary), usual - seq * d, "{rotary}");
    }
    // Norms without a shift: two a layer, and the last.
    assert_eq!(parameters("rms_norm: true"), usual - (2 * layers + 1) * d);
}

/// Parameters of Megatron-LM's model by the formula of its layers without biases.
#[test]
fn flags_of_megatron_change_the_model() {
    let (layers, d, d_ff, vocab, seq) = (2, 64, 256, 512, 128);
    let parameters = |flag: &str| {
        let text = format!(
            "micro_batch_size: 1\nglobal_batch_size: 8\ntensor_model_parallel_size: 1\nnum_layers: {layers}\n\
             hidden_size: {d}\nnum_attention_heads: 4\npadded_vocab_size: {vocab}\n\
             seq_length: {seq}\nmax_position_embeddings: {seq}\ndisable_bias_linear: true\n{flag}\n"
        );
        let file = file(Format::Yaml, &text);
        let entries = file.entries().expect("YAML");
        let config = Config::read(&entries, &file, &[]).map_err(|error| error.to_string())?;
        let request = ModelRequest { config: Some(&config), ..ModelRequest::default() };
        Model::read(&entries, &file, &request).map(|model| model.spec.parameters()).map_err(|error| error.to_string())
    };
    let usual = parameters("").expect("a model");
    for (flag, more) in [
        ("swiglu: true\nffn_hidden_size: 256", layers * d * d_ff),
        ("untie-embeddings-and-output-weights: true", vocab * d),
        ("add-qkv-bias: true", layers * 3 * d),
    ] {
        assert_eq!(parameters(flag), Ok(usual + more), "{flag}");
    }
    assert_eq!(parameters("use_rotary_position_embeddings: true"), Ok(usual - seq * d));
    // `core_transformer_config_from_args` takes the groups only with grouped queries, whose default is one.
    for (flag, groups) in [
        ("num-query-groups: 2", 4),
        ("group-query-attention: false\nnum-query-groups: 2", 4),
        ("group-query-attention: true\nnum-query-groups: 2", 2),
        ("group-query-attention: true", 1),
    ] {
        assert_eq!(parameters(flag), Ok(usual - layers * 2 * d * (d / 4) * (4 - groups)), "{flag}");
    }
    // Padded to a multiple of 128, as `vocab_size_with_padding` does, unless a key gives another.
    let of_words = |words: &str| {
        let text = "tensor_model_parallel_size: 1\nmicro_batch_size: 1\nglobal_batch_size: 8\nnum_layers: 2\nhidden_size: 64\n\
                    num_attention_heads: 4\nseq_length: 128\nmax_position_embeddings: 128\n";
        let file = file(Format::Yaml, &format!("{text}{words}\n"));
        let entries = file.entries().expect("YAML");
        let config = Config::read(&entries, &file, &[]).expect("a config");
        let request = ModelRequest { config: Some(&config), ..ModelRequest::default() };
        Model::read(&entries, &file, &request).expect("a model").spec.parameters()
    };
    let padded = of_words("padded_vocab_size: 32128");
    assert_eq!(of_words("vocab_size: 32003"), padded);
    assert_eq!(of_words("vocab_size: 32003\nmake_vocab_size_divisible_by: 64"), padded - 64 * d);
    // `validate_args`: int(4 * 64 * 2 / 3 / 64) * 64 = 128.
    assert_eq!(parameters("swiglu: true"), Ok(usual - layers * d * (2 * d_ff - 3 * 128)));
    for flag in ["multi_latent_attention: true", "mtp_num_layers: 1", "hybrid_layer_pattern: M-M"] {
        assert!(parameters(flag).is_err_and(|words| words.contains("is not modelled")), "{flag}");
    }
}

/// Where a config.json leaves the length of sequences open, `--dim` gives it.
#[test]
fn well_known_models_have_the_published_parameters_by_every_name() {
    let listed = listed(include_str!("../models.toml"));
    assert!(Model::known_names().eq(listed.iter().map(|model| model.name.as_str())));
    for model in listed {
        for name in [model.name.as_str()].into_iter().chain(model.aliases.split(' ').filter(|alias| !alias.is_empty()))
        {
            let known = |dims: &[(String, String)]| {
                let read = Model::known(name, &ModelRequest { dims, ..ModelRequest::default() });
                read.expect(name).map(|model| model.spec.parameters()).map_err(|error| error.to_string())
            };
            let parameters = known(&[]).or_else(|error| {
                assert!(error.contains("--dim seq="), "{name}: {error}");
                known(&[("seq".to_owned(), "128".to_owned())])
            });
            assert_eq!(parameters.ok(), model.parameters, "{name}");
        }
    }
    let dims = [("image".to_owned(), "96".to_owned()), ("classes".to_owned(), "10".to_owned())];
    let small = Model::known("ResNet-18", &ModelRequest { dims: &dims, ..ModelRequest::default() });
    let small = small.expect("a name").expect("a model").spec;
    // A head of 512 channels and a bias for 10 in place of 1000 classes.
    assert_eq!(small.parameters(), 11_689_512 - 990 * 513);
    // A config of a training has its own images and classes, which the table does not know.
    let training = file(Format::Yaml, "batch_size: 8\nlr: 1\nmodel: resnet18\n");
    assert!(Model::read(&training.entries().expect("YAML"), &training, &ModelRequest::default()).is_err());
}

#[test]
fn the_config_of_axolotl_counts_in_place_of_the_model() {
    let parameters = |names: &str| {
        let file = file(Format::Yaml, &format!("{names}\nmicro_batch_size: 1\nsequence_len: 512\n"));
        let entries = file.entries().expect("YAML");
        let config = Config::read(&entries, &file, &[]).expect("a config");
        let request = ModelRequest { config: Some(&config), ..ModelRequest::default() };
        Model::read(&entries, &file, &request).expect("a model").spec.parameters()
    };
    for names in [
        "base_model: NousResearch/Meta-Llama-3-8B\nbase_model_config: NousResearch/Llama-2-7b-hf",
        "base_model_config: NousResearch/Llama-2-7b-hf\nbase_model: NousResearch/Meta-Llama-3-8B",
    ] {
        assert_eq!(parameters(names), 6_738_415_616, "{names}");
    }
}

#[test]
fn sequences_beyond_a_table_of_positions_are_refused() {
    for model in ["gpt2", "google-bert/bert-base-uncased"] {
        let text = format!("model_name_or_path: {model}\nper_device_train_batch_size: 1\nmax_seq_length: 2048\n");
        let file = file(Format::Yaml, &text);
        let entries = file.entries().expect("YAML");
        let config = Config::read(&entries, &file, &[]).expect("a config");
        let request = ModelRequest { config: Some(&config), ..ModelRequest::default() };
        let Err(error) = Model::read(&entries, &file, &request) else { panic!("not refused: {model}") };
        assert!(error.to_string().contains("2048"), "{model}: {error}");
    }
    let own = "{\"n_layer\": 2, \"n_embd\": 64, \"n_head\": 4, \"vocab_size\": 256, \"max_position_embeddings\": 512, \
               \"seq_length\": LENGTH, \"batch_size\": 8, \"lr\": 1}";
    assert!(of_text(Format::Json, &own.replace("LENGTH", "512"), None).is_ok());
    let words = of_text(Format::Json, &own.replace("LENGTH", "1024"), None).err().unwrap_or_default();
    assert!(words.contains("1024"), "{words}");
    let step = "global_train_batch_size: 8\ndevice_train_microbatch_size: 8\nmax_seq_len: 2048\n";
    let published = own.replace(", \"seq_length\": LENGTH, \"batch_size\": 8, \"lr\": 1", "");
    assert!(refused(&published, step).contains("2048"));
    let overrides = format!("{step}model: {{config_overrides: {{max_position_embeddings: 2048}}}}\n");
    let enlarged = read(&published, &overrides).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(seq(&enlarged), "2048");
}

#[test]
fn models_that_no_kind_describes_are_refused() {
    for (key, more) in [
        ("`model_type = mamba`", r#""model_type": "mamba""#),
        ("`n_shared_experts = 1`", r#""model_type": "llama", "n_shared_experts": 1"#),
        ("`kv_lora_rank = 512`", r#""model_type": "qwen3", "kv_lora_rank": 512"#),
        ("`vision_config`", r#""model_type": "llama", "vision_config": {"hidden_size": 9}"#),
        ("`moe = true`", r#""model_type": "llama", "moe": true"#),
        ("`num_experts_per_tok = 2`", r#""model_type": "llama", "num_experts_per_tok": 2"#),
        ("`mlp.type = moe`", r#""mlp": {"type": "moe"}"#),
        ("`ffn_type = kan`", r#""ffn_type": "kan""#),
        ("`attn_type = linear`", r#""attn_type": "linear""#),
        ("`decoder_sparse_step = 2`", r#""model_type": "qwen3_moe", "decoder_sparse_step": 2"#),
    ] {
        let config = format!(
            "{{\"transformers_version\": \"4\", \"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \
             \"vocab_size\": 99, \"max_position_embeddings\": 64, {more}}}"
        );
        let words = refused(&config, "batch_size: 8\nlr: 1\n");
        assert!(words.starts_with(&format!("{key} is not modelled")), "{key}: {words}");
    }
}

#[test]
fn weights_of_another_model_are_refused_by_its_name_only() {
    let own = "model: {n_layer: 6, n_embd: 384, n_head: 6, vocab_size: 50257, block_size: 256}\nbatch_size: 8\nlr: 1\n";
    for key in ["pretrained: gpt2", "checkpoint: openai-community/gpt2"] {
        let words = of_text(Format::Yaml, &format!("{own}{key}\n"), None).err().unwrap_or_default();
        assert!(words.contains("beside the dimensions of another model"), "{key}: {words}");
    }
    for key in [
        "tokenizer: {pretrained: gpt2}",
        "data: {tokenizer: {from_pretrained: gpt2}}",
        "checkpoint: out/gpt2",
        "checkpoint: ./gpt2",
        "checkpoint: /models/gpt2",
        "load_from: runs/openai-community/gpt2",
    ] {
        let read = of_text(Format::Yaml, &format!("{own}{key}\n"), None);
        assert!(read.is_ok(), "{key}: {:?}", read.err());
    }
}

#[test]
fn sequences_have_the_length_of_the_training() {
    for (training, expected) in [
        ("per_device_train_batch_size: 1\nmax_seq_length: 2048\n", "2048"),
        ("base_model: x\nmicro_batch_size: 1\nsequence_len: 4096\n", "4096"),
        ("model_name_or_path: x\nfinetuning_type: full\ncutoff_len: 1024\nper_device_train_batch_size: 1\n", "1024"),
        ("per_device_train_batch_size: 1\nmax_seq_length: 262144\n", "262144"),
        ("batch_size: 1\nlr: 1\nmax_length: 512\ntask_specific_params: {a: {max_length: 9}}\n", "512"),
    ] {
        let model = read(LLAMA, training).unwrap_or_else(|error| panic!("{training}: {error}"));
        assert_eq!(seq(&model), expected, "{training}");
    }
    let words = refused(LLAMA, "per_device_train_batch_size: 1\n");
    assert!(words.contains("lacks dimensions") && words.contains("--dim seq=…"), "{words}");
    let words = refused(LLAMA, "batch_size: 1\nlr: 1\nmax_seq_length: 512\na: {seq_len: 256}\n");
    assert!(words.contains("`a.seq_len` and another key both look like the training's seq"), "{words}");
}

#[test]
fn adapters_and_packed_weights_are_read() {
    use Matrix::{Down, Gate, Key, Output, Query, Up, Value};
    let every = vec![Down, Gate, Key, Output, Query, Up, Value];
    let axolotl = "base_model: x\nmicro_batch_size: 1\nsequence_len: 512\n";
    for (training, rank, targets, weights) in [
        (format!("{axolotl}adapter: lora\nlora_r: 16\nlora_target_linear: true\n"), Some(16), every.clone(), WeightFormat::Full),
        (
            format!("{axolotl}adapter: qlora\nlora_r: 32\nload_in_4bit: true\nload_in_8bit: false\nlora_target_modules: [q_proj, v_proj]\n"),
            Some(32),
            vec![Query, Value],
            WeightFormat::Q4,
        ),
        (format!("{axolotl}lora_r: 16\nadapter:\n"), None, vec![], WeightFormat::Full),
        (
            "model_name_or_path: x\nstage: sft\nfinetuning_type: lora\nlora_target: all\nquantization_bit: 4\nper_device_train_batch_size: 1\ncutoff_len: 512\n"
                .to_owned(),
            Some(8),
            every.clone(),
            WeightFormat::Q4,
        ),
        (
            "model_name_or_path: x\nstage: sft\nfinetuning_type: full\nper_device_train_batch_size: 1\ncutoff_len: 512\n".to_owned(),
            None,
            vec![],
            WeightFormat::Full,
        ),
        (
            "train: {global_batch_size: 8, micro_batch_size: 1, max_seq_length: 512}\nlora_r: 8\nlora_query: true\nlora_key: false\nlora_value: true\nlora_mlp: false\nquantize: bnb.nf4\n"
                .to_owned(),
            Some(8),
            vec![Query, Value],
            WeightFormat::Q4,
        ),
        // LitGPT has rank 8 in `finetune_lora`, which alone reads these keys.
        (
            "train: {global_batch_size: 8, micro_batch_size: 1, max_seq_length: 512}\nlora_alpha: 16\nlora_dropout: 0.05\n".to_owned(),
            Some(8),
            vec![Query, Value],
            WeightFormat::Full,
        ),
        // LitGPT adapts queries and values, unless the file turns them off.
        (
            "train: {global_batch_size: 8, micro_batch_size: 1, max_seq_length: 512}\nlora_r: 8\nlora_key: true\nlora_query: false\n"
                .to_owned(),
            Some(8),
            vec![Key, Value],
            WeightFormat::Full,
        ),
        (
            "model: {_component_: torchtune.models.llama3_2.qlora, lora_rank: 8, lora_attn_modules: [q_proj, v_proj, output_proj], apply_lora_to_mlp: true}\ntokenizer: {_component_: x, max_seq_len: 512}\nbatch_size: 2\n"
                .to_owned(),
            Some(8),
            vec![Down, Gate, Output, Query, Up, Value],
            WeightFormat::Q4,
        ),
        (
            "per_device_train_batch_size: 1\nmax_seq_length: 512\nuse_peft: true\nlora_r: 8\nload_in_8bit: true\n".to_owned(),
            Some(8),
            vec![],
            WeightFormat::Q8,
        ),
        // The default of PEFT's `LoraConfig`, and those of ms-swift and torchtune.
        (
            "per_device_train_batch_size: 1\nmax_seq_length: 512\nlora_config: {lora_alpha: 16}\n".to_owned(),
            Some(8),
            vec![],
            WeightFormat::Full,
        ),
        (
            "model: x\nper_device_train_batch_size: 1\nmax_length: 512\nlazy_tokenize: true\n".to_owned(),
            Some(8),
            every.clone(),
            WeightFormat::Full,
        ),
        (
            "model: {_component_: torchtune.models.llama3_2.lora, lora_attn_modules: [q_proj]}\ntokenizer: {_component_: x, max_seq_len: 512}\nbatch_size: 2\n"
                .to_owned(),
            Some(8),
            vec![Query],
            WeightFormat::Full,
        ),
        (
            "per_device_train_batch_size: 1\nmax_seq_length: 512\nuse_peft: false\nlora_r: 8\n".to_owned(),
            None,
            vec![],
            WeightFormat::Full,
        ),
    ] {
        let training_of = |model: Model| model.spec.training;
        let found = read(LLAMA, &training).map_or_else(|error| panic!("{training}: {error}"), training_of);
        assert_eq!((found.lora_rank, &found.lora_targets, found.frozen_weights), (rank, &targets, weights), "{training}");
    }
    // 7 billion parameters with adapters fit where all of them do not.
    let trained = |training: &str| read(LLAMA, training).expect("a model").spec.workload().parameters.trained();
    let lora = trained(&format!("{axolotl}adapter: lora\nlora_r: 16\nlora_target_linear: true\n"));
    assert_eq!(lora, 11_272_192, "the adapters of rank 16 of Llama 3.2 1B");
    let words = refused(LLAMA, &format!("{axolotl}adapter: lora\n"));
    assert!(words.contains("`adapter`: the rank of the adapters is missing"), "{words}");
    // ms-swift: a rank that is left over.
    let full = "per_device_train_batch_size: 1\nmax_seq_length: 64\ntuner_type: full\nlora_rank: 8\n";
    assert_eq!(trained(full), 1_235_814_400);
    let words = refused(LLAMA, "model_name_or_path: x\nfinetuning_type: freeze\nper_device_train_batch_size: 1\n");
    assert!(words.contains("`finetuning_type`: `freeze` is not modelled"), "{words}");
    let words = refused(LLAMA, &format!("{axolotl}load_in_4bit: true\n"));
    assert!(words.contains("frozen_weights needs frozen parameters"), "{words}");
}

/// transformers 5 and ms-swift load the format of `config.json`.
#[test]
fn weights_that_are_saved_in_fp32_need_a_key_of_the_training() {
    let (saved, training) = (LLAMA.replace("bfloat16", "float32"), "per_device_train_batch_size: 1\nmax_length: 64\n");
    let words = refused(&saved, training);
    assert!(words.contains("`torch_dtype`: the training loads weights in fp32"), "{words}");
    for (model, key) in [
        (saved.as_str(), "torch_dtype: float32\n"),
        (saved.as_str(), "packing: true\nmodel_name_or_path: x\n"),
        (LLAMA, ""),
    ] {
        read(model, &format!("{training}{key}")).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
}

/// The heads of transformers' examples of classification and of answers have no logits over the vocabulary.
#[test]
fn heads_of_classification_follow_from_the_training() {
    let training = "per_device_train_batch_size: 8\nmax_seq_length: 64\nnum_train_epochs: 1\n";
    let classes = |key: &str| {
        let model = read(LLAMA, &format!("{training}{key}\n")).unwrap_or_else(|error| panic!("{key}: {error}"));
        model.dims.iter().find(|dim| dim.name == "classes").map(|dim| dim.value.clone())
    };
    for (key, expected) in [
        ("num_labels: 5", Some("5")),
        ("task_name: mnli", Some("3")),
        ("task_name: SST2", Some("2")),
        ("task_name: mine", None),
        ("doc_stride: 128", Some("2")),
        ("n_best_size: 20", Some("2")),
        ("train_language: en", Some("3")),
        ("label_column_name: tags\nnum_labels: 9", Some("9")),
        ("doc_stride: null", None),
    ] {
        assert_eq!(classes(key).as_deref(), expected, "{key}");
    }
    let named = of_text(
        Format::Yaml,
        &format!("model_name_or_path: meta-llama/Llama-2-7b-hf\n{training}num_labels: 2\n"),
        None,
    );
    // 6,738,415,616 with a head of 4096 x 32000.
    assert_eq!(named.map(|model| model.spec.parameters()), Ok(6_738_415_616 - 4096 * 32_000 + 4096 * 2 + 2));
}

#[test]
fn hand_written_lstm_configs_are_read_from_one_file() {
    let text = "{\"batch_size\": 32, \"hidden_size\": 64, \"num_layers\": 2, \"sequence_length\": {\"min\": 7, \"max\": 30}, \
                \"input_size\": 8, \"use_mixed_precision\": false, \"compile_model\": true}";
    let model = read(text, "batch_size: 32\nlr: 1\n").expect("a model");
    let expected = Recurrent { inputs: 8, hidden: 64, layers: 2, seq: 30, outputs: 1, ..Recurrent::default() };
    assert_eq!(model.spec.model, expected.into());
}

#[test]
fn a_dimension_that_is_given_twice_is_refused() {
    let file = file(Format::Yaml, "batch_size: 8\nlr: 1\n");
    let read = |dims: &[(&str, &str)]| {
        let dims: Vec<_> = dims.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request = ModelRequest { kind: Some("mlp"), dims: &dims, ..ModelRequest::default() };
        Model::read(&file.entries().expect("entries"), &file, &request).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(read(&[("widths", "[8, 8]")]), Ok(()));
    let twice = read(&[("widths", "[8, 8]"), ("widths", "[8, 9]")]);
    assert_eq!(twice, Err("--dim widths is given twice: keep one of them".to_owned()));
    let more = read(&[("widths", "[8, 8]\nx = 1")]);
    assert!(more.is_err_and(|words| words.starts_with("--dim widths=")));
}

#[test]
fn kinds_are_identified_by_evidence_or_requested() {
    let kind = |text: &str, requested: Option<&str>| {
        let file = file(Format::Yaml, &format!("batch_size: 8\n{text}\n"));
        model(&file, requested, None).map(|model| model.spec.model.kind().name)
    };
    for (model, expected) in [
        ("model: lstm\nhidden_size: 64\nnum_layers: 2\nseq_len: 30", "recurrent"),
        ("hidden_size: 64\nnum_layers: 2\nseq_len: 30\nnum_heads: 4\nvocab_size: 99", "transformer"),
        ("input_size: 8\nhidden_size: 64\nnum_layers: 2\nwindow: 30", "recurrent"),
        ("arch: UNet\npatch_size: [64, 64]\nfeatures: [8, 16]", "unet"),
        ("net: {class_path: a.b.ResNet18, channels: 32, blocks: 4}\nimage_size: 64", "convnet"),
        ("hidden_sizes: [64, 64]\ninput_dim: 8\noutput_dim: 2", "mlp"),
    ] {
        assert_eq!(kind(model, None).unwrap_or_else(|error| panic!("{model}: {error}")), expected);
    }
    let words = |model: &str| kind(model, None).expect_err(model).to_string();
    let open = "hidden_size: 64\nnum_layers: 2\nseq_len: 30\nvocab_size: 99";
    let ambiguous = words(open);
    assert!(
        ambiguous.contains("it could be transformer (num_layers, hidden_size, vocab_size), or recurrent (hidden_size, num_layers, vocab_size)"),
        "{ambiguous}"
    );
    assert_eq!(kind(open, Some("gru")).expect("a kind"), "recurrent");
    let missing = words("n_head: 4\nn_layer: 2");
    assert!(
        missing.contains("d_model: width of the residual stream (looked for d_model")
            && missing.contains("--dim vocab=…"),
        "{missing}"
    );
    let volume = words("model: unet\npatch_size: [64, 64, 64]\nfeatures: [8, 16]");
    assert!(
        volume.starts_with("config:3:13: `patch_size`: models over volumes cannot be described by dimensions"),
        "{volume}"
    );
    let odd = words("model: unet\npatch_size: 100\nfeatures: [8, 16, 32, 64]");
    assert!(odd.starts_with("config:4:11: widths: 4 levels halve the image 3 times, and 100 only 2 times"), "{odd}");
}

#[test]
fn model_names_imply_layouts_unless_a_key_differs() {
    let parameters = |text: &str| {
        let file = file(Format::Yaml, &format!("batch_size: 1\n{text}"));
        model(&file, None, None).expect("a model").spec.workload().parameters.trained()
    };
    // As published: Llama 3.2 1B, GPT-2.
    let llama = "model_type: llama\nnum_hidden_layers: 16\nhidden_size: 2048\nnum_attention_heads: 32\n\
                 num_key_value_heads: 8\nintermediate_size: 8192\nvocab_size: 128256\nmax_position_embeddings: 8192\n\
                 tie_word_embeddings: true\n";
    assert_eq!(parameters(llama), 1_235_814_400);
    let gpt2 =
        "architectures: [GPT2LMHeadModel]\nn_layer: 12\nn_embd: 768\nn_head: 12\nn_ctx: 1024\nvocab_size: 50257\n";
    assert_eq!(parameters(gpt2), 124_439_808);
}

#[test]
fn mixtures_of_experts_have_their_size_under_all_names() {
    let of = |more: &str| {
        let text = format!(
            "model: {{num_layers: 6, hidden_size: 512, num_attention_heads: 8, seq_length: 256, vocab_size: 8192, \
             micro_batch_size: 4, global_batch_size: 64, {more}}}\ntrainer: {{devices: auto, num_nodes: 4}}\n"
        );
        let file = file(Format::Yaml, &text);
        let config = Config::read(&file.entries().expect("YAML"), &file, &[]).expect("a config");
        assert_eq!((config.ranks, config.open_ranks()), (Some(4), Some("trainer.devices")));
        model(&file, None, None).expect("a model").spec.workload().parameters.trained()
    };
    let dense = of("num_moe_experts: null, moe_router_topk: 2");
    let sparse = of("num_experts: 8, moe_top_k: 2");
    assert!(sparse > 4 * dense, "{sparse} {dense}");
    assert_eq!(of("num_moe_experts: 8, moe_router_topk: 2"), sparse);
    assert_eq!(of("experts: 8, moe_router_topk: 2"), sparse);
}

/// The model of a text, with `--model` where a kind is given.
fn of_text(format: Format, text: &str, kind: Option<&str>) -> Result<Model, String> {
    let file = file(format, text);
    let entries = file.entries().expect("a valid text");
    let config = Config::read(&entries, &file, &[]).ok();
    let request = ModelRequest { kind, config: config.as_ref(), ..ModelRequest::default() };
    Model::read(&entries, &file, &request).map_err(|error| error.to_string())
}

#[test]
fn models_of_other_programs_are_read_or_refused() {
    let nanotron = "tokens: {micro_batch_size: 3, batch_accumulation_per_replica: 2, sequence_length: 512}\n\
                    model: {model_config: {hidden_size: 2048, intermediate_size: 8192, is_llama_config: true, \
                    num_attention_heads: 32, num_hidden_layers: 16, num_key_value_heads: 8, vocab_size: 128256, \
                    max_position_embeddings: 4096, rms_norm_eps: 1.0e-05, tie_word_embeddings: true}}\n";
    let parameters = |text: &str, format| {
        of_text(format, text, None).unwrap_or_else(|error| panic!("{text}: {error}")).spec.parameters()
    };
    assert_eq!(parameters(nanotron, Format::Yaml), 1_235_814_400, "as Llama 3.2 1B");
    // The ResNet-18 of CIFAR-10 without its stem: less a convolution from 3 to 64 channels, 61 inputs of the next, and a shortcut more.
    let res =
        "model: resnet\nimage_size: 32\nin_channels: 3\nnum_classes: 10\nnum_blocks: [2, 2, 2, 2]\nbase_channels: 64\n";
    assert_eq!(parameters(res, Format::Yaml), 11_173_962 - (27 * 64 + 128) - 61 * 9 * 64 + (3 * 64 + 128));
    let deep = of_text(Format::Yaml, &format!("{res}block: bottleneck\n"), None).err().unwrap_or_default();
    assert!(deep.starts_with("`block = bottleneck` is not modelled"), "{deep}");
    // nanotron's defaults: 11008 columns, and no biases of queries, keys and values.
    let wide = 1_235_814_400 + 16 * 3 * 2048 * (11008 - 8192);
    let default = nanotron.replace("intermediate_size: 8192, ", "");
    let qwen = default.replace("is_llama", "is_qwen2");
    let biased = qwen.replace("vocab_size", "attention_bias: true, vocab_size");
    for (text, expected) in [(&default, wide), (&qwen, wide), (&biased, wide + 16 * (2048 + 2 * 512))] {
        assert_eq!(parameters(text, Format::Yaml), expected, "{text}");
    }
    // nanoGPT's defaults are `bias = False` and `dropout = 0.0`.
    let nano = "batch_size: 2\nblock_size: 64\nn_layer: 2\nn_head: 4\nn_embd: 64\nvocab_size: 256\ndecay_lr: true\neval_iters: 8\n";
    let read = |text: &str| of_text(Format::Yaml, text, None).expect("a model").spec;
    assert_eq!(read(nano), read(&format!("{nano}bias: false\ndropout: 0.0\n")));
    let mistral = "{\"dim\": 4096, \"n_layers\": 32, \"head_dim\": 128, \"hidden_dim\": 14336, \"n_heads\": 32, \"n_kv_heads\": 8, \
                   \"norm_eps\": 1e-05, \"vocab_size\": 32000, \"seq_len\": 512}";
    assert_eq!(parameters(mistral, Format::Json), 7_241_732_096, "as Mistral 7B");
    let moe = mistral.replace("{\"dim", "{\"moe\": {\"num_experts\": 8, \"num_experts_per_tok\": 2}, \"dim");
    let dims = "d_model: 64\nn_heads: 4\nn_layers: 2\nvocab_size: 256\nseq_len: 64\n";
    let neox = "pipe_parallel_size: 1\nmodel_parallel_size: 1\ntrain_micro_batch_size_per_gpu: 4\nnum_layers: 12\nhidden_size: 768\n\
                num_attention_heads: 12\nseq_length: 2048\nmax_position_embeddings: 2048\npadded_vocab_size: 50304\n";
    let pythia =
        format!("{neox}pos_emb: rotary\nno_weight_tying: true\nattention_config: [[[flash], 12]]\nnorm: layernorm\n");
    assert_eq!(parameters(&pythia, Format::Yaml), 162_322_944, "as Pythia 160M");
    let nemo = "trainer: {devices: 1, precision: bf16}\nmodel: {micro_batch_size: 4, global_batch_size: 8, tensor_model_parallel_size: 1, \
                encoder_seq_length: 4096, num_layers: 32, hidden_size: 4096, ffn_hidden_size: 11008, num_attention_heads: 32, num_query_groups: 32, \
                normalization: rmsnorm, bias: false, activation: fast-swiglu, position_embedding_type: rope, vocab_size: 32000, \
                share_embeddings_and_output_weights: false, hidden_dropout: 0.0, transformer_block_type: pre_ln, \
                tokenizer: {type: EleutherAI/gpt-neox-20b}}\n\
                exp_manager: {checkpoint_callback_params: {model_parallel_size: '${multiply:1,1}'}}\n";
    assert_eq!(parameters(nemo, Format::Yaml), 6_738_415_616, "as Llama 2 7B");
    let olmo = "device_train_microbatch_size: 4\nglobal_train_batch_size: 64\nmodel: {d_model: 2048, n_heads: 16, n_layers: 16, \
                mlp_ratio: 8, activation_type: swiglu, rope: true, weight_tying: true, include_bias: false, layer_norm_type: default, \
                layer_norm_with_affine: false, max_sequence_length: 2048, vocab_size: 50280, embedding_size: 50304}\n";
    assert_eq!(parameters(olmo, Format::Yaml), 1_176_764_416, "as OLMo 1B");
    let litgpt = |model: &str| {
        let text = format!(
            "model_config: {{name: my-llama, {model}}}\ntrain: {{micro_batch_size: 4, global_batch_size: 8}}\ntokenizer_dir: x\n"
        );
        parameters(&text, Format::Yaml)
    };
    let llama = "block_size: 2048, n_layer: 22, n_head: 32, n_embd: 2048, n_query_groups: 4, padded_vocab_size: 32000, bias: false, \
                 norm_class_name: RMSNorm, mlp_class_name: LLaMAMLP, intermediate_size: 5632, norm_eps: 1e-5";
    assert_eq!(litgpt(llama), 1_100_048_384, "as TinyLlama");
    assert_eq!(litgpt(&format!("{llama}, attn_bias: true")), 1_100_048_384 + 22 * 2560);
    // `Config` of LitGPT: an untied head without a bias, whose rows are a multiple of 512, and rotary positions.
    assert_eq!(litgpt("n_layer: 12, n_embd: 768, n_head: 12, block_size: 1024, vocab_size: 50254"), 162_912_768);
    // OLMo's defaults: SwiGLU, whose halves share 4 x 2048.
    let default = olmo.replace("activation_type: swiglu, ", "");
    assert_eq!(parameters(&default, Format::Yaml), 1_176_764_416);
    let narrow = 1_176_764_416 - 16 * 3 * 2048 * 4096;
    assert_eq!(parameters(&default.replace("mlp_ratio: 8", "mlp_ratio: 4"), Format::Yaml), narrow);
    assert_eq!(parameters(&default.replace("mlp_ratio: 8, ", ""), Format::Yaml), narrow);
    for (format, text, words) in [
        (Format::Json, moe.as_str(), "`moe.num_experts = 8` is not modelled"),
        (Format::Yaml, &format!("pos_emb: rpe\n{neox}"), "`pos_emb = rpe` is not modelled"),
        (
            Format::Yaml,
            &format!("attention_config: [[[flash, gmlp], 2]]\n{neox}"),
            "`attention_config` is not modelled",
        ),
        (Format::Yaml, &format!("activation: swiglu\n{neox}"), "`activation = swiglu` is not modelled"),
        (
            Format::Yaml,
            &nemo.replace("bias: false", "bias: false, retro: {encoder: 2}"),
            "`model.retro` is not modelled",
        ),
        (
            Format::Yaml,
            &olmo.replace("rope: true", "rope: true, block_type: moe"),
            "`model.block_type = moe` is not modelled",
        ),
        (
            Format::Yaml,
            &nemo.replace("pre_ln", "normformer"),
            "`model.transformer_block_type = normformer` is not modelled",
        ),
        (Format::Yaml, &format!("attention_config: [[[gmlp], 2]]\n{dims}"), "`attention_config` is not modelled"),
        (
            Format::Yaml,
            &format!("modality_adapter: {{config: {{{}}}}}\n", dims.trim().replace('\n', ", ")),
            "the config does not identify",
        ),
    ] {
        let found = of_text(format, text, None).err().unwrap_or_default();
        assert!(found.starts_with(words), "{text}: {found}");
    }
    let other = "CNN: {num_blocks: 2}\nnhead: 4\nd_model: 64\nvocab_size: 99\nseq_len: 64\n";
    let found = of_text(Format::Yaml, other, Some("transformer")).err().unwrap_or_default();
    assert!(found.contains("lacks dimensions") && found.contains("layers: "), "{found}");
    let window = format!("model: {{preprocessor: {{window: hann, window_size: 0.025}}}}\n{dims}");
    assert_eq!(parameters(&window, Format::Yaml), parameters(dims, Format::Yaml));
}

#[test]
fn mpt_has_no_dropout_and_flash_attention() {
    let text = "model: {name: mpt_causal_lm, d_model: 768, n_heads: 12, n_layers: 12, vocab_size: 50368, attn_config: {attn_impl: IMPL}}\n\
                max_seq_len: 2048\nglobal_train_batch_size: 8\ndevice_train_microbatch_size: 8\nprecision: amp_bf16\n";
    let memory = |kernel: &str| {
        let (tuned, _) = tuned(Format::Yaml, &text.replace("IMPL", kernel), "h200", &[]).expect("a plan");
        tuned.before.memory_bytes.expect("an estimate")
    };
    assert!(memory("flash") < memory("torch"));
    let dims = of_text(Format::Yaml, text, None).unwrap_or_else(|error| panic!("{error}")).dims;
    assert!(dims.iter().any(|dim| dim.name == "dropout" && dim.value == "false"), "{dims:?}");
}

#[test]
fn models_of_speech_are_no_transformers() {
    // Keys of jaywalnut310/vits, configs/ljs_base.json, and of yl4579/StyleTTS2, Configs/config.yml.
    let vits = "train: {batch_size: 64, fp16_run: true, learning_rate: 0.0002, segment_size: 8192}\n\
                model: {inter_channels: 192, hidden_channels: 192, filter_channels: 768, n_heads: 2, n_layers: 6, resblock: '1', \
                upsample_rates: [8, 8, 2, 2], n_layers_q: 3, use_spectral_norm: false}\n";
    let style = "batch_size: 16\nepochs_1st: 200\nmodel_params: {dim_in: 64, hidden_dim: 512, n_layer: 3, n_token: 178, style_dim: 128, \
                 diffusion: {transformer: {num_layers: 3, num_heads: 8, head_features: 64}}}\n";
    for text in [vits, style] {
        let file = file(Format::Yaml, text);
        let entries = file.entries().expect("YAML");
        let refused = model(&file, None, None).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("is not modelled") && !refused.contains("d_model"), "{refused}");
        assert!(Config::read(&entries, &file, &[]).is_err_and(|error| error.to_string().contains("is not known")));
    }
}
