//! Configs of usual programs, planned for GPUs without a file on the disk.

mod cases;
mod data_sets;
mod dialects;
mod ecosystems;
mod files;
mod guides;
mod micro_batches;
mod models;
mod names;
mod precision;
mod spelling;

use std::path::Path;

use gpu_tuned_core::Goal;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::Optimizer;

use crate::{Config, ConfigText, Format, KeyOverride, Model, ModelRequest, OptimizeError, Step, Task, Tuned, Tuner};

fn file(format: Format, text: &str) -> ConfigText {
    ConfigText::new(Path::new("config"), format, text)
}

fn model(file: &ConfigText, kind: Option<&str>, optimizer: Option<Optimizer>) -> Result<Model, OptimizeError> {
    Model::read(&file.entries()?, file, &ModelRequest { kind, optimizer, ..ModelRequest::default() })
}

/// Tunes a text for one GPU. Options: `--add`, `--precision NAME`, `--world-size RANKS`, `--global-batch SAMPLES`, `--leave KEY`,
/// `--at batch_size=KEY`, `--host` for known CPU cores.
fn tuned(format: Format, text: &str, target: &str, options: &[&str]) -> Result<(Tuned, Step), OptimizeError> {
    tuned_file(&file(format, text), target, options)
}

fn tuned_file(file: &ConfigText, target: &str, options: &[&str]) -> Result<(Tuned, Step), OptimizeError> {
    let option = |name: &str| options.iter().position(|option| *option == name).map(|at| options[at + 1]);
    let entries = file.entries()?;
    let left = option("--leave").map(|key| KeyOverride::leave(key, &entries)).transpose()?;
    let at =
        option("--at").and_then(|at| at.split_once('=')).map(|(setting, key)| KeyOverride::new(setting, key, &entries));
    let overrides: Vec<_> = left.into_iter().chain(at.transpose()?).collect();
    let config = Config::read(&entries, file, &overrides)?;
    let number = |name: &str| option(name).map(|number| number.parse().expect("a number"));
    let step = Step::new(&config, number("--global-batch"), number("--world-size"))?;
    let request = ModelRequest { optimizer: config.optimizer, config: Some(&config), ..ModelRequest::default() };
    let model = Model::read(&entries, file, &request)?;
    let workload = model.spec.workload();
    let task = Task {
        config: &config,
        step,
        workload: &workload,
        name: "model",
        goal: Goal::default(),
        precision: option("--precision").map(|name| name.parse().expect("a precision")),
        add_keys: options.contains(&"--add"),
    };
    let profile = ProfileTable::builtin().get(target).expect("a shipped profile");
    let host_cores = options.contains(&"--host").then_some(8);
    let facts = DeviceFacts { host_cores, ..DeviceFacts::nominal(profile) };
    let goal = task.goal.clone();
    let tuner = Tuner { file, entries: &entries, overrides: &overrides, task, spec: Some(&model.spec) };
    Ok((tuner.tune(target, &facts, goal)?, step))
}

/// The text of the tuned config; `None` where the training does not fit.
fn optimised(format: Format, text: &str, target: &str, options: &[&str]) -> Result<Option<String>, OptimizeError> {
    tuned(format, text, target, options).map(|(tuned, _)| tuned.text)
}

fn refused(format: Format, text: &str, words: &[&str]) -> String {
    match optimised(format, text, "h200", words) {
        Ok(text) => panic!("not refused: {text:?}"),
        Err(error) => error.to_string(),
    }
}

const MODEL: &str = "transformer: {n_layers: 4, d_model: 256, n_heads: 4, vocab_size: 8192, seq_len: 512}\n";

#[test]
fn a_batch_that_does_not_fit_is_cut_and_the_rest_of_the_file_stays() {
    let text = format!(
        "# kept\n{MODEL}train:\n  batch_size: 512   # all at once\n  grad_accum: 1\n  'num_workers': 0\n  bf16: no\nlast: [1,  2] # kept\n"
    );
    let changed = optimised(Format::Yaml, &text, "gtx1080", &["--host"]).expect("a plan").expect("it fits");
    insta::assert_snapshot!(changed.replace(MODEL, ""), @r"
    # kept
    train:
      batch_size: 16   # all at once
      grad_accum: 32
      'num_workers': 4
      bf16: no
    last: [1,  2] # kept
    ");
}

#[test]
fn spellings_stay_what_they_are() {
    for (given, asked, becomes) in [
        ("precision: '32-true'", "mixed_bf16", "precision: 'bf16-mixed'"),
        ("precision: 32", "mixed_bf16", "precision: bf16"),
        ("mixed_precision: 'no'", "mixed_f16", "mixed_precision: 'fp16'"),
        ("mixed_precision: no", "mixed_bf16", "mixed_precision: bf16"),
        ("mixed_precision: \"bf16\"", "f32", "mixed_precision: \"no\""),
        ("mixed_precision: bf16", "f32", "mixed_precision: 'no'"),
        ("dtype: torch.float32", "mixed_bf16", "dtype: torch.bfloat16"),
        ("fp16: False\nbf16: True", "f32", "fp16: False\nbf16: False"),
        ("fp16: 0\nbf16: 0", "mixed_f16", "fp16: 1\nbf16: 0"),
        ("bf16: {enabled: false}", "mixed_bf16", "bf16: {enabled: true}"),
        ("amp: true\namp_dtype: bfloat16", "mixed_f16", "amp: true\namp_dtype: float16"),
        ("amp: on\namp_dtype: bfloat16", "f32", "amp: off\namp_dtype: bfloat16"),
        ("mixed_precision: true", "f32", "mixed_precision: false"),
        ("precision: f32", "bf16_params", "precision: bf16_params"),
    ] {
        let text = format!("{MODEL}batch_size: 8\n{given}\n");
        let changed = optimised(Format::Yaml, &text, "h200", &["--precision", asked]);
        let changed = changed.unwrap_or_else(|error| panic!("{given}: {error}")).expect("it fits");
        let rest = changed.rsplit_once("batch_size: 8\n").expect("the batch is the step").1;
        assert_eq!(rest.trim_end(), becomes);
    }
}

#[test]
fn tf32_is_turned_on_where_it_is_left_open_and_off_where_the_gpu_has_none() {
    for (given, target, becomes) in [
        ("tf32: null", "h200", "tf32: true"),
        ("tf32:   # open", "h200", "tf32: true   # open"),
        ("tf32: false", "h200", "tf32: false"),
        ("tf32: True", "gtx1080", "tf32: False"),
        ("float32_matmul_precision: medium", "h200", "float32_matmul_precision: medium"),
        ("float32_matmul_precision: high", "gtx1080", "float32_matmul_precision: highest"),
    ] {
        let text = format!("{MODEL}batch_size: 8\n{given}\n");
        let changed = optimised(Format::Yaml, &text, target, &[]).expect("a plan").expect("it fits");
        assert_eq!(changed.rsplit_once("batch_size: 8\n").expect("the batch stays").1.trim_end(), becomes);
    }
}

#[test]
fn a_precision_that_the_keys_cannot_express_is_refused() {
    let text = format!("{MODEL}batch_size: 8\namp: false\n");
    let words = refused(Format::Yaml, &text, &["--precision", "mixed_bf16"]);
    assert!(words.starts_with("the config cannot express mixed_bf16"), "{words}");
}

#[test]
fn a_micro_batch_fits_in_pytorch_too() {
    let dims = "\"num_hidden_layers\": 32, \"hidden_size\": 256, \"num_attention_heads\": 4, \"vocab_size\": 128256";
    let train = "\"max_position_embeddings\": 512, \"fp16\": true, \"num_train_epochs\": 1, \"output_dir\": \"x\"";
    let tune = |batch: u64, steps: u64| {
        let step = format!("\"per_device_train_batch_size\": {batch}, \"gradient_accumulation_steps\": {steps}");
        let (tuned, _) = tuned(Format::Json, &format!("{{{step}, {dims}, {train}}}"), "h200", &[]).expect("a plan");
        let (plan, memory) = tuned.plan.clone().zip(tuned.pytorch).expect("a transformer");
        let schedule = &plan.schedule;
        assert_eq!(schedule.samples_per_rank(), batch * steps);
        (
            plan.settings.batch_size,
            memory.after_bytes.is_some_and(|bytes| bytes <= plan.memory.available),
            tuned.warnings,
        )
    };
    // All 128 at once would fit in Burn, and need 144 GiB in PyTorch.
    assert_eq!(tune(4, 32), (64, true, Vec::new()));
    assert_eq!(tune(64, 2), (64, true, Vec::new()));
}

#[test]
fn prefetch_is_per_worker_in_pytorch_keys() {
    for (key, becomes) in [("prefetch_factor", "1"), ("prefetch_depth", "2")] {
        let text = format!("{MODEL}batch_size: 8\nnum_workers: 8\n{key}: 5\n");
        let changed = optimised(Format::Yaml, &text, "h200", &["--host"]).expect("a plan").expect("it fits");
        assert!(changed.ends_with(&format!("num_workers: 4\n{key}: {becomes}\n")), "{changed}");
    }
}

#[test]
fn accumulation_needs_a_key_that_the_program_reads() {
    let text = format!("{MODEL}batch_size: 512\n");
    let (without_key, _) = tuned(Format::Yaml, &text, "gtx1080", &[]).expect("an answer");
    assert_eq!((without_key.plan.is_some(), without_key.with_accumulation.is_some()), (false, true));
    let added = optimised(Format::Yaml, &text, "gtx1080", &["--add"]).expect("a plan").expect("it fits");
    assert!(added.contains("\ngradient_accumulation: "), "{added}");
    let text = text.replace("batch_size", "per_device_train_batch_size");
    let added = optimised(Format::Yaml, &text, "gtx1080", &["--host"]).expect("a plan").expect("it fits");
    assert!(
        added.contains("\ngradient_accumulation_steps: ") && added.contains("\ndataloader_num_workers: 4\n"),
        "{added}"
    );
    let camel = format!(
        "{{\"model\": {}, \"batchSize\": 512}}",
        "{\"type\": \"mlp\", \"input_size\": 9, \"hidden_sizes\": [9]}"
    );
    let added = optimised(Format::Json, &camel, "gtx1080", &["--add", "--host"]).expect("a plan").expect("it fits");
    assert!(added.ends_with("\"batchSize\": 512, \"numWorkers\": 4}"), "{added}");
}

#[test]
fn global_batch_and_micro_batch_imply_the_accumulation() {
    let text = format!("{MODEL}global_train_batch_size: 512\ndevice_train_microbatch_size: 256\nmax: ${{seq}}\n");
    let changed = optimised(Format::Yaml, &text, "gtx1080", &[]).expect("a plan").expect("it fits");
    let batch: u64 = changed
        .rsplit_once("microbatch_size: ")
        .and_then(|(_, rest)| rest.lines().next()?.parse().ok())
        .expect("a number");
    assert!(batch < 256 && 512 % batch == 0 && changed.contains("global_train_batch_size: 512\n"), "{changed}");
    // The devices share the global batch, which no key divides.
    let text = format!("{MODEL}SOLVER: {{IMS_PER_BATCH: 16}}\nnum_gpus: 2\nnum_workers: 9\n");
    let changed = optimised(Format::Yaml, &text, "h200", &["--host"]).expect("a plan").expect("it fits");
    assert_eq!(changed, text.replace("workers: 9", "workers: 4"));
}

#[test]
fn a_model_with_batch_statistics_keeps_its_micro_batch() {
    let with = |statistics: bool| {
        let text = format!(
            "arch: resnet\nimage_size: 32\nchannels: 16\nblocks: 2\nbatch_norm: {statistics}\nbatch_size: 8\naccum_steps: 64\n"
        );
        optimised(Format::Yaml, &text, "h200", &[]).expect("a plan").expect("it fits")
    };
    assert!(with(true).ends_with("batch_size: 8\naccum_steps: 64\n"));
    assert!(!with(false).contains("batch_size: 8\n"));
}

#[test]
fn a_precision_that_the_gpu_lacks_becomes_f32_with_a_warning() {
    let text = format!("{MODEL}batch_size: 8\nbf16: true\n");
    let (tuned, _) = tuned(Format::Yaml, &text, "gtx1080", &[]).expect("a plan");
    assert!(tuned.text.is_some_and(|text| text.ends_with("batch_size: 8\nbf16: false\n")));
    assert_eq!(tuned.warnings, ["no bf16 tensor cores: f32 in place of mixed_bf16, which changes how the run rounds"]);
}

#[test]
fn tables_of_evaluation_are_ignored() {
    let text =
        format!("{MODEL}train: {{batch_size: 8}}\nval:\n  batch_size: 99\n  num_workers: 9\neval_batch_size: 8\n");
    let changed = optimised(Format::Yaml, &text, "h200", &[]).expect("a plan").expect("it fits");
    assert!(changed.contains("val:\n  batch_size: 99\n  num_workers: 9\n"), "{changed}");
}

#[test]
fn bad_values_name_line_and_column() {
    for (given, message) in [
        ("batch_size: 0", "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found 0"),
        ("batch_size: -4", "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found -4"),
        ("batch_size: 99999999999999999999", "config:2:13: `batch_size`: expected a whole number from 1 to 2^30"),
        ("batch_size: 16.5", "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found 16.5"),
        ("batch_size: true", "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found true or false"),
        ("batch_size: '16'", "config:2:13: `batch_size`: expected a whole number from 1 to 2^30, found a text"),
        (
            "batch_size: 8\nnum_workers: 5000",
            "config:3:14: `num_workers`: expected a whole number from 0 to 4096, found 5000",
        ),
        ("batch_size: 8\nbf16: 2", "config:3:7: `bf16`: expected true or false, found 2"),
        ("batch_size: 8\nprecision: fp8", "config:3:12: `precision`: `fp8` is not modelled: expected f32, "),
        (
            "batch_size: 8\nbf16: true\nfp16: true",
            "config:4:1: `bf16` asks for mixed_bf16 and `fp16` for mixed_f16: keep one",
        ),
        (
            "a: {batch_size: 8}\nb: {batch_size: 9}",
            "config:3:5: `a.batch_size` and `b.batch_size` both look like the batch_size of training; choose one: --at \
             batch_size=a.batch_size",
        ),
        ("learning_rate: 1\naccum_steps: 2", "the config has no batch size"),
        (
            "batch_size: 1000000\ngrad_accum: 1000000",
            "a batch of 1000000 x 1000000 x 1 rank(s) is more than 2^30 samples",
        ),
        (
            "batch_size: 8\nglobal_batch: 12",
            "config:3:1: `batch_size` 8 x 1 x 1 rank(s) are 8 samples, but `global_batch` is 12",
        ),
    ] {
        let words = refused(Format::Yaml, &format!("{MODEL}{given}\n"), &[]);
        assert!(words.starts_with(message), "{given}: {words}");
    }
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
