//! Configs of usual ecosystems, each with a value that is easily read wrong.

use super::{MODEL, file, model, optimised, refused, tuned};
use crate::{Config, Format, Step, Tuned};

/// A small transformer, as JSON entries.
pub(super) const DIMS: &str = "\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64, \"block_size\": 128, \"vocab_size\": 256";

pub(super) fn json(text: &str, target: &str, options: &[&str]) -> (Tuned, Step, String) {
    let text = text.replace("DIMS", DIMS);
    let (tuned, step) = tuned(Format::Json, &text, target, options).unwrap_or_else(|error| panic!("{text}: {error}"));
    let text = tuned.text.clone().expect("it fits");
    (tuned, step, text)
}

/// The text behind the model's dimensions, tuned.
pub(super) fn yaml(text: &str, target: &str, options: &[&str]) -> String {
    let whole = format!("{MODEL}{text}");
    let tuned = optimised(Format::Yaml, &whole, target, options).unwrap_or_else(|error| panic!("{text}: {error}"));
    tuned.expect("it fits").strip_prefix(MODEL).expect("the model stays").to_owned()
}

pub(super) fn refused_yaml(text: &str, options: &[&str]) -> String {
    refused(Format::Yaml, &format!("{MODEL}{text}"), options)
}

#[test]
fn the_batch_of_deepspeed_is_that_of_a_step() {
    for text in [
        "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 8, DIMS}",
        "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 8, \"fp16\": {\"enabled\": false}, DIMS}",
        "{\"train_batch_size\": 64, \"gradient_accumulation_steps\": 8, \"zero_optimization\": {\"stage\": 2}, DIMS}",
    ] {
        let (_, step, text) = json(text, "h200", &[]);
        assert_eq!((step.batch, step.accumulation, step.global), (8, 8, 64));
        assert!(text.contains("\"train_batch_size\": 64, ") && !text.contains("steps\": 8"), "{text}");
    }
    let (_, step, _) = json(
        "{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 8, DIMS}",
        "h200",
        &["--world-size", "2"],
    );
    assert_eq!((step.batch, step.ranks, step.global), (4, 2, 64));
    // Scripts of diffusers count a batch on each device.
    let diffusers = "{\"train_batch_size\": 4, \"gradient_accumulation_steps\": 8, \"mixed_precision\": \"no\", DIMS}";
    assert_eq!(json(diffusers, "h200", &[]).1.global, 32);
}

#[test]
fn a_batch_that_fits_stays_unless_another_is_faster() {
    let config = |batch: u64, steps: u64| format!("batch_size: {batch}\ngrad_accum: {steps}\n");
    // From a batch that is too small, the smallest within 2% of the fastest is planned.
    assert_eq!(yaml(&config(1, 1024), "h200", &[]), config(256, 4));
    for (batch, steps) in [(256, 4), (512, 2)] {
        assert_eq!(yaml(&config(batch, steps), "h200", &[]), config(batch, steps));
    }
}

#[test]
fn only_keys_of_the_ecosystem_are_added() {
    let large = DIMS.replace("128", "1024");
    let text = format!("{{\"train_micro_batch_size_per_gpu\": 512, \"steps_per_print\": 10, {large}}}");
    let (_, step, text) = json(&text, "gtx1080", &["--add"]);
    assert_eq!(step.global, 512);
    assert!(
        text.contains("\"gradient_accumulation_steps\": ") && !text.contains("\"gradient_accumulation\""),
        "{text}"
    );
    assert!(!text.contains("workers"), "{text}");
}

#[test]
fn a_step_in_the_backward_pass_is_not_split() {
    let text = format!(
        "{MODEL}model: {{_component_: x.llama}}\ntokenizer: {{_component_: x.tok}}\nbatch_size: 512\n\
         gradient_accumulation_steps: 1\noptimizer_in_bwd: false\n"
    );
    let steps = |text: &str| tuned(Format::Yaml, text, "gtx1080", &[]).expect("an answer").0.text;
    assert!(steps(&text).is_some_and(|text| text.contains("gradient_accumulation_steps: 32\n")));
    assert_eq!(steps(&text.replace("bwd: false", "bwd: true")), None);
}

#[test]
fn keys_of_the_step_are_read_or_refused() {
    for (text, samples) in [
        ("batch_size: 4\nupdate_freq: [16]\n", 64),
        ("batch_size: 4\ngrad_accumulation_factor: 8\n", 32),
        ("batch_size: 4\naccum_grad: 8\n", 32),
        ("batch_size: 4\ngradient_accumulate_every: 8\n", 32),
        ("batch_size: 4\nlr: 1\nnum_gpu: 8\n", 32),
        ("batch_size: 4\nlr: 1\ndistributed_world_size: 8\n", 32),
        ("batch_size: 4\ntarget_batch_size: 32\n", 32),
        // YOLO: whole batches of about 64 images.
        ("batch: 16\nimgsz: 640\n", 64),
        ("batch: 16\nimgsz: 640\nnbs: 32\n", 32),
        ("batch: 24\nimgsz: 640\n", 72),
        ("batch: 128\nimgsz: 640\n", 128),
        // NeMo: accumulation is implied.
        ("micro_batch_size: 4\nglobal_batch_size: 8\ntrainer: {devices: 1, accumulate_grad_batches: 1}\n", 8),
        ("train: {global_batch_size: 32, micro_batch_size: 4}\ndevices: 2\n", 32),
        // nanoGPT's processes share the accumulation.
        ("batch_size: 4\nblock_size: 64\ngradient_accumulation_steps: 8\neval_iters: 1\n", 32),
        ("batch_size: 4\nmixed_precision: 'no'\ngradient_accumulation_steps: 8\n", 32),
        ("local_batch_size: 4\nlr: 1\n", 4),
        ("micro_bsz: 4\naccumulate_grad_batches: 2\n", 8),
        ("batch_size: 128\nmicro_batch_size: 4\nlr: 1\n", 128),
    ] {
        let whole = format!("{MODEL}{text}");
        let (tuned, step) = tuned(Format::Yaml, &whole, "h200", &[]).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((step.global, step.configured()), (samples, samples), "{text}");
        assert!(tuned.text.is_some(), "{text}");
    }
    let nanogpt = format!("{MODEL}batch_size: 4\nblock_size: 64\ngradient_accumulation_steps: 8\neval_iters: 1\n");
    let (_, step) = tuned(Format::Yaml, &nanogpt, "h200", &["--world-size", "4"]).expect("a plan");
    assert_eq!((step.accumulation, step.global), (2, 32));
    let schedule = "trainer:\n  accumulate_grad_batches: {0: 8, 4: 4}\ndata: {batch_size: 4}\n";
    let words = refused_yaml(schedule, &[]);
    assert!(
        words.starts_with(
            "config:3:28: `trainer.accumulate_grad_batches`: expected a whole number from 1 to 2^30, found a table"
        ),
        "{words}"
    );
    assert!(words.contains("--leave trainer.accumulate_grad_batches"), "{words}");
    // A schedule that stays keeps the micro-batch.
    assert_eq!(yaml(schedule, "h200", &["--leave", "trainer.accumulate_grad_batches"]), schedule);
    let words = refused_yaml("batch_size: 0.7\nimgsz: 640\n", &[]);
    assert!(words.contains("expected a whole number from 1 to 2^30, found 0.7"), "{words}");
}

#[test]
fn open_values_are_taken_from_options() {
    let words = refused_yaml("train_micro_batch_size_per_gpu: auto\ngradient_accumulation_steps: auto\n", &[]);
    assert_eq!(
        words,
        "config:2:1: `train_micro_batch_size_per_gpu` is left to the program: give the samples of an optimizer step over all devices: \
         --global-batch"
    );
    let text = "train_micro_batch_size_per_gpu: auto\ngradient_accumulation_steps: auto\n";
    assert_eq!(
        yaml(text, "h200", &["--global-batch", "32"]),
        "train_micro_batch_size_per_gpu: 32\ngradient_accumulation_steps: 1\n"
    );
    let words = refused_yaml("batch_size: 8\ngradient_accumulation_steps: auto\nlr: 1\n", &[]);
    assert!(words.starts_with("config:3:1: `gradient_accumulation_steps` is left to the program"), "{words}");
    let composer = "device_train_microbatch_size: auto\nglobal_train_batch_size: 16\nprecision: amp_bf16\n";
    assert!(yaml(composer, "h200", &[]).starts_with("device_train_microbatch_size: 16\nglobal_train_batch_size: 16\n"));
    // The arguments fill in the section of DeepSpeed.
    let both = "per_device_train_batch_size: 8\ngradient_accumulation_steps: 2\ndeepspeed: {train_micro_batch_size_per_gpu: auto, \
                gradient_accumulation_steps: auto, bf16: {enabled: auto}}\nbf16: true\n";
    let text = yaml(both, "h200", &[]);
    assert!(text.contains("deepspeed: {train_micro_batch_size_per_gpu: auto, gradient_accumulation_steps: auto, bf16: {enabled: auto}}"), "{text}");
    let words = refused_yaml(&both.replace("gpu: auto", "gpu: 4"), &[]);
    assert!(
        words.contains("`deepspeed.train_micro_batch_size_per_gpu` is not `per_device_train_batch_size`, which is 8"),
        "{words}"
    );
    let equal = yaml(&both.replace("gpu: auto", "gpu: 8"), "h200", &[]);
    assert!(equal.starts_with("per_device_train_batch_size: 16\n") && equal.contains("gpu: 16,"), "{equal}");
}

#[test]
fn an_open_precision_is_named() {
    let text = "train_micro_batch_size_per_gpu: 8\nbf16: {enabled: auto}\nfp16: {enabled: auto}\n";
    let words = refused_yaml(text, &[]);
    assert_eq!(words, "config:3:8: `bf16.enabled` leaves the precision to the program: give it with --precision");
    let asked = yaml(text, "h200", &["--precision", "mixed_bf16"]);
    assert!(asked.ends_with("bf16: {enabled: true}\nfp16: {enabled: false}\n"), "{asked}");
}

#[test]
fn references_follow_their_key_and_tables_of_evaluation_are_no_rivals() {
    for text in [
        "batch_size: 8\nlr: 1\ntrain_dataloader: {batch_size: !ref <batch_size>}\n",
        "batch_size: 8\nlr: 1\ndata: {batch_size: '${batch_size}'}\n",
        "train: {batch_size: 8, lr: 1}\neval_loader: {batch_size: 9}\n",
        "train: {batch_size: 8, lr: 1}\nval_dataloader: {batch_size: 9}\n",
        "train: {batch_size: 8, lr: 1}\nvalidation_ds: {batch_size: 9}\n",
        "train: {batch_size: 8, lr: 1}\nevaluators:\n- {batch_size: 9}\n",
        "train: {batch_size: 8, lr: 1}\ntask_specific_params: {summary: {max_length: 9, batch_size: 9}}\n",
    ] {
        assert_eq!(yaml(text, "h200", &[]), text);
    }
    let words = refused_yaml("hp: {bsz: 8}\nlr: 1\ndata:\n  batch_size: ${hp.bsz}\n", &[]);
    assert_eq!(
        words,
        "config:5:15: `data.batch_size` refers to `${hp.bsz}`: name the key with the number: --at batch_size=hp.bsz, or leave it as \
         it is: --leave data.batch_size"
    );
    let named = yaml("hp: {bsz: 8}\nlr: 1\ndata:\n  batch_size: ${hp.bsz}\n", "h200", &["--at", "batch_size=hp.bsz"]);
    assert!(named.starts_with("hp: {bsz: 8}\n"), "{named}");
    let words = refused_yaml("batch_size: ${oc.env:BATCH}\nlr: 1\n", &[]);
    assert!(words.contains("`batch_size` refers to `${oc.env:BATCH}`: put a value in its place"), "{words}");
}

#[test]
fn workers_stay_where_the_host_is_unknown() {
    let text = "batch_size: 8\nlr: 1\nnum_workers: 9\nprefetch_factor: 3\n";
    assert_eq!(yaml(text, "h200", &[]), text);
    assert!(yaml(text, "h200", &["--host"]).contains("num_workers: 4\nprefetch_factor: 1\n"));
}

#[test]
fn words_that_are_not_modelled_are_refused_or_left() {
    for (key, text) in [
        ("gradient_checkpointing", "batch_size: 8\nlr: 1\ngradient_checkpointing: selective\n"),
        ("precision", "batch_size: 8\nlr: 1\nprecision: PURE\n"),
        ("optimizer", "batch_size: 8\nlr: 1\noptimizer: lion\n"),
        ("max_prompt_length", "per_device_train_batch_size: 8\nmax_prompt_length: 64\n"),
        ("tensor_model_parallel_size", "batch_size: 8\nlr: 1\ntensor_model_parallel_size: 2\n"),
        (
            "lora_modules_to_save",
            "base_model: x\nmicro_batch_size: 8\nsequence_len: 64\nlora_modules_to_save: [lm_head]\n",
        ),
        (
            "loss._component_",
            "model: {_component_: x}\ntokenizer: {_component_: y}\nbatch_size: 8\nloss: {_component_: torchtune.rlhf.loss.DPOLoss}\n",
        ),
        ("batch_type", "batch_size: 8\nlr: 1\nbatch_type: tokens\n"),
        ("rl", "base_model: x\nmicro_batch_size: 8\nsequence_len: 64\nrl: dpo\n"),
        ("trainer.precision", "trainer: {max_epochs: 1, precision: 64-true}\nbatch_size: 8\n"),
    ] {
        let words = refused_yaml(text, &[]);
        assert!(words.contains(&format!("`{key}`: `")) && words.contains(&format!("--leave {key}")), "{text}: {words}");
        assert!(words.contains("config:"), "{words}");
        assert_eq!(yaml(text, "h200", &["--leave", key]), text);
    }
    for (given, becomes) in [
        (
            "base_model: x\nmicro_batch_size: 8\nsequence_len: 64\ngradient_checkpointing: unsloth\n",
            "gradient_checkpointing: false",
        ),
        ("batch_size: 8\nlr: 1\nenable_activation_checkpointing: true\n", "enable_activation_checkpointing: false"),
        ("TRAIN: {BATCH_SIZE: 8, LR: 1, USE_CHECKPOINT: true}\n", "USE_CHECKPOINT: false"),
        ("batch_size: 8\nlr: 1\nprecision: bf16_mixed\n", "precision: bf16_mixed"),
        ("batch_size: 8\nlr: 1\nfp16_run: true\n", "fp16_run: true"),
        ("batch_size: 8\nlr: 1\nAMP_ENABLE: true\n", "AMP_ENABLE: true"),
    ] {
        let text = yaml(given, "h200", &[]);
        assert!(text.contains(becomes), "{given} became {text}");
    }
}

#[test]
fn memory_in_pytorch_follows_the_features_of_the_run() {
    let bytes = |text: &str, options: &[&str]| {
        let whole = format!("{MODEL}per_device_train_batch_size: 8\nbf16: true\n{text}");
        let (tuned, _) = tuned(Format::Yaml, &whole, "h200", options).expect("a plan");
        tuned.pytorch.expect("an estimate").before_bytes.0
    };
    let as_is = bytes("", &[]);
    let less = ["gradient_checkpointing: true\n", "optim: adamw_bnb_8bit\n", "use_liger_kernel: true\n"];
    for text in less {
        assert!(bytes(text, &[]) < as_is, "{text}");
    }
    assert!(bytes("attn_implementation: eager\n", &[]) > as_is);
    let ranks = &["--world-size", "4"];
    let [alone, path, inline] =
        ["", "deepspeed: ds_z3.json\n", "deepspeed: {zero_optimization: {stage: 3}}\n"].map(|text| bytes(text, ranks));
    assert!(path < alone && path == inline, "{alone} {path} {inline}");
    let plain = format!("{MODEL}batch_size: 8\nlr: 1\n");
    assert!(tuned(Format::Yaml, &plain, "h200", &[]).expect("a plan").0.pytorch.is_none());
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
