//! Keys of the precision, and of features that change the memory.

use super::cases::{refused_yaml, yaml};
use super::{MODEL, file, tuned};
use crate::{ChangeState, Config, Format};

#[test]
fn precision_is_written_in_the_words_of_the_ecosystem() {
    for (given, target, becomes) in [
        ("trainer: {max_epochs: 3, precision: bf16-mixed}\nbatch_size: 8\n", "gtx1080", "precision: 32-true"),
        (
            "compute_environment: X\ndistributed_type: 'NO'\nmixed_precision: bf16\nbatch_size: 8\n",
            "gtx1080",
            "mixed_precision: 'no'",
        ),
        (
            "model: {_component_: x.llama}\ntokenizer: {_component_: x.tok}\nbatch_size: 8\ndtype: bf16\n",
            "gtx1080",
            "dtype: fp32",
        ),
        ("batch_size: 8\nlr: 1\nprecision: fp32\n", "h200", "precision: fp32"),
        ("per_device_train_batch_size: 8\nbf16: true\nfp16: false\n", "gtx1080", "bf16: false\nfp16: false"),
        // Weights in bf16 are the pure format.
        (
            "per_device_train_batch_size: 8\nbf16: false\ntorch_dtype: bfloat16\n",
            "gtx1080",
            "bf16: false\ntorch_dtype: float32",
        ),
        ("batch_size: 8\nlr: 1\nprecision: amp_bf16\n", "gtx1080", "precision: fp32"),
    ] {
        let text = yaml(given, target, &[]);
        assert!(text.contains(becomes), "{given} became {text}");
    }
    let asked = yaml("per_device_train_batch_size: 8\n", "h200", &["--precision", "mixed_bf16"]);
    assert_eq!(asked, "per_device_train_batch_size: 8\nbf16: true\n");
    let asked = yaml("trainer:\n  max_epochs: 3\nbatch_size: 8\n", "h200", &["--precision", "mixed_bf16"]);
    assert!(asked.contains("  precision: bf16-mixed\n"), "{asked}");
}

#[test]
fn a_precision_without_a_key_is_added_or_left_to_the_user() {
    const TUNE: &str = "model: {_component_: x.llama}\ntokenizer: {_component_: x.tok}\nbatch_size: 8\n";
    for (given, precision, key, word) in [
        ("batch_size: 8\nlr: 1\n", "mixed_bf16", "precision", "mixed_bf16"),
        ("base_model: x\nmicro_batch_size: 8\nsequence_len: 64\n", "mixed_bf16", "bf16", "true"),
        ("train_micro_batch_size_per_gpu: 8\nsteps_per_print: 10\n", "mixed_bf16", "bf16.enabled", "true"),
        ("train: {global_batch_size: 8, micro_batch_size: 8}\n", "mixed_bf16", "precision", "bf16-mixed"),
        ("batch_size: 8\nblock_size: 64\neval_iters: 9\n", "mixed_bf16", "dtype", "bfloat16"),
        ("batch_size: 8\nvalidation_split: 0.1\n", "mixed_bf16", "dtype_policy", "mixed_bfloat16"),
        (TUNE, "bf16_params", "dtype", "bf16"),
    ] {
        let text = format!("{MODEL}{given}");
        for options in [&["--precision", precision][..], &["--precision", precision, "--add"]] {
            let (tuned, _) = tuned(Format::Yaml, &text, "h200", options).unwrap_or_else(|it| panic!("{given}: {it}"));
            let is_added = options.len() > 2 && key == "precision" && word == precision;
            let state = if is_added { ChangeState::Added } else { ChangeState::ByHand };
            let change = tuned.changes.iter().find(|change| change.setting == "precision").expect("a row");
            assert_eq!((change.key.as_str(), change.after.as_str(), change.state), (key, word, state), "{given}");
            let after = tuned.text.expect("it fits");
            assert_eq!(after.contains("precision: mixed_bf16"), is_added, "{after}");
        }
    }
    // torchtune has no automatic mixed precision.
    let words = refused_yaml(TUNE, &["--precision", "mixed_bf16"]);
    assert!(words.starts_with("the config cannot express mixed_bf16\n  help: choose with --precision"), "{words}");
    let asked = yaml("per_device_train_batch_size: 8\ntorch_dtype: float32\n", "h200", &["--precision", "mixed_bf16"]);
    assert_eq!(asked, "per_device_train_batch_size: 8\nbf16: true\ntorch_dtype: float32\n");
}

#[test]
fn the_strongest_of_several_keys_decides_on_a_feature() {
    const AXOLOTL: &str = "base_model: x\nmicro_batch_size: 8\nsequence_len: 64\n";
    for (given, feature) in [
        ("flash_attention: false\nsdp_attention: true\n", "flash_attention"),
        ("liger_fused_linear_cross_entropy: false\ncut_cross_entropy: true\n", "fused_cross_entropy"),
    ] {
        let read = |text: String| {
            let file = file(Format::Yaml, &text);
            Config::read(&file.entries().expect("entries"), &file, &[]).expect("a config").feature(feature)
        };
        assert_eq!(read(format!("{AXOLOTL}{given}")).as_deref(), Some("true"));
        assert_eq!(read(format!("{AXOLOTL}{}", given.replace("true", "false"))).as_deref(), Some("false"));
    }
}
