//! Edits of files, files of other programs, dialects of users, and time.

use proptest::prelude::*;

use super::cases::{DIMS, json, yaml};
use super::{MODEL, optimised, refused, tuned};
use crate::dialect::DIALECTS;
use crate::{Dialect, Format, OptimizeError};

#[test]
fn settings_that_share_a_value_keep_theirs() {
    let text = "batch_size: &bs 512 # of a step\nlr: 1\ngrad_accum: 1\nbuffer_size: *bs\nother: [*bs, 3]\n";
    let tuned = yaml(text, "gtx1080", &[]);
    assert_eq!(tuned, "batch_size: &bs 16 # of a step\nlr: 1\ngrad_accum: 32\nbuffer_size: 512\nother: [512, 3]\n");
    let tuned = yaml("batch_size: &bs !!int '512'\nlr: 1\ngrad_accum: 1\nother: [*bs]\n", "gtx1080", &[]);
    assert_eq!(tuned, "batch_size: &bs !!int '16'\nlr: 1\ngrad_accum: 32\nother: [!!int '512']\n");
    let shared = "base: &base {batch_size: 512, lr: 1, grad_accum: 1}\na: {<<: *base}\nb: {<<: *base}\n";
    let words =
        optimised(Format::Yaml, &format!("{MODEL}{shared}"), "gtx1080", &[]).expect_err("two tables").to_string();
    assert!(words.starts_with("`base.grad_accum` is in a table with a YAML anchor"), "{words}");
    let trainer = "data: {batch_size: 2048, lr: 1}\ntrainer: &t {accelerator: gpu, max_epochs: 3}\n";
    for (others, effect) in [
        ("a: {<<: *t}\nb: {<<: *t}\n", Err("`trainer.accelerator` is in a table with a YAML anchor")),
        ("a: {<<: *t}\n", Ok("the table of `trainer.accelerator` is merged in line 4, and changes there, too")),
        ("a: {n: '${data.batch_size}'}\n", Ok("values that refer to changed keys change with them: `a.n`")),
        (
            "a: {n: ['${mul:2,${data.batch_size}}'], m: 'x{{ data.batch_size }}', o: '<data.other>'}\neval: {n: '${data.batch_size}'}\n",
            Ok("values that refer to changed keys change with them: `a.n[0]`, `a.m`, `eval.n`"),
        ),
    ] {
        let tuned = super::tuned(Format::Yaml, &format!("{MODEL}{trainer}{others}"), "gtx1080", &[]);
        match (tuned, effect) {
            (Ok((tuned, _)), Ok(effect)) => assert!(tuned.warnings.iter().any(|it| it == effect), "{effect}"),
            (Err(error), Err(start)) => assert!(error.to_string().starts_with(start), "{error}"),
            (tuned, _) => panic!("{others}: {:?}", tuned.map(|(tuned, _)| tuned.text)),
        }
    }
    let quoted = yaml("batch_size: 8\nlr: 1\ndtype: \"bfloat16\" # keep me\n", "gtx1080", &[]);
    assert_eq!(quoted, "batch_size: 8\nlr: 1\ndtype: \"float32\" # keep me\n");
}

#[test]
fn unrelated_keys_may_be_there_twice() {
    let (_, step, text) = json("{\"a\": 1, \"a\": 2, \"batch_size\": 8, \"lr\": 1, DIMS}", "h200", &[]);
    assert!(step.global == 8 && text.starts_with("{\"a\": 1, \"a\": 2, \"batch_size\": 8"), "{text}");
    assert_eq!(yaml("a: 1\na: 2\nbatch_size: 8\nlr: 1\n", "h200", &[]), "a: 1\na: 2\nbatch_size: 8\nlr: 1\n");
    let twice = format!("{{\n\"batch_size\": 8,\n\"batch_size\": 9, {DIMS}}}");
    for options in [&[][..], &["--at", "batch_size=batch_size"]] {
        let words = refused(Format::Json, &twice, options);
        assert_eq!(words, "config:3:1: `batch_size` is given twice, and programs read the last: delete the other");
    }
    for (format, text) in [
        (Format::Json, format!("{{\"train\": {{\"batch_size\": 8}},\n\"train\": {{\"lr\": 1}}, {DIMS}}}")),
        (Format::Yaml, format!("train: {{batch_size: 8, x: 1}}\ntrain: {{lr: 1}}\n{MODEL}")),
    ] {
        let words = refused(format, &text, &[]);
        assert_eq!(words, "config:2:1: `train` is given twice, and programs read the last: delete the other");
    }
}

#[test]
fn keys_with_one_path_are_not_the_same_key() {
    let text =
        format!("{{\"a.b\": {{\"batch_size\": 1}},\n\"a\": {{\"b\": {{\"batch_size\": 4}}}}, \"lr\": 1, {DIMS}}}");
    let words = "config:2:13: two keys have the path `a.b.batch_size`, as one of their names has a dot: rename one";
    assert_eq!(refused(Format::Json, &text, &[]), words);
}

#[test]
fn a_table_of_arguments_is_no_config_of_keras() {
    let arch = "arch: {type: T, args: {n_layers: 32, d_model: 256, vocab_size: 8192, n_heads: 4, seq_len: 512}}\n";
    let loader = "data_loader: {type: L, args: {batch_size: 4096, validation_split: 0.1}}\n";
    let rest = "optimizer: {type: Adam, args: {lr: 0.001}}\ntrainer: {epochs: 100}\n";
    let tuned = optimised(Format::Yaml, &format!("{arch}{loader}{rest}"), "gtx1080", &[]);
    assert!(matches!(tuned, Ok(None)), "pytorch-template has no key for accumulation: {tuned:?}");
}

#[test]
fn many_keys_of_one_name_are_read_in_linear_time() {
    let tables = |text: &dyn Fn(usize) -> String| {
        let tables: String = (0..30_000).map(|at| format!("\"t{at}\": {{{}}},\n", text(at))).collect();
        refused(Format::Json, &format!("{{{tables} \"lr\": 1, {DIMS}}}"), &[])
    };
    let words = tables(&|at| format!("\"batch_size\": 1{at}"));
    assert!(words.contains("`t0.batch_size` and `t1.batch_size` both look like the batch_size"), "{words}");
    let words = tables(&|at| format!("\"batch_size\": \"${{u{at}.batch_size}}\", \"x\": {{\"batch_size\": 1}}"));
    assert!(words.starts_with("config:1:23: `t0.batch_size` refers to `\"${u0.batch_size}\"`"), "{words}");
    assert_eq!(words.lines().count(), 101);
}

#[test]
fn files_of_other_programs_are_refused() {
    for (format, text) in [
        (Format::Yaml, "services: {web: {image: x, deploy: {replicas: 2}}}\nvolumes: {}\n"),
        (Format::Yaml, "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: [{name: x}]}}}\n"),
        (Format::Yaml, "on: push\njobs: {test: {strategy: {matrix: {batch_size: [1, 2]}}}}\n"),
        (Format::Json, "{\"name\": \"x\", \"version\": \"1\", \"dependencies\": {}, \"batch_size\": 8}"),
        (Format::Json, "{\"compilerOptions\": {\"strict\": true}}"),
        (Format::Toml, "[package]\nname = \"x\"\n[dependencies]\n"),
        (Format::Yaml, "kafka: {batch_size: 100, workers: 4, gpus: 2}\n"),
        (Format::Yaml, "title: x\nvalues: [1, 2]\n"),
    ] {
        let words = refused(format, text, &[]);
        assert!(words.starts_with("the file is no training config"), "{text}: {words}");
        assert!(words.contains("looked for a batch size"), "{words}");
    }
}

#[test]
fn an_incidental_key_does_not_decide_the_kind_of_model() {
    for key in
        ["mlp_ratio: 4", "use_rnn_loss: true", "cnn_stem: true", "mlp_class_name: GptNeoxMLP", "rnn: {dropout: 0.1}"]
    {
        let text =
            format!("batch_size: 8\nlr: 1\nn_layer: 2\nn_head: 4\nn_embd: 64\nblock_size: 64\nvocab_size: 99\n{key}\n");
        let (tuned, _) = tuned(Format::Yaml, &text, "h200", &[]).unwrap_or_else(|error| panic!("{key}: {error}"));
        assert!(tuned.plan.is_some());
        let words = refused(Format::Yaml, &format!("batch_size: 8\nlr: 1\n{key}\n"), &[]);
        assert!(words.starts_with("the config does not identify its kind of model"), "{key}: {words}");
    }
}

#[test]
fn the_file_of_the_model_is_named() {
    for text in [
        "per_device_train_batch_size: 8\nmodel_name_or_path: org/model\n",
        "base_model: org/model\nmicro_batch_size: 8\nsequence_len: 64\n",
    ] {
        let words = refused(Format::Yaml, text, &[]);
        assert!(words.contains(" = org/model` names the model: give its config.json with --model-config"), "{words}");
    }
}

#[test]
fn users_add_dialects() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let path = folder.join("gpu-tuned.toml");
    let read = |text: &str| {
        std::fs::write(&path, text).expect("a file");
        Dialect::read_user(&path)
    };
    let table = "[[dialect]]\nname = \"ours\"\ndocumentation = \"https://example.org\"\nrecognised = [\"per_gpu\"]\n\
                 [[dialect.key]]\nrole = \"batch\"\nnames = \"per_gpu\"\n\
                 [[dialect.key]]\nrole = \"accumulation\"\nnames = \"splits\"\nadd = \"splits\"\n\
                 [[dialect.key]]\nrole = \"precision\"\nspelling = \"words\"\nnames = \"format\"\n\
                 words = [[[\"f32\", \"single\"], [\"mixed_bf16\", \"brain\"]]]\n";
    let page = include_str!("../../../docs/optimize.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    assert_eq!(read(example).expect("the page's example")[0].name, "our trainer");
    let dialects = read(table).expect("a table");
    let mut file = super::file(Format::Yaml, &format!("{MODEL}per_gpu: 512\nformat: brain\n"));
    file.dialects = dialects;
    let changed = super::tuned_file(&file, "gtx1080", &[]).expect("a plan").0.text.expect("it fits");
    assert!(changed.ends_with("per_gpu: 16\nsplits: 32\nformat: single\n"), "{changed}");

    for (text, message) in [
        (table.replace("add =", "adds ="), "gpu-tuned.toml:11:1: unknown field `adds`"),
        (table.replace("\"batch\"", "\"bach\""), "gpu-tuned.toml:6:8: unknown variant `bach`"),
        (
            table.replace("\"f32\"", "\"fp32\""),
            "gpu-tuned.toml:1:1: `fp32` is no meaning of this role: expected one of f32, ",
        ),
        (table.replace("\"precision\"", "\"tf32\""), "gpu-tuned.toml:1:1: `f32` is no meaning of this role"),
        (
            format!("{table}[[dialect.key]]\nrole = \"dim\"\ndim = \"sec\"\nnames = \"length\"\n"),
            "gpu-tuned.toml:1:1: `dim = \"sec\"` is no dimension or feature; did you mean `seq`?",
        ),
        (table.replace("\"splits\"\nadd", "\"Splits\"\nadd"), "gpu-tuned.toml:1:1: `Splits` has to be in lower case"),
        (table.replace("\"per_gpu\"]", "]"), "gpu-tuned.toml:1:1: `recognised` is empty"),
    ] {
        let words = read(&text).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(words.contains(message), "{message}: {words}");
    }
    assert!(matches!(Dialect::read_user(folder), Err(OptimizeError::Read { .. })));
    assert!(Dialect::read_user(&folder.join("none.toml")).is_ok_and(|dialects| dialects.is_empty()));
}

/// Eight times the keys take about eight times as long: a quadratic reader would take 64 times.
#[test]
fn time_grows_with_the_size_of_the_file() {
    for format in [Format::Yaml, Format::Json, Format::Toml] {
        let text = |keys: usize| {
            let lines = (0..keys).map(|index| match format {
                Format::Yaml => format!("key_{index}: {{value: {index}, text: 'a # b'}} # kept\n"),
                Format::Json => format!("\"key_{index}\": {{\"value\": {index}, \"text\": \"a\"}},\n"),
                Format::Toml => format!("key_{index} = {{ value = {index}, text = 'a' }} # kept\n"),
            });
            let lines: String = lines.collect();
            match format {
                Format::Yaml => format!("{MODEL}batch_size: 8\nlr: 1\n{lines}"),
                Format::Json => format!("{{{DIMS}, \"batch_size\": 8, \"lr\": 1,\n{lines} \"end\": 1}}"),
                Format::Toml => format!(
                    "n_layer = 2\nn_head = 4\nn_embd = 64\nblock_size = 128\nvocab_size = 256\nbatch_size = 8\nlr = 1\n{lines}"
                ),
            }
        };
        let seconds = |keys: usize| {
            let text = text(keys);
            let once = || {
                let start = std::time::Instant::now();
                tuned(format, &text, "h200", &[]).expect("a plan");
                start.elapsed().as_secs_f64()
            };
            (0..2).map(|_| once()).fold(f64::INFINITY, f64::min)
        };
        // Other programs that run meanwhile slow one of the two: the best of several runs counts.
        let ratio = (0..3).map(|_| seconds(2_000) / seconds(250)).fold(f64::INFINITY, f64::min);
        assert!(ratio < 32.0, "{format:?}: {ratio}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Configs of keys of all dialects with any values are planned with the same step, or refused.
    #[test]
    fn any_keys_with_any_values_keep_the_step_or_are_refused(
        keys in prop::collection::vec((0_usize..400, 0_usize..24), 1..8),
        ranks in 1_u64..4,
        options in prop::sample::subsequence(vec!["--add", "--host"], 0..=2),
    ) {
        const VALUES: &str = "1 2 3 8 64 true false auto null no bf16 fp16 16-mixed '32-true' -1 0.5 [4] [1,2] {0:8} ${a.b} \
                              <batch_size> adamw lion x/y";
        let names: Vec<&str> =
            DIALECTS.iter().flat_map(|dialect| &dialect.keys).flat_map(|key| key.names.iter()).collect();
        let values: Vec<&str> = VALUES.split_whitespace().collect();
        let mut text = MODEL.to_owned();
        for (index, (key, value)) in keys.iter().enumerate() {
            let path: Vec<&str> = names[key % names.len()].split('.').filter(|name| !name.is_empty()).collect();
            let inner = path.iter().rev().fold(values[*value].to_owned(), |inner, name| format!("{{'{name}': {inner}}}"));
            text += &format!("t{index}: {inner}\n'{}': {}\n", path.concat() + &index.to_string(), values[*value]);
        }
        text += "batch_size: 64\nlr: 1\ngrad_accum: 2\n";
        let ranks = ranks.to_string();
        let options: Vec<&str> = [vec!["--world-size", ranks.as_str()], options].concat();
        if let Ok((once, step)) = tuned(Format::Yaml, &text, "rtx4090", &options)
            && let Some(changed) = once.text
        {
            let (_, again) = tuned(Format::Yaml, &changed, "rtx4090", &options).expect("the edited text is a config");
            prop_assert_eq!((again.global, again.ranks), (step.global, step.ranks), "{}", text);
        }
    }
}

#[test]
fn a_key_that_cannot_be_written_in_place_is_refused() {
    // A dotted key in braces, and an entry of a list.
    let model = "n_layer=6\nn_embd=512\nvocab_size=8192\nblock_size=256\nn_head=8\n";
    let dotted = "[top]\ntrain = { args.per_device_train_batch_size = 4096, args.learning_rate = 1.0 }\n";
    let message = refused(Format::Toml, &format!("{model}{dotted}"), &[]);
    assert!(message.contains("`top.train.args.gradient_accumulation_steps`: it cannot be written"), "{message}");
    let message = refused(Format::Yaml, &format!("{MODEL}args: [per_device_train_batch_size: 4096]\n"), &[]);
    assert!(message.contains("it cannot be written in place"), "{message}");
    // Keys without a value and a colon.
    for text in [
        "train: {batch_size, grad_accum: 40}\n",
        "train:\n  grad_accum: 40\n  ? batch_size\n",
        "train:\n  ? batch_size # note: x\n  :\n  grad_accum: 40\n",
    ] {
        let message = refused(Format::Yaml, &format!("{MODEL}{text}"), &["--global-batch", "480"]);
        assert!(message.contains("`train.batch_size`: it cannot be written in place"), "{message}");
    }
}

#[test]
fn texts_on_several_lines_stay_as_they_are() {
    let text = "trainer:\n  desc: |\n    # Task\n  max_epochs: 3\ndata:\n  init_args:\n    batch_size: 512\n";
    let tuned = yaml(text, "gtx1080", &[]);
    let (before, after) = ("max_epochs: 3\n", "max_epochs: 3\n  accumulate_grad_batches: 32\n");
    assert_eq!(tuned, text.replace(before, after).replace("512", "16"));
}

#[test]
fn line_breaks_that_only_some_readers_know_are_refused() {
    for letter in ['\u{85}', '\u{2028}', '\u{2029}'] {
        let text = format!("{MODEL}batch_size: 12 #{letter}  batch_size: 24\n");
        let message = refused(Format::Yaml, &text, &[]);
        assert!(message.contains("readers disagree on whether this character"), "{message}");
    }
}
