//! Keys of ecosystems that a hand-written config means otherwise, or that no plan covers.

use super::cases::yaml;
use super::{MODEL, file, refused, tuned};
use crate::{Config, ConfigText, Format, Model, ModelRequest, Role, Step};

/// The error for the text behind the model's dimensions.
fn error(text: &str) -> String {
    refused(Format::Yaml, &format!("{MODEL}{text}"), &[])
}

#[test]
fn settings_that_share_a_value_can_both_change() {
    let text = "batch_size: &bs 8\nlr: 1\ngradient_accumulation_steps: 4\neval_batch_size: *bs\nbuffer: *bs\n";
    let tuned = yaml(text, "h200", &[]);
    assert_eq!(tuned, "batch_size: &bs 32\nlr: 1\ngradient_accumulation_steps: 1\neval_batch_size: 64\nbuffer: 8\n");
    // The other setting needs a list.
    let words = error("batch_size: 8\nlr: 1\nupdate_freq: &u [4]\nother: *u\n");
    assert!(words.starts_with("`update_freq` is in a table with a YAML anchor"), "{words}");
}

#[test]
fn values_that_stay_are_not_rewritten() {
    let text = "batch_size: 8\nlr: 1\nbf16: auto\nfp16:\n";
    assert_eq!(yaml(text, "h200", &["--precision", "f32"]), text);
}

#[cfg(unix)]
#[test]
fn only_regular_files_of_a_bounded_size_are_read() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let read = |name: &str| ConfigText::read(&folder.join(name)).expect_err("not read").to_string();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.yaml")).expect("a link");
    let socket = std::os::unix::net::UnixListener::bind(folder.join("socket.yaml")).expect("a socket");
    let large = std::fs::File::create(folder.join("large.yaml")).expect("a file");
    large.set_len((8 << 20) + 1).expect("a size");
    let found = ["zero.yaml", "socket.yaml", "large.yaml"].map(read);
    drop(socket);
    assert!(
        found[0].ends_with("it is not a regular file") && found[1].ends_with("it is not a regular file"),
        "{found:?}"
    );
    assert!(found[2].contains("it is larger than 8 MiB, the most that is read"), "{found:?}");
}

#[test]
fn numbers_that_readers_disagree_about_are_refused() {
    assert_eq!(
        error("batch_size: 010\nlr: 1\n"),
        "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found 010, which is octal in YAML 1.1"
    );
    let text = "config:2:19: `batch_size`: expected a whole number from 1 to 2^30, found a text";
    assert_eq!(error("batch_size: !!str 8\nlr: 1\n"), text);
    assert!(yaml("batch_size: !!int \"8\"\nlr: 1\n", "h200", &[]).starts_with("batch_size: !!int "));
}

/// The step of the text behind the model's dimensions.
fn step(text: &str, options: &[&str]) -> Step {
    tuned(Format::Yaml, &format!("{MODEL}{text}"), "h200", options).unwrap_or_else(|error| panic!("{text}: {error}")).1
}

#[test]
fn steps_have_the_samples_that_each_ecosystem_counts() {
    let nanotron = "tokens: {micro_batch_size: 3, batch_accumulation_per_replica: 2}\nparallelism: {dp: 4, tp: 1, pp: 1}\n\
                    model: {dtype: bfloat16}\n";
    let axolotl = "base_model: x\nsequence_len: 512\nmicro_batch_size: 2\nbatch_size: 16\nbf16: true\n";
    let slowfast = "TRAIN: {BATCH_SIZE: 64}\nSOLVER: {BASE_LR: 0.1}\nNUM_GPUS: 8\n";
    let template = "n_gpu: 2\ndata_loader: {args: {batch_size: 128, validation_split: 0.1}}\nlr: 1\n";
    let wenet =
        "encoder_conf: null\ndataset_conf: {batch_conf: {batch_type: static, batch_size: 24}}\naccum_grad: 4\nlr: 1\n";
    let neox = "train_micro_batch_size_per_gpu: 4\ngradient_accumulation_steps: 8\npipe_parallel_size: 1\nmodel_parallel_size: 1\n";
    for (text, options, expected) in [
        (nanotron, &[][..], [3, 2, 4, 24]),
        (axolotl, &[], [2, 8, 1, 16]),
        (axolotl, &["--world-size", "2"], [2, 8, 2, 32]),
        (slowfast, &[], [8, 1, 8, 64]),
        (template, &[], [64, 1, 2, 128]),
        (wenet, &[], [24, 4, 1, 96]),
        (neox, &[], [4, 8, 1, 32]),
        ("model_class: llm\ncutoff_len: 512\nmicro_batch_size: 1\nglobal_batch_size: 8\n", &[], [1, 8, 1, 8]),
        ("micro_batch_size_per_gpu: 2\nsteps_per_print: 1\npipeline_stages: 1\n", &[], [2, 1, 1, 2]),
    ] {
        let step = step(text, options);
        assert_eq!([step.batch, step.accumulation, step.ranks, step.global], expected, "{text}");
    }
    let larger = yaml(axolotl, "h200", &["--world-size", "2"]);
    assert!(larger.contains("\nbatch_size: 16\n") && !larger.contains("accumulation"), "{larger}");
}

#[test]
fn methods_that_are_not_modelled_are_refused_by_name() {
    let axolotl = "base_model: x\nsequence_len: 512\nmicro_batch_size: 2\nbf16: true\n";
    let factory = "model_name_or_path: x\nfinetuning_type: full\nper_device_train_batch_size: 2\n";
    let torchtune = "model: {_component_: x.llama3}\noptimizer: {_component_: torch.optim.AdamW}\nbatch_size: 8\n";
    let nanotron = "tokens: {micro_batch_size: 3, batch_accumulation_per_replica: 2}\n";
    let slowfast = "TRAIN: {BATCH_SIZE: 64}\nSOLVER: {BASE_LR: 0.1}\nNUM_GPUS: 8\n";
    for (config, key, value) in [
        (torchtune, "ppo_batch_size", "64"),
        (nanotron, "parallelism.tp", "2"),
        (axolotl, "dp_shard_size", "4"),
        (axolotl, "expert_parallel_size", "2"),
        (axolotl, "tensor_parallel_size", "2"),
        (axolotl, "context_parallel_size", "2"),
        (axolotl, "relora", "true"),
        (axolotl, "lisa_n_layers", "4"),
        (axolotl, "unfrozen_parameters", "[a.b]"),
        (axolotl, "rl", "dpo"),
        (axolotl, "reward_model", "true"),
        (factory, "use_galore", "true"),
        (factory, "use_badam", "true"),
        (factory, "use_apollo", "true"),
        (slowfast, "multigrid.short_cycle", "true"),
        (slowfast, "num_shards", "2"),
        ("batch_size: 8\nlr: 1\n", "gradual_training", "[[0, 7, 64], [1, 5, 32]]"),
        ("batch_size: 8\nlr: 1\n", "dynamic_batching", "true"),
        ("batch_size: 8\nlr: 1\nways: 4\n", "tensor_parallel_size", "${ways}"),
        ("batch_size: 8\nlr: 1\n", "parallel.tp_size", "4"),
        ("per_device_train_batch_size: 8\n", "rpo_alpha", "0.5"),
        ("per_device_train_batch_size: 8\n", "center_rewards_coefficient", "0.01"),
        ("optimizer: {_component_: x.AdamW}\nbatch_size: 8\n", "loss._component_", "torchtune.rlhf.loss.DPOLoss"),
        ("micro_batch_size_per_gpu: 2\nsteps_per_print: 1\n", "pipeline_stages", "2"),
        ("batch_size: 8\nlr: 1\n", "rampup_batch_size", "[8, 8, 100]"),
        ("train_micro_batch_size_per_gpu: 4\nno_weight_tying: true\npos_emb: rotary\n", "pipe_parallel_size", "4"),
    ] {
        let line = match key.split_once('.') {
            Some((table, key)) => format!("{table}: {{{key}: {value}}}\n"),
            None => format!("{key}: {value}\n"),
        };
        let words = error(&format!("{config}{line}"));
        assert!(words.contains(&format!("`{key}`: `")) && words.contains("is not modelled"), "{key}: {words}");
    }
}

#[test]
fn offloaded_activations_keep_checkpointing_and_a_fused_step_is_whole() {
    let text = "model: {_component_: x.llama3}\noptimizer: {_component_: torch.optim.AdamW}\noptimizer_in_bwd: True\n\
                batch_size: 64\ngradient_accumulation_steps: 1\ndtype: bf16\nenable_activation_checkpointing: True\n\
                enable_activation_offloading: True\n";
    assert_eq!(yaml(text, "h200", &[]), text);
}

#[test]
fn open_switches_stay_open_or_get_the_words_of_the_ecosystem() {
    let nemo =
        "micro_batch_size: 8\nglobal_batch_size: 8\ntrainer: {devices: 1}\nactivations_checkpoint_granularity: WORD\n";
    for (word, becomes) in [("null", "null"), ("full", "null"), ("'full'", "null"), ("selective", "selective")] {
        let tuned = yaml(&nemo.replace("WORD", word), "h200", &[]);
        assert_eq!(tuned, nemo.replace("WORD", becomes), "{word}");
    }
    let axolotl = "base_model: x\nsequence_len: 512\nmicro_batch_size: 8\nbf16: true\ntf32: null\nfp16:\ngradient_checkpointing:\n";
    assert_eq!(yaml(axolotl, "h200", &[]), axolotl);
}

/// The model of a text, with `--model` where a kind is given; its error starts with this message.
fn model(format: Format, text: &str, kind: Option<&str>) -> Result<Model, String> {
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
        model(format, text, None).unwrap_or_else(|error| panic!("{text}: {error}")).spec.parameters()
    };
    assert_eq!(parameters(nanotron, Format::Yaml), 1_235_814_400, "as Llama 3.2 1B");
    let mistral = "{\"dim\": 4096, \"n_layers\": 32, \"head_dim\": 128, \"hidden_dim\": 14336, \"n_heads\": 32, \"n_kv_heads\": 8, \
                   \"norm_eps\": 1e-05, \"vocab_size\": 32000, \"seq_len\": 512}";
    assert_eq!(parameters(mistral, Format::Json), 7_241_732_096, "as Mistral 7B");
    let moe = mistral.replace("{\"dim", "{\"moe\": {\"num_experts\": 8, \"num_experts_per_tok\": 2}, \"dim");
    let dims = "d_model: 64\nn_heads: 4\nn_layers: 2\nvocab_size: 256\nseq_len: 64\n";
    for (format, text, words) in [
        (Format::Json, moe.as_str(), "`moe.num_experts = 8` is not modelled"),
        (Format::Yaml, &format!("pos_emb: rotary\n{dims}"), "`pos_emb = rotary` is not modelled"),
        (Format::Yaml, &format!("attention_config: [[[gmlp], 2]]\n{dims}"), "`attention_config` is not modelled"),
        (Format::Yaml, &format!("no_weight_tying: true\n{dims}"), "`no_weight_tying = true` is not modelled"),
        (Format::Yaml, &format!("layer_norm_type: rms\n{dims}"), "`layer_norm_type = rms` is not modelled"),
        (
            Format::Yaml,
            &format!("modality_adapter: {{config: {{{}}}}}\n", dims.trim().replace('\n', ", ")),
            "the config does not identify",
        ),
    ] {
        let found = model(format, text, None).err().unwrap_or_default();
        assert!(found.starts_with(words), "{text}: {found}");
    }
    let other = "CNN: {num_blocks: 2}\nnhead: 4\nd_model: 64\nvocab_size: 99\nseq_len: 64\n";
    let found = model(Format::Yaml, other, Some("transformer")).err().unwrap_or_default();
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
        tuned.pytorch.expect("an estimate").before_bytes
    };
    assert!(memory("flash") < memory("torch"));
    let dims = model(Format::Yaml, text, None).unwrap_or_else(|error| panic!("{error}")).dims;
    assert!(dims.iter().any(|dim| dim.name == "dropout" && dim.value == "false"), "{dims:?}");
}

#[test]
fn optimizers_and_precisions_are_read_from_the_keys_of_each_program() {
    use gpu_tuned_core::workload::Optimizer::{Adam, Sgd};
    for (key, optimizer) in [
        ("optim: {name: sgd, lr: 0.1}", Sgd),
        ("optim_g: {type: Adam}", Adam),
        ("opt_class: !name:torch.optim.Adam\n  lr: 0.1", Adam),
        ("opt_class: !name:torch.optim.SGD", Sgd),
        ("optim: {_target_: torch.optim.Adam}", Adam),
        ("optim: {_target_: nemo.lightning.MegatronOptimizerModule, config: {optimizer: sgd}}", Sgd),
    ] {
        let file = file(Format::Yaml, &format!("batch_size: 8\nlr: 1\n{key}\n"));
        let config = Config::read(&file.entries().expect("valid YAML"), &file, &[]).expect(key);
        assert_eq!(config.optimizer, Some(optimizer), "{key}");
    }
    for rho in ["", "\n  rho: 0.95"] {
        let words = error(&format!("batch_size: 8\nlr: 1\nopt_class: !name:torch.optim.Adadelta{rho}\n"));
        assert!(words.contains("`torch.optim.Adadelta` is not modelled") && words.starts_with("config:4:"), "{words}");
    }
    // The section turns fp16 on.
    let section = format!("{MODEL}data: {{samples_per_gpu: 2, workers_per_gpu: 4}}\nfp16: {{loss_scale: 512}}\n");
    let words = tuned(Format::Yaml, &section, "gtx1080", &[]).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(words.starts_with("the config cannot express f32"), "{words}");
    let axolotl = "base_model: x\nsequence_len: 512\nmicro_batch_size: 8\nfp16:\nbf16: WORD\n";
    for word in ["true", "auto", "full"] {
        assert_eq!(yaml(&axolotl.replace("WORD", word), "gtx1080", &[]), axolotl.replace("WORD", "false"), "{word}");
    }
    for (key, becomes) in [
        ("dtype: bf16", "dtype: fp32"),
        ("precision: fp16", "precision: fp32"),
        ("mixed_precision: bf16", "mixed_precision: 'no'"),
    ] {
        let text = |key: &str| format!("batch_size: 8\nlr: 1\n{key}\n");
        assert_eq!(yaml(&text(key), "gtx1080", &[]), text(becomes));
    }
    for key in ["meta: {use_bfloat16: true}", "mixed_precision: {param_dtype: bf16, reduce_dtype: fp32}"] {
        let text = format!("batch_size: 8\nlr: 1\n{key}\n");
        assert_eq!(
            yaml(&text, "gtx1080", &[]),
            text.replace("true", "false").replace("param_dtype: bf16", "param_dtype: fp32")
        );
    }
    let offload =
        "train_micro_batch_size_per_gpu: 8\nzero_optimization: {stage: 2, offload_optimizer: {device: cpu}}\n";
    let file = file(Format::Yaml, offload);
    let config = Config::read(&file.entries().expect("valid YAML"), &file, &[]).expect("a config");
    let keys: Vec<_> = config.keys(Role::NoCounterpart).collect();
    assert_eq!(keys, ["zero_optimization.offload_optimizer.device"]);
}

#[test]
fn sections_beside_the_training_are_no_rivals() {
    let text = "batch_size: 8\nlr: 1\ndtype: bfloat16\nsave: {dtype: float16}\ntrain_logger: {precision: 2}\n\
                dataloader_opts_valid: {batch_size: 2}\nlighteval: {batch_size: 16}\n\
                autotuning: {arg_mappings: {batch_size: '--batch'}}\n";
    assert_eq!(yaml(text, "h200", &[]), text);
}

#[test]
fn a_missing_batch_is_explained() {
    let words = error("trainer: {max_epochs: 10, devices: 1, accelerator: cpu}\n");
    assert!(words.contains("in Lightning configs it is batch_size, train_batch_size"), "{words}");
    let words = error("accum_grad: 1\nngpu: 1\nbatch_type: sorted\n");
    assert!(words.contains("in ESPnet configs it is batch_size ("), "{words}");
    for key in ["dataset.max_tokens", "max_batch_length"] {
        let (table, name) = key.split_once('.').unwrap_or(("data", key));
        let words = error(&format!("lr: 1\n{table}:\n  {name}: 3584\n"));
        assert!(
            words.starts_with("config:4:3: `") && words.contains("counts the tokens or seconds of a batch"),
            "{words}"
        );
    }
    let config = "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64}";
    let params = "{\"dim\": 4096, \"n_layers\": 32, \"n_heads\": 32, \"vocab_size\": 32000}";
    for text in [config, params] {
        assert!(refused(Format::Json, text, &[]).contains("a model's config.json, which belongs to --model-config"));
    }
}

#[test]
fn an_open_micro_batch_has_no_memory_before() {
    let text = "device_train_microbatch_size: auto\nglobal_train_batch_size: 16\nprecision: amp_bf16\n";
    let (tuned, _) = tuned(Format::Yaml, &format!("{MODEL}{text}"), "h200", &[]).expect("a plan");
    assert_eq!(tuned.before.problem.as_deref(), Some("the config leaves the micro-batch to the program"));
    assert!(tuned.before.memory_bytes.is_none() && tuned.pytorch.is_none() && tuned.after.fits);
}
