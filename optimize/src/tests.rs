//! Configs of usual programs, planned for GPUs without a file on the disk.

mod configs;
mod dialects;
mod files;
mod guides;
mod models;
mod names;
mod schemas;
mod spelling;
mod texts;

use std::path::Path;

use gpu_tuned_core::Goal;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{Optimizer, Transformer, WorkloadSpec};

use crate::{
    Config, ConfigText, Format, Framework, KeyOverride, Model, ModelRequest, OptimizeError, Step, Tuned, Tuner,
};

fn file(format: Format, text: &str) -> ConfigText {
    ConfigText::new(Path::new("config"), format, text)
}

fn model(file: &ConfigText, kind: Option<&str>, optimizer: Option<Optimizer>) -> Result<Model, OptimizeError> {
    Model::read(&file.entries()?, file, &ModelRequest { kind, optimizer, ..ModelRequest::default() })
}

/// Tunes a text for one GPU. Options: `--add`, `--precision NAME`, `--world-size RANKS`, `--global-batch SAMPLES`, `--leave KEY`,
/// `--at batch_size=KEY`, `--assume KEY=MEANING`, `--host` for known CPU cores.
fn tuned(format: Format, text: &str, target: &str, options: &[&str]) -> Result<(Tuned, Step), OptimizeError> {
    let whole = file(format, text);
    let Some(rest) = text.strip_prefix(MODEL).filter(|_| has_no_place_for_models(&whole)) else {
        return tuned_file(&whole, None, target, options);
    };
    let (mut tuned, step) =
        tuned_file(&file(format, &format!("#\n{rest}")), Some(&file(format, MODEL)), target, options)?;
    tuned.text = tuned.text.map(|text| text.replacen("#\n", MODEL, 1));
    Ok((tuned, step))
}

/// Returns true if the framework of a config refuses the table of [`MODEL`].
fn has_no_place_for_models(file: &ConfigText) -> bool {
    let entries = file.entries();
    let read = entries.and_then(|entries| Config::read(&entries, file, &[]));
    read.is_err_and(|error| error.to_string().contains("`transformer` is no key of"))
}

fn tuned_file(
    file: &ConfigText,
    model: Option<&ConfigText>,
    target: &str,
    options: &[&str],
) -> Result<(Tuned, Step), OptimizeError> {
    let option = |name: &str| options.iter().position(|option| *option == name).map(|at| options[at + 1]);
    let entries = file.entries()?;
    let left = option("--leave").map(|key| KeyOverride::leave(key, &entries)).transpose()?;
    let at =
        option("--at").and_then(|at| at.split_once('=')).map(|(setting, key)| KeyOverride::new(setting, key, &entries));
    let assumed =
        option("--assume").and_then(|it| it.split_once('=')).map(|(key, it)| KeyOverride::assume(key, it, &entries));
    let overrides: Vec<_> = left.into_iter().chain(at.transpose()?).chain(assumed.transpose()?).collect();
    let config = Config::read(&entries, file, &overrides)?;
    let number = |name: &str| option(name).map(|number| number.parse().expect("a number"));
    let step = Step::new(&config, number("--global-batch"), number("--world-size"))?;
    let request = ModelRequest { optimizer: config.optimizer, config: Some(&config), ..ModelRequest::default() };
    let model = match model {
        Some(other) => Model::read(&other.entries()?, other, &request)?,
        None => Model::read(&entries, file, &request)?,
    };
    let workload = model.spec.workload();
    let headroom = option("--headroom").map(|share| share.parse().expect("a number"));
    let tuner = Tuner {
        config: &config,
        step,
        spec: &model.spec,
        workload: &workload,
        name: "model",
        goal: Goal { memory_headroom: headroom.unwrap_or(0.1), ..Goal::default() },
        headroom,
        precision: option("--precision").map(|name| name.parse().expect("a precision")),
        add_keys: options.contains(&"--add"),
        framework: config.framework(),
    };
    let profile = ProfileTable::builtin().get(target).expect("a shipped profile");
    let host_cores = options.contains(&"--host").then_some(8);
    let facts = DeviceFacts { host_cores, ..DeviceFacts::nominal(profile) };
    Ok((tuner.tune(target, &facts, Goal::default())?, step))
}

fn refused(format: Format, text: &str) -> String {
    match tuned(format, text, "h200", &[]) {
        Ok((tuned, _)) => panic!("not refused: {:?}", tuned.text),
        Err(error) => error.to_string(),
    }
}

/// A small transformer, as JSON entries.
const DIMS: &str = "\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64, \"block_size\": 128, \"vocab_size\": 256";

const MODEL: &str = "transformer: {n_layers: 4, d_model: 256, n_heads: 4, vocab_size: 8192, seq_len: 512}\n";

#[test]
fn a_micro_batch_that_fits_in_pytorch_stays() {
    let dims = "\"num_hidden_layers\": 32, \"hidden_size\": 256, \"num_attention_heads\": 4, \"vocab_size\": 128256";
    let train = "\"max_position_embeddings\": 512, \"fp16\": true, \"num_train_epochs\": 1, \"output_dir\": \"x\"";
    let tune = |batch: u64, steps: u64| {
        let step = format!("\"per_device_train_batch_size\": {batch}, \"gradient_accumulation_steps\": {steps}");
        let (tuned, _) = tuned(Format::Json, &format!("{{{step}, {dims}, {train}}}"), "h200", &[]).expect("a plan");
        assert_eq!((tuned.framework, tuned.after.samples_per_s), (Framework::Pytorch, None));
        assert!(tuned.after.fits && tuned.warnings.is_empty(), "{:?}", tuned.warnings);
        let value = |setting: &str| {
            let change = tuned.changes.iter().find(|change| change.setting == setting).expect("a change");
            change.after.parse::<u64>().expect("a number")
        };
        (value("batch_size"), value("gradient_accumulation"), tuned.before.fits)
    };
    assert_eq!(tune(4, 32), (4, 32, true));
    assert_eq!(tune(64, 2), (64, 2, true));
    // All 128 at once need 144 GiB.
    assert_eq!(tune(128, 1), (64, 2, false));
}

#[test]
fn memory_in_pytorch_follows_the_features_of_the_run() {
    let bytes = |text: &str, options: &[&str]| {
        let whole = format!("{MODEL}model_name_or_path: my-llama\nper_device_train_batch_size: 8\nbf16: true\n{text}");
        let (tuned, _) = tuned(Format::Yaml, &whole, "h200", options).expect("a plan");
        tuned.before.memory_bytes.expect("an estimate").0
    };
    let as_is = bytes("", &[]);
    let less = ["gradient_checkpointing: true\n", "optim: adamw_torch_8bit\n", "use_liger_kernel: true\n"];
    for text in less {
        assert!(bytes(text, &[]) < as_is, "{text}");
    }
    assert!(bytes("attn_implementation: eager\n", &[]) > as_is);
    let ranks = &["--world-size", "4"];
    let [alone, path, inline] =
        ["", "deepspeed: ds_z3.json\n", "deepspeed: {zero_optimization: {stage: 3}}\n"].map(|text| bytes(text, ranks));
    assert!(path < alone && path == inline, "{alone} {path} {inline}");
    let plain = format!("{MODEL}batch_size: 8\nlr: 1\n");
    assert_eq!(tuned(Format::Yaml, &plain, "h200", &[]).expect("a plan").0.framework, Framework::Burn);
}

#[test]
fn an_open_micro_batch_has_no_memory_before() {
    let text = "device_train_microbatch_size: auto\nglobal_train_batch_size: 16\nprecision: amp_bf16\n";
    let (tuned, _) = tuned(Format::Yaml, &format!("{MODEL}{text}"), "h200", &[]).expect("a plan");
    assert_eq!(tuned.before.problem.as_deref(), Some("the config leaves the micro-batch to the program"));
    assert!(tuned.before.memory_bytes.is_none() && tuned.after.fits);
}

#[test]
fn a_headroom_is_free_in_pytorch() {
    let text = format!("{MODEL}batch_size: 8\nlr: 1\ntorch_dtype: float32\n");
    let available = |options: &[&str]| {
        let tuned = tuned(Format::Yaml, &text, "h200", options).map_err(|error| error.to_string())?.0;
        Ok::<_, String>(tuned.after.available_bytes.expect("an H200 has memory").0)
    };
    let all = available(&[]).expect("a plan");
    assert_eq!(available(&["--headroom", "0.5"]), Ok(all / 2));
    assert!(available(&["--headroom", "0.1"]).is_ok_and(|left| left.abs_diff(all / 10 * 9) < 16));
    let refused = available(&["--headroom", "0.95"]).expect_err("a range");
    assert!(refused.contains("memory_headroom = 0.95 is out of range"), "{refused}");
}

/// Memory in PyTorch of a config as it is, on an H200.
fn needed(text: &str) -> u64 {
    needed_on(1, text)
}

/// The same on each of several devices.
fn needed_on(ranks: u64, text: &str) -> u64 {
    let (tuned, _) = tuned(Format::Yaml, &format!("{MODEL}{text}"), "h200", &["--world-size", &ranks.to_string()])
        .unwrap_or_else(|e| panic!("{text}: {e}"));
    tuned.before.memory_bytes.expect("an estimate").0
}

#[test]
fn defaults_are_those_that_each_framework_documents() {
    let factory = "finetuning_type: lora\nper_device_train_batch_size: 8\nbf16: true\n";
    let with = |flag: &str| needed(&format!("{factory}disable_gradient_checkpointing: {flag}\n"));
    assert_eq!(needed(factory), with("false"));
    assert!(needed(factory) < with("true"));
    // axolotl loads and trains weights in 16 bits with `bf16`: a parameter and its gradient have 2 bytes each, AdamW's state 4.
    // With an fp32 copy they would have 16 and more.
    let model = WorkloadSpec::from(Transformer { vocab: 8192, heads: Some(4), ..Transformer::new(4, 256, 8192, 512) });
    let values = model.parameters();
    let axolotl = needed("base_model: x\nmicro_batch_size: 1\nsequence_len: 8\nbf16: auto\noptimizer: adamw_torch\n");
    let plain = needed("per_device_train_batch_size: 1\nmax_length: 8\nbf16: true\noptim: adamw_torch\n");
    assert!(plain - axolotl > 8 * values, "{plain} {axolotl} {values}");
    // nanotron's attention is flash attention, as that of nanoGPT.
    let step = "tokens: {micro_batch_size: 8, batch_accumulation_per_replica: 1}\nmodel: {dtype: bfloat16}\n";
    let eager = needed("per_device_train_batch_size: 8\nbf16: true\nattn_implementation: eager\n");
    assert!(needed(step) < eager);
}

/// Of the logits of 8 x 512 tokens over 8192 words, a chunked loss keeps the log-probabilities in fp32, unless it is compiled.
#[test]
fn chunked_losses_of_torchtune_keep_log_probabilities() {
    let with = |loss: &str, compile: &str| {
        let model = "model: {_component_: x}\ntokenizer: {_component_: y}\nbatch_size: 8\ndtype: bf16\n";
        needed(&format!("{model}compile: {compile}\nloss: {{_component_: torchtune.modules.loss.{loss}}}\n"))
    };
    let compiled = with("LinearCrossEntropyLoss", "True");
    let logits = 8 * 512 * 8192;
    // Eighths of the other tensors: logits in bf16 and fp32, and gradients.
    for (loss, eighths) in [("LinearCrossEntropyLoss", 4 * 8 + 6), ("CEWithChunkedOutputLoss", 6 * 8 + 4)] {
        assert_eq!(with(loss, "True"), compiled);
        let more = (f64::from(logits * (eighths - 14) / 8) * 1.11) as u64;
        assert!((with(loss, "False") - compiled).abs_diff(more) < 8, "{loss}: {more}");
    }
    // axolotl compiles its loss, whose chunks are views: logits and gradients of all are in bf16.
    let axolotl =
        |key: &str| needed(&format!("base_model: x\nmicro_batch_size: 8\nsequence_len: 512\nbf16: full\n{key}\n"));
    let both = (f64::from(logits) * (4.0 + 6.0 / 8.0 - 14.0 / 8.0) * 1.11) as u64;
    let fused = axolotl("plugins: [a.CutCrossEntropyPlugin]");
    assert!((axolotl("chunked_cross_entropy: true") - fused).abs_diff(both) < 8);
}

/// Keys without an effect in the releases of the schemas, and defaults: each text needs as much memory as the other.
#[test]
fn texts_of_one_meaning_need_the_same_memory() {
    let hugging = "model_name_or_path: x\nper_device_train_batch_size: 8\nmax_length: 512\noutput_dir: x\nHOW\n";
    let trl = "model_name_or_path: x\nper_device_train_batch_size: 8\nmax_length: 512\npacking: true\nHOW\n";
    let swift = "model: x\nper_device_train_batch_size: 8\ngradient_accumulation_steps: 1\nmax_length: 512\nHOW\n";
    let axolotl = "base_model: x\nmicro_batch_size: 8\nsequence_len: 512\nHOW\n";
    let cce = "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n";
    for (text, one, other) in [
        // `_process_fsdp_args` of transformers returns without `fsdp`.
        (hugging, "fsdp_config: {version: 2}", ""),
        (hugging, "fsdp: false\nfsdp_config: {reshard_after_forward: true}", ""),
        (hugging, "fsdp_config: {fsdp_sharding_strategy: FULL_SHARD}", ""),
        (hugging, "optim: adamw_torch_fused", ""),
        (hugging, "dtype: auto\nbf16: true", "dtype: bfloat16"),
        (hugging, "bf16: true", "dtype: bfloat16"),
        // DeepSpeed and Accelerate keep trained weights in fp32 beside mixed precision.
        (
            hugging,
            "bf16: true\ndtype: bfloat16\ndeepspeed: zero3.json",
            "bf16: true\ndtype: float32\ndeepspeed: zero3.json",
        ),
        (hugging, "bf16: true\ndtype: bfloat16\nfsdp: true", "bf16: true\ndtype: float32\nfsdp: full_shard"),
        (hugging, "deepspeed: /runs/zero3/ds-zero-2.json", "deepspeed: ds_z2.json"),
        (hugging, "per_device_eval_batch_size: 512", ""),
        (hugging, "eval_strategy: steps", "do_eval: true\nper_device_eval_batch_size: 8"),
        (
            trl,
            "",
            "loss_type: chunked_nll\nbf16: true\ndtype: float32\ngradient_checkpointing: true\nuse_liger_kernel: false",
        ),
        (trl, "use_peft: true", "use_peft: true\nlora_r: 16"),
        // `LoraConfig` has a rank of 8.
        (trl, "peft_config: {target_modules: [q_proj]}", "use_peft: true\nlora_r: 8\nlora_target_modules: [q_proj]"),
        (trl, "lora: {r: 32, target_modules: [q_proj]}", "use_peft: true\nlora_r: 32\nlora_target_modules: [q_proj]"),
        (swift, "split_dataset_ratio: 0.01", "tuner_type: lora\nlora_rank: 8\ntarget_modules: all-linear\nbf16: true"),
        (swift, "tuner_type: full\nbf16: true", "tuner_type: full\ntorch_dtype: bfloat16"),
        (axolotl, "flash_attention: false\nxformers_attention: false", ""),
        (axolotl, "liger_fused_linear_cross_entropy: true\ncut_cross_entropy: true", ""),
        (axolotl, &format!("cut_cross_entropy: false\n{cce}"), ""),
        (axolotl, &format!("cut_cross_entropy: true\n{cce}"), cce),
        (axolotl, "fsdp_version: 2", ""),
        (axolotl, "ray_num_workers: 4", ""),
        (axolotl, "deepspeed: zero1.json\nbf16: true", "deepspeed: zero1.json\nbfloat16: true"),
        // The precision is that of DeepSpeed's table, `HfTrainerDeepSpeedConfig` of transformers: fp32 where it is off.
        (axolotl, "deepspeed: zero3_bf16.json\nbf16: full", "deepspeed: zero3_bf16.json\nbf16: true"),
        (hugging, "deepspeed: zero3.json", "deepspeed: zero3.json\ndtype: float32"),
    ] {
        let of = |how: &str| needed_on(8, &text.replace("HOW", how));
        assert_eq!(of(one), of(other), "{text}: {one}");
    }
    // 2 bytes of each value more, in fp32 on eight devices.
    let full = |how: &str| needed_on(8, &axolotl.replace("HOW", how));
    assert!(full("deepspeed: zero3.json\nbf16: true") > full("fsdp_config: {fsdp_version: 2}\nbf16: true"));
}

/// `no_sync` of the Trainer keeps gradients of 2 bytes for each parameter on each of eight GPUs, in place of an eighth of 4 bytes.
#[test]
fn accumulation_under_fsdp_keeps_whole_gradients() {
    let text = "model_name_or_path: x\nper_device_train_batch_size: 8\nbf16: true\nfsdp: true\ngradient_accumulation_steps: 4\n\
                accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: HOW}}\n";
    let model = WorkloadSpec::from(Transformer { vocab: 8192, heads: Some(4), ..Transformer::new(4, 256, 8192, 512) });
    let more = ((model.parameters() as f64) * (2.0 - 0.5) * 1.11) as u64;
    let [each, last] = ["true", "false"].map(|how| needed_on(8, &text.replace("HOW", how)));
    assert!((last - each).abs_diff(more) < 8, "{each} {last} {more}");
}

/// `Trainer.create_optimizer` of transformers keeps states of embeddings in fp32 beside those in 8 bits of bitsandbytes.
#[test]
fn embeddings_have_states_in_fp32() {
    let of = |optimizer: &str| {
        needed_on(
            8,
            &format!("model_name_or_path: x\nper_device_train_batch_size: 8\noptim: {optimizer}\ndtype: bfloat16\n"),
        )
    };
    let more = (2.0 * (4.0 - 1.0 - 4.0 / 256.0) * 8192.0 * 256.0 * 1.11) as u64;
    let [bitsandbytes, torchao] = ["adamw_bnb_8bit", "adamw_torch_8bit"].map(of);
    assert!((bitsandbytes - torchao).abs_diff(more) < 8, "{bitsandbytes} {torchao} {more}");
}

/// 10 bytes for each logit in 16 bits: measured on an H200 with `Trainer.evaluate` of transformers 5.17.
#[test]
fn evaluation_that_does_not_fit_is_refused_with_its_batch() {
    let text = |rest: &str| {
        format!(
            "model_name_or_path: meta-llama/Llama-3.2-1B\nmax_length: 2048\nper_device_train_batch_size: 1\noutput_dir: x\n\
             bf16: true\neval_strategy: steps\n{rest}"
        )
    };
    let tune = |rest: &str| tuned(Format::Yaml, &text(rest), "h200", &[]).expect("an answer").0;
    let logits = 64 * 2048 * 128_256_u64 * 10;
    let large = tune("per_device_eval_batch_size: 64\n");
    assert!(large.before.memory_bytes.is_some_and(|bytes| bytes.0 > logits));
    let problem = large.after.problem.unwrap_or_default();
    assert!(problem.starts_with("does not fit: evaluation in batches of 64 needs "), "{problem}");
    let most = problem.rsplit("set `per_device_eval_batch_size` to ").next().and_then(|rest| rest.split(' ').next());
    assert!(tune(&format!("per_device_eval_batch_size: {}\n", most.expect("a number"))).after.fits, "{problem}");
    assert!(tune("per_device_eval_batch_size: 64\nuse_liger_kernel: true\n").after.fits);
}

/// Attention keeps a matrix of scores in families without `_supports_sdpa`.
#[test]
fn the_default_attention_is_that_of_the_family() {
    for (model, is_eager) in
        [("EleutherAI/gpt-neo-1.3B", true), ("bigscience/bloom-560m", true), ("facebook/opt-1.3b", false)]
    {
        let of = |rest: &str| {
            let text = format!(
                "model_name_or_path: {model}\nmax_length: 512\nper_device_train_batch_size: 2\noutput_dir: x\n{rest}"
            );
            tuned(Format::Yaml, &text, "h200", &[]).expect("a plan").0.before.memory_bytes
        };
        assert_eq!(of("") == of("attn_implementation: eager\n"), is_eager, "{model}");
    }
}

#[test]
fn attention_of_megatron_is_fused_by_default() {
    let step = "micro_batch_size: 8\nglobal_batch_size: 8\ntensor_model_parallel_size: 1\n";
    let fused = needed(&format!("{step}attention_backend: flash\n"));
    assert_eq!(needed(step), fused);
    assert_eq!(needed(&format!("{step}use_flash_attn: false\n")), fused);
    assert!(needed(&format!("{step}mcore_gpt: true\n")) > fused, "NeMo's is not");
}

/// `output.float()` of GPT-NeoX and Megatron-LM: logits in 16 bits and in fp32, the latter also the gradient. LLM Foundry's fused loss has
/// a gradient of its own in 16 bits.
#[test]
fn losses_have_the_bytes_of_their_kernels() {
    let dims =
        "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nmax_position_embeddings: 2048\nseq_length: 2048\n";
    let vocab = "padded_vocab_size: VOCAB\n";
    let neox = format!("{dims}{vocab}train_micro_batch_size_per_gpu: 32\nprecision: bfloat16\n");
    let megatron = format!("{dims}{vocab}micro_batch_size: 32\nglobal_batch_size: 32\nbf16: true\n");
    let composer = "device_train_microbatch_size: 32\nglobal_train_batch_size: 32\nprecision: amp_bf16\nmax_seq_len: 2048\n\
                    model: {name: mpt_causal_lm, d_model: 64, n_heads: 4, n_layers: 2, max_seq_len: 2048, vocab_size: VOCAB}\n";
    for (text, least, most) in [(neox.as_str(), 6.0, 8.0), (&megatron, 6.0, 8.0), (composer, 4.0, 5.0)] {
        let [one, two] = ["51200", "102400"].map(|vocab| {
            let text = text.replace("VOCAB", vocab);
            let (tuned, _) = tuned(Format::Yaml, &text, "h200", &[]).unwrap_or_else(|e| panic!("{text}: {e}"));
            tuned.before.memory_bytes.expect("an estimate").0 as f64
        });
        let each = (two - one) / (1.11 * 51200.0 * 32.0 * 2048.0);
        assert!((least..most).contains(&each), "{each}: {text}");
    }
}

/// `theoretical_memory_usage.py` of Megatron-LM: 18 bytes a parameter, and 34 bytes of each value of a layer. SGD has a momentum of 0.9.
#[test]
fn megatron_has_18_bytes_a_parameter() {
    let model = "num_layers: 24\nhidden_size: 2048\nnum_attention_heads: 16\nseq_length: 2048\nmax_position_embeddings: 2048\n\
                 padded_vocab_size: 50304\n";
    let needed = |optimizer: &str| {
        let text = format!("{model}micro_batch_size: 1\nglobal_batch_size: 256\nbf16: true\noptimizer: {optimizer}\n");
        let (tuned, _) = tuned(Format::Yaml, &text, "h200", &["--world-size", "8"]).expect("a plan");
        tuned.before.memory_bytes.expect("an estimate").0 as f64
    };
    let (parameters, values) = (1_315_819_520.0, 2048.0 * 2048.0 * 24.0);
    let context = DeviceFacts::nominal(ProfileTable::builtin().get("h200").expect("a profile")).context.0 as f64;
    let found = (needed("adam") - context) / 1.11;
    let published = 18.0 * parameters + 34.0 * values;
    assert!((found / published - 1.0).abs() < 0.05, "{found} {published}");
    assert!((needed("adam") - needed("sgd") - 4.0 * parameters * 1.11).abs() < 8.0);
}

#[test]
fn a_feature_is_on_by_every_word_for_true() {
    let step = "model_name_or_path: my-llama\nper_device_train_batch_size: 8\nbf16: true\n";
    let with = |flag: &str| needed(&format!("{step}use_liger_kernel: {flag}\n"));
    for flag in ["'True'", "1", "on"] {
        assert_eq!(with(flag), with("true"), "{flag}");
    }
    assert!(with("true") < with("false"));
}

/// `MODEL_TYPE_TO_APPLY_LIGER_FN` of Liger has the families that it patches.
#[test]
fn liger_patches_only_the_families_that_it_supports() {
    let rest = "output_dir: x\nmax_seq_length: 512\nmax_length: 512\nper_device_train_batch_size: 512\nbf16: true\n";
    let hugging = "use_liger_kernel: HOW\nnum_train_epochs: 1\n";
    let factory = "enable_liger_kernel: HOW\nfinetuning_type: full\ncutoff_len: 512\n";
    let is_patched = |model: &str, dialect: &str| {
        let rest = if dialect == factory { "per_device_train_batch_size: 512\nbf16: true\n" } else { rest };
        let [on, off] = ["true", "false"].map(|how| {
            let text = format!("model_name_or_path: {model}\n{rest}{}", dialect.replace("HOW", how));
            let (tuned, _) = tuned(Format::Yaml, &text, "h200", &[]).unwrap_or_else(|e| panic!("{text}: {e}"));
            tuned.before.memory_bytes.expect("an estimate")
        });
        assert!(on <= off, "{model}");
        on < off
    };
    for (model, expected) in [
        ("roberta-base", false),
        ("EleutherAI/pythia-1.4b", false),
        ("openai-community/gpt2-xl", false),
        ("facebook/opt-1.3b", false),
        ("EleutherAI/gpt-neo-1.3B", false),
        ("allenai/OLMo-1B-hf", false),
        ("allenai/OLMo-2-1124-7B", true),
        ("meta-llama/Llama-2-7b-hf", true),
        ("HuggingFaceH4/zephyr-7b-beta", true),
        ("Qwen/Qwen2.5-7B", true),
        ("google/gemma-2-2b", true),
        ("microsoft/Phi-3-mini-4k-instruct", true),
    ] {
        assert_eq!([hugging, factory].map(|dialect| is_patched(model, dialect)), [expected; 2], "{model}");
    }
}

/// `num_labels` is part of the model's config, and the class of the model has a head over the vocabulary.
#[test]
fn labels_of_axolotl_make_no_other_head() {
    let step = "base_model: x\nmicro_batch_size: 64\nsequence_len: 512\nbf16: auto\n";
    for rest in ["num_labels: 2\n", "num_labels: 2\nmodel_type: LlamaForCausalLM\n"] {
        assert_eq!(needed(&format!("{step}{rest}")), needed(step), "{rest}");
    }
    let other = format!("{MODEL}{step}num_labels: 2\nmodel_type: AutoModelForSequenceClassification\n");
    let refused = refused(Format::Yaml, &other);
    assert!(refused.contains("`model_type`: `AutoModelForSequenceClassification` is not modelled"), "{refused}");
}

/// `transformers` wraps by size above 0 parameters of a minimum, and Composer wraps nothing without `auto_wrap`.
#[test]
fn fsdp_that_wraps_no_blocks_is_one_unit() {
    let hugging = "model_name_or_path: x\nper_device_train_batch_size: 8\nbf16: true\n";
    let sharded = |fsdp: &str| needed_on(8, &format!("{hugging}{fsdp}\n"));
    let by_block = sharded("fsdp: full_shard auto_wrap");
    let whole = sharded("fsdp: full_shard\nfsdp_config: {auto_wrap_policy: NO_WRAP}");
    assert!(by_block < whole);
    // `_apply_legacy_fsdp_to_config` of transformers 5: `auto_wrap` has no effect.
    for same in ["fsdp: full_shard", "fsdp: true"] {
        assert_eq!(sharded(same), by_block, "{same}");
    }
    for (policy, expected) in [
        ("min_num_params: 0", by_block),
        ("min_num_params: 2000", by_block),
        ("min_num_params: null", by_block),
        ("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_min_num_params: 100000000", by_block),
        ("fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP", by_block),
        ("fsdp_auto_wrap_policy: NO_WRAP", whole),
        ("auto_wrap_policy: NO_WRAP", whole),
    ] {
        let text = format!("fsdp: full_shard auto_wrap\nfsdp_config: {{{policy}}}");
        assert_eq!(sharded(&text), expected, "{policy}");
    }
    let large = format!("{MODEL}{hugging}fsdp: full_shard auto_wrap\nfsdp_config: {{min_num_params: 100000000000}}\n");
    let refused = refused(Format::Yaml, &large);
    assert!(
        refused.contains("`fsdp_config.min_num_params`: `100000000000` is not modelled, because blocks"),
        "{refused}"
    );
    let composer = |wrap: &str| {
        let step = "device_train_microbatch_size: 8\nglobal_train_batch_size: 64\nprecision: amp_bf16\n";
        needed_on(8, &format!("{step}fsdp_config: {{sharding_strategy: FULL_SHARD, auto_wrap: {wrap}}}\n"))
    };
    assert!(composer("true") < composer("false"));
}

#[test]
fn fsdp_without_units_shards_as_its_strategy() {
    let hugging = "model_name_or_path: x\nper_device_train_batch_size: 8\nbf16: true\n";
    let composer = "device_train_microbatch_size: 8\nglobal_train_batch_size: 64\nprecision: amp_bf16\n";
    for (text, without) in [
        (format!("{composer}fsdp_config: {{sharding_strategy: NO_SHARD, auto_wrap: HOW}}\n"), "false"),
        (format!("{hugging}fsdp_config: {{fsdp_auto_wrap_policy: HOW}}\n"), "NO_WRAP"),
        (format!("{hugging}fsdp: ''\nfsdp_config: {{fsdp_auto_wrap_policy: HOW}}\n"), "NO_WRAP"),
        (
            format!("{hugging}fsdp_config: {{fsdp_sharding_strategy: NO_SHARD, fsdp_auto_wrap_policy: HOW}}\n"),
            "NO_WRAP",
        ),
        (format!("{hugging}fsdp: shard_grad_op\nfsdp_config: {{fsdp_auto_wrap_policy: HOW}}\n"), "NO_WRAP"),
    ] {
        let [wrapped, without] = ["true", without].map(|how| needed_on(8, &text.replace("HOW", how)));
        assert_eq!(wrapped, without, "{text}");
    }
    let default = |wrap: &str| needed_on(8, &format!("{composer}fsdp_config: {{auto_wrap: {wrap}}}\n"));
    assert!(default("true") < default("false"), "full sharding is the default of Composer");
    // One unit in hybrid sharding is gathered on each node: on one node as without it, and on several with as much state.
    let no_wrap = "fsdp_config: {fsdp_auto_wrap_policy: NO_WRAP}\n";
    for (hybrid, whole) in [
        (format!("{composer}fsdp_config: {{sharding_strategy: HYBRID_SHARD, auto_wrap: false}}\n"), "FULL_SHARD"),
        (format!("{hugging}fsdp: hybrid_shard auto_wrap\n{no_wrap}"), "full_shard"),
    ] {
        let name = if whole == "FULL_SHARD" { "HYBRID_SHARD" } else { "hybrid_shard" };
        let on_node = needed_on(8, &hybrid);
        assert_eq!(on_node, needed_on(8, &hybrid.replace(name, whole)), "{hybrid}");
        assert_eq!(on_node, needed_on(64, &hybrid.replace("size: 64", "size: 512")), "{hybrid}");
    }
}

#[test]
fn callbacks_that_only_log_are_planned() {
    let text = |class: &str| {
        format!(
            "trainer: {{devices: 1, max_epochs: 1, callbacks: [{{class_path: {class}}}]}}\ndata: {{batch_size: 8}}\n"
        )
    };
    for class in ["my.BatchSizeLogger", "my.EmailNotifier", "my.SeqLenMonitor"] {
        let planned = tuned(Format::Yaml, &format!("{MODEL}{}", text(class)), "h200", &[]);
        planned.unwrap_or_else(|error| panic!("{class}: {error}"));
    }
    for class in ["my.BatchSizeFinder", "my.BatchSizeScheduler", "my.SeqLenWarmup", "my.EMA", "ema_pytorch.EMA"] {
        let refused = refused(Format::Yaml, &format!("{MODEL}{}", text(class)));
        assert!(refused.contains(&format!("`{class}` is not modelled")), "{refused}");
    }
    let named = text("x").replace("[{class_path: x}]", "[my.EMA, my.Logger]");
    assert!(refused(Format::Yaml, &format!("{MODEL}{named}")).contains("`my.EMA my.Logger` is not modelled"));
}

#[test]
fn counts_of_one_and_switches_without_a_value_are_off() {
    let text = |key: &str| format!("{MODEL}batch_size: 8\nlr: 1\n{key}\n");
    for key in ["views_per_sample", "n_augment", "mc_samples", "num_candidates"] {
        tuned(Format::Yaml, &text(&format!("{key}: 1")), "h200", &[]).unwrap_or_else(|error| panic!("{error}"));
        let refused = refused(Format::Yaml, &text(&format!("{key}: 2")));
        assert!(refused.contains(&format!("`{key}` is not known, and touches the task")), "{refused}");
    }
    tuned(Format::Yaml, &text("master_weights: null"), "h200", &[]).unwrap_or_else(|error| panic!("{error}"));
    let refused = refused(Format::Yaml, &text("master_weights: false"));
    assert!(refused.contains("`master_weights` is not known, and touches the precision"), "{refused}");
}

#[test]
fn keys_of_losses_and_norms_that_combine_samples_keep_the_micro_batch() {
    let compares = |key: &str| {
        let file = file(Format::Yaml, &format!("batch_size: 64\naccumulation_steps: 2\nlr: 1\n{key}\n"));
        let config = Config::read(&file.entries().expect("YAML"), &file, &[]).unwrap_or_else(|e| panic!("{key}: {e}"));
        config.use_of_micro_batch.is_some()
    };
    for key in [
        "contrastive_weight: 0.1",
        "aux_contrastive: true",
        "infonce_weight: 0.1",
        "clip_loss: true",
        "supcon: true",
        "triplet_margin: 0.2",
        "loss_weights: {contrastive: 0.1}",
        "loss: triplet",
        "metric_loss: contrastive",
        "metric_learning: true",
        "method: simclr",
        "training_method: contrastive",
        "loss_reduction: sum",
        "bn: true",
        "freeze_bn: false",
        "bn_momentum: 0.1",
        "norm: [batch]",
        "norm_fn: bn",
        "normalization_type: batch",
        "norm: {Batch: {num_features: 64}}",
    ] {
        assert!(compares(key), "{key}");
    }
    for key in [
        "contrastive_weight: 0",
        "clip_loss: false",
        "task: summarization",
        "grad_clip: 1.0",
        "clip_grad_norm: 1",
        "eval: {triplet: 1}",
        "bn: false",
        "norm: layer",
    ] {
        assert!(!compares(key), "{key}");
    }
}

/// The report lists the keys without effect, and no key that decides beside another.
#[test]
fn keys_without_effect_are_listed() {
    let unused = |text: &str| {
        let file = file(Format::Yaml, text);
        let config = Config::read(&file.entries().expect("YAML"), &file, &[]).expect("a config");
        config.unused(&[]).join(" ")
    };
    let plain =
        "batch_size: 8\nlr: 0.1\noptimizer: sgd\nmomentum: 0.9\nbn: true\nloss: triplet\nproject: x\ndata: {seed: 1}\n";
    assert_eq!(unused(plain), "lr project data.seed");
    let trainer = "per_device_train_batch_size: 8\noutput_dir: x\neval_strategy: steps\nseed: 1\nlogging_steps: null\n";
    assert_eq!(unused(trainer), "output_dir seed");
}

/// The fields are those of the configs of burn-optim 0.22.
#[test]
fn optimizers_of_burn_are_recognised_by_their_fields() {
    for (fields, expected) in [
        (r#"{"weight_decay": null, "momentum": null, "gradient_clipping": null}"#, Some(Optimizer::Sgd)),
        (
            r#"{"momentum": {"momentum": 0.9, "dampening": 0.1}, "gradient_clipping": {"Norm": 1}}"#,
            Some(Optimizer::Momentum),
        ),
        (r#"{"momentum": {"momentum": 0.95}, "ns_coefficients": [3.4], "ns_steps": 5}"#, Some(Optimizer::Muon)),
        (r#"{"epsilon_1": 1e-30, "relative_step": true, "grad_clipping": null}"#, Some(Optimizer::Adafactor)),
        (r#"{"Sgd": {"momentum": null}}"#, Some(Optimizer::Sgd)),
        (r#"{"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-5, "amsgrad": false, "grad_clipping": null}"#, None),
    ] {
        let text = format!(r#"{{"batch_size": 8, "quiet_softmax": false, "optimizer": {fields}}}"#);
        let file = file(Format::Json, &text);
        let config = Config::read(&file.entries().expect("JSON"), &file, &[]).expect("a config");
        assert_eq!((config.dialect.name.as_str(), config.optimizer), ("Burn", expected), "{fields}");
    }
}

#[test]
fn checkpoints_in_the_memory_of_the_host_are_not_counted() {
    // Eight sequences of 512 tokens: the inputs of four layers of width 256, all but one.
    let inputs = 3 * 256 * 8 * 512;
    let axolotl = "base_model: x\nmicro_batch_size: 8\nsequence_len: 512\nbf16: true\ngradient_checkpointing: HOW\n";
    let tune = "model: {_component_: x}\ntokenizer: {_component_: y}\nbatch_size: 8\ndtype: bf16\n\
                enable_activation_checkpointing: true\nenable_activation_offloading: HOW\n";
    let plain = "batch_size: 8\npin_memory: true\nprecision: bf16\ngradient_checkpointing: HOW\n";
    for (text, on_device, offloaded, each) in [
        (axolotl, "true", "offload", 2),
        (axolotl, "true", "true\nactivation_offloading: true", 2),
        (tune, "false", "true", 2),
        (plain, "true", "unsloth", 4),
    ] {
        let [before, after] = [on_device, offloaded].map(|how| needed(&text.replace("HOW", how)));
        let reserved = (f64::from(inputs * each) * 1.11) as u64;
        assert!((before - after).abs_diff(reserved) < 8, "{text}: {offloaded} {before} {after} {reserved}");
    }
}

#[test]
fn fine_tuning_of_litgpt_checkpoints_on_several_devices() {
    let text = "precision: bf16-true\ntrain: {global_batch_size: 64, micro_batch_size: 8, max_seq_length: 512}\n";
    let [finetuned, pretrained] =
        ["checkpoint_dir: x\n", "tokenizer_dir: x\n"].map(|kind| needed_on(8, &format!("{kind}{text}")));
    // Layers of width 256 keep 34 bytes for each value (Korthikanti et al., 2022), and their inputs with checkpointing.
    let kept = 3 * (34 - 2) * 256 * 8 * 512;
    assert!(pretrained - finetuned > kept, "{pretrained} {finetuned} {kept}");
    let pretrained_on_node = needed_on(64, &format!("tokenizer_dir: x\n{}", text.replace("64,", "512,")));
    assert_eq!(pretrained_on_node, pretrained);
}

#[test]
fn adapters_of_llama_factory_train_over_weights_in_16_bits() {
    let factory = |flags: &str| needed(&format!("finetuning_type: lora\nper_device_train_batch_size: 8\n{flags}"));
    assert_eq!(factory(""), factory("bf16: true\n"));
    let full = |flags: &str| needed(&format!("finetuning_type: full\nper_device_train_batch_size: 8\n{flags}"));
    assert_ne!(full(""), full("bf16: true\n"));
}

/// Automatic mixed precision keeps the format in which frozen weights were loaded.
#[test]
fn frozen_weights_that_are_loaded_in_fp32_have_four_bytes() {
    let values = 4 * 12 * 256 * 256 + 8192 * 256;
    let lora = "lora_target_modules: all-linear\nper_device_train_batch_size: 1\nmax_length: 64\nbf16: true\n";
    let trl = format!("use_peft: true\nlora_r: 8\n{lora}assistant_only_loss: false\nmodel_name_or_path: x\n");
    let swift = format!("tuner_type: lora\nlora_rank: 8\n{lora}gradient_accumulation_steps: 1\n");
    for (text, key) in [(&trl, "dtype"), (&trl, "torch_dtype"), (&swift, "torch_dtype")] {
        let [full, half] = ["float32", "bfloat16"].map(|format| needed(&format!("{text}{key}: {format}\n")));
        assert!(full - half > 2 * values, "{text}{key}: {full} {half}");
    }
    // TRL loads them in fp32 without a key, and `transformers` in the format in which they are saved.
    let full = needed(&format!("{trl}dtype: float32\n"));
    assert_eq!(needed(&trl), full);
    let hugging = |model: &str, rest: &str| {
        let lora = lora.replace("max_length", "max_seq_length").replace("all-linear", "all");
        let text = format!("{lora}model_name_or_path: {model}\noutput_dir: x\nlora_r: 8\n{rest}");
        let (tuned, _) = tuned(Format::Yaml, &text, "h200", &[]).unwrap_or_else(|e| panic!("{text}: {e}"));
        tuned.before.memory_bytes.expect("an estimate").0
    };
    for (model, saved) in [("openai-community/gpt2-xl", "float32"), ("meta-llama/Llama-2-7b-hf", "bfloat16")] {
        let [full, half] = ["float32", "bfloat16"].map(|format| hugging(model, &format!("torch_dtype: {format}\n")));
        // Adapters have 16 bits, too, with weights that are loaded so.
        let middle = u64::midpoint(full, half);
        assert_eq!(hugging(model, "") > middle, saved == "float32", "{model}");
    }
    let plain = "batch_size: 1\npin_memory: true\nlora_rank: 8\nlora_target_modules: all\n";
    let foundry = "device_train_microbatch_size: 1\nglobal_train_batch_size: 8\n";
    let peft = "model: {peft_config: {r: 8, peft_type: LORA, target_modules: all}}\n";
    for (text, mixed, full) in [
        (plain.to_owned(), "mixed_precision: bf16", "mixed_precision: 'no'"),
        (plain.to_owned(), "bf16: true", "bf16: false"),
        (plain.replace("batch_size", "micro_batch_size") + "batch_size: 1\n", "bf16: true", "bf16: false"),
        (format!("{foundry}{peft}"), "precision: amp_bf16", "precision: fp32"),
    ] {
        // Activations in 16 bits have fewer bytes; weights have as many.
        let [mixed, full] = [mixed, full].map(|how| needed(&format!("{text}{how}\n")));
        assert!(full > mixed && mixed > 4 * values, "{text}: {full} {mixed}");
    }
    // DeepSpeed converts them.
    let [full, none] = ["dtype: float32\n", ""].map(|key| needed_on(2, &format!("{trl}deepspeed: ds_z2.json\n{key}")));
    assert_eq!(full, none);
    let litgpt = "train: {global_batch_size: 8, micro_batch_size: 1, max_seq_length: 64}\ncheckpoint_dir: x\n";
    let lightning = "trainer: {max_epochs: 1, precision: HOW}\ndata: {batch_size: 1}\nlora_rank: 8\n";
    for text in [&format!("{litgpt}lora_r: 8\nprecision: HOW\n"), lightning] {
        let [mixed, half] = ["bf16-mixed", "bf16-true"].map(|how| needed(&text.replace("HOW", how)));
        assert!(mixed - half > 2 * values, "{text}: {mixed} {half}");
    }
}

#[test]
fn reports_have_no_default_of_weights_that_a_key_sets() {
    let lora = "lora_r: 8\nlora_target_modules: all-linear\nper_device_train_batch_size: 1\nbf16: true\n";
    let trl = format!("use_peft: true\n{lora}assistant_only_loss: false\nmodel_name_or_path: x\n");
    let hugging = format!("{lora}model_name_or_path: x\noutput_dir: x\n");
    for (text, default) in [(trl, "false"), (hugging, "saved")] {
        let weights = |key: &str| {
            let file = file(Format::Yaml, &format!("{text}{key}\n"));
            let config = Config::read(&file.entries().expect("YAML"), &file, &[]).expect("a config");
            let mut rows = config.defaults(1).filter(|(name, ..)| *name == "weights in 16 bits");
            rows.next().map(|(_, value, _)| value.to_owned())
        };
        assert_eq!(weights("").as_deref(), Some(default));
        assert_eq!(weights("load_in_4bit: false").as_deref(), Some(default));
        for key in ["torch_dtype: bfloat16", "dtype: float32", "load_in_4bit: true", "load_in_8bit: true"] {
            assert_eq!(weights(key), None, "{key}");
        }
    }
}

#[test]
fn sharding_is_counted_in_every_framework_that_has_it() {
    let composer = "device_train_microbatch_size: 1\nglobal_train_batch_size: 8\nprecision: amp_bf16\nmax_duration: 1ba\n\
                    fsdp_config: {sharding_strategy: HOW}\n";
    let lightning = "trainer: {max_epochs: 1, precision: bf16-mixed, strategy: HOW, accumulate_grad_batches: 2}\ndata: {batch_size: 1}\n";
    let transformers = "per_device_train_batch_size: 1\nbf16: true\nfsdp: HOW\n";
    let factory = "finetuning_type: full\nper_device_train_batch_size: 1\nbf16: true\ndeepspeed: ds_HOW.json\n";
    let axolotl =
        "base_model: x\nmicro_batch_size: 1\nsequence_len: 64\nbf16: true\nfsdp_config: {fsdp_version: HOW}\n";
    let nanotron = "tokens: {micro_batch_size: 1, batch_accumulation_per_replica: 1}\nmodel: {dtype: bfloat16}\n\
                    optimizer: {zero_stage: HOW}\n";
    let megatron = "micro_batch_size: 1\nglobal_batch_size: 8\ntensor_model_parallel_size: 1\nbf16: true\n\
                    use_distributed_optimizer: HOW\n";
    for (text, without, with) in [
        (composer, "NO_SHARD", "SHARD_GRAD_OP"),
        (composer, "SHARD_GRAD_OP", "FULL_SHARD"),
        (lightning, "ddp", "deepspeed_stage_1"),
        (lightning, "deepspeed_stage_1", "deepspeed_stage_2"),
        (lightning, "deepspeed_stage_2", "deepspeed_stage_3"),
        (lightning, "ddp", "fsdp"),
        (transformers, "''", "full_shard auto_wrap"),
        (factory, "z2", "z3"),
        (axolotl, "null", "2"),
        (nanotron, "0", "1"),
        (megatron, "false", "true"),
    ] {
        let [before, after] = [without, with].map(|how| needed_on(8, &text.replace("HOW", how)));
        assert!(after < before, "{text}: {without} {before}, {with} {after}");
    }
    // Whole numbers may have a point.
    let deepspeed = "train_micro_batch_size_per_gpu: 1\nbf16: {enabled: true}\nzero_optimization: {stage: HOW}\n";
    let [whole, point] = ["2", "2.0"].map(|how| needed_on(8, &deepspeed.replace("HOW", how)));
    assert_eq!(whole, point);
    // `auto_wrap_policy=None` of Lightning wraps nothing, nor does OLMo's `wrapping_strategy`.
    let olmo = "device_train_microbatch_size: 1\nglobal_train_batch_size: 8\nmodel: {max_sequence_length: 512}\ndistributed_strategy: fsdp\n";
    for (text, expected) in [
        (lightning.replace("HOW", "fsdp"), "fsdp2"),
        (lightning.replace("HOW", "{class_path: lightning.pytorch.strategies.FSDPStrategy}"), "fsdp2"),
        (lightning.replace("HOW", "{_target_: lightning.pytorch.strategies.DDPStrategy}"), "0"),
        (olmo.to_owned(), "fsdp2"),
        (format!("{olmo}fsdp: {{wrapping_strategy: by_block}}\n"), "fsdp"),
        (format!("{olmo}fsdp: {{sharding_strategy: HYBRID_SHARD}}\n"), "hsdp2"),
    ] {
        let file = file(Format::Yaml, &text);
        let config = Config::read(&file.entries().expect("YAML"), &file, &[]).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(config.sharding().as_deref(), Some(expected), "{text}");
    }
    // Hybrid sharding has the state of a node, on any number of nodes.
    let hybrid = transformers.replace("HOW", "hybrid_shard auto_wrap");
    assert_eq!(needed_on(64, &hybrid), needed_on(8, &hybrid));
    let full = |how: &str| needed_on(8, &transformers.replace("HOW", how));
    assert_eq!(needed_on(8, &hybrid), full("full_shard auto_wrap"));
    // Recipes of torchtune and LitGPT on several devices shard.
    let tune = "model: {_component_: x}\ntokenizer: {_component_: y}\nbatch_size: 1\ndtype: bf16\n";
    assert!(needed_on(8, tune) < needed(tune));
    for how in ["hpu_parallel", "colossalai"] {
        let refused = refused(Format::Yaml, &format!("{MODEL}{}", lightning.replace("HOW", how)));
        assert!(refused.contains(&format!("`trainer.strategy`: `{how}` is not modelled")), "{refused}");
    }
    let file = file(Format::Yaml, &format!("{MODEL}{}", transformers.replace("HOW", "full_shard")));
    let config = Config::read(&file.entries().expect("YAML"), &file, &[]).expect("a config");
    assert_eq!(config.open_ranks(), Some("fsdp"));
}
