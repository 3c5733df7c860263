//! Keys of ecosystems that a hand-written config means otherwise, or that no plan covers.

use super::cases::yaml;
use super::{MODEL, refused, tuned};
use crate::{ConfigText, Format, Step};

/// The error for the text behind the model's dimensions.
fn error(text: &str) -> String {
    refused(Format::Yaml, &format!("{MODEL}{text}"), &[])
}

#[test]
fn settings_that_share_a_value_can_both_change() {
    let text = "batch_size: &bs 8\nlr: 1\ngradient_accumulation_steps: 4\neval_batch_size: *bs\nbuffer: *bs\n";
    let tuned = yaml(text, "h200", &[]);
    assert_eq!(tuned, "batch_size: &bs 32\nlr: 1\ngradient_accumulation_steps: 1\neval_batch_size: 64\nbuffer: 8\n");
}

#[test]
fn values_that_stay_are_not_rewritten() {
    let text = "batch_size: 8\nlr: 1\nbf16: auto\nfp16:\n";
    assert_eq!(yaml(text, "h200", &["--precision", "f32"]), text);
}

#[cfg(unix)]
#[test]
fn only_regular_files_of_a_bounded_size_are_read() {
    let folder = std::env::temp_dir().join(format!("gpu-tuned-optimize-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let read = |name: &str| ConfigText::read(&folder.join(name)).expect_err("not read").to_string();
    std::os::unix::fs::symlink("/dev/zero", folder.join("zero.yaml")).expect("a link");
    let socket = std::os::unix::net::UnixListener::bind(folder.join("socket.yaml")).expect("a socket");
    let large = std::fs::File::create(folder.join("large.yaml")).expect("a file");
    large.set_len((64 << 20) + 1).expect("a size");
    let found = ["zero.yaml", "socket.yaml", "large.yaml"].map(read);
    drop(socket);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    assert!(found[0].ends_with("it is no regular file") && found[1].ends_with("it is no regular file"), "{found:?}");
    assert!(found[2].contains("64 MiB"), "{found:?}");
}

#[test]
fn numbers_that_readers_disagree_about_are_refused() {
    assert_eq!(
        error("batch_size: 010\nlr: 1\n"),
        "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found 010, which is octal in YAML 1.1"
    );
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
    let wenet = "encoder_conf: {x: 1}\ndataset_conf: {batch_conf: {batch_type: static, batch_size: 24}}\naccum_grad: 4\nlr: 1\n";
    let neox = "train_micro_batch_size_per_gpu: 4\ngradient_accumulation_steps: 8\npipe_parallel_size: 1\nmodel_parallel_size: 1\n";
    for (text, options, expected) in [
        (nanotron, &[][..], [3, 2, 4, 24]),
        (axolotl, &[], [2, 8, 1, 16]),
        (axolotl, &["--world-size", "2"], [2, 8, 2, 32]),
        (slowfast, &[], [8, 1, 8, 64]),
        (template, &[], [64, 1, 2, 128]),
        (wenet, &[], [24, 4, 1, 96]),
        (neox, &[], [4, 8, 1, 32]),
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

#[test]
fn an_open_micro_batch_has_no_memory_before() {
    let text = "device_train_microbatch_size: auto\nglobal_train_batch_size: 16\nprecision: amp_bf16\n";
    let (tuned, _) = tuned(Format::Yaml, &format!("{MODEL}{text}"), "h200", &[]).expect("a plan");
    assert_eq!(tuned.before.problem.as_deref(), Some("the config leaves the micro-batch to the program"));
    assert!(tuned.before.memory_bytes.is_none() && tuned.pytorch.is_none() && tuned.after.fits);
}
