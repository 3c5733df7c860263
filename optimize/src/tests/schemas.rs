//! The schemas of frameworks.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::file;
use crate::dialect::{DIALECTS, Dialect};
use crate::matched::read_by;
use crate::names::{Words, normal};
use crate::schema::{Schema, SchemaTable};
use crate::{Config, Format, KeyOverride};

fn schemas() -> impl Iterator<Item = (&'static Dialect, &'static Schema)> {
    DIALECTS.iter().filter_map(|dialect| Some((dialect, dialect.schema.as_ref()?)))
}

#[test]
fn keys_of_schemas_are_normal_names_with_one_meaning() {
    for (dialect, schema) in schemas() {
        assert!(schema.source.iter().all(|source| source.starts_with("https://")), "{}", dialect.name);
        let ats: Vec<_> = schema.tables.iter().flat_map(|table| table.at.iter()).collect();
        for at in ats {
            let of_table = || schema.tables.iter().filter(|table| table.at.has(at)).flat_map(SchemaTable::names);
            let all: Vec<_> = of_table().collect();
            for (index, name) in all.iter().enumerate() {
                assert_eq!(normal(name), **name, "{}", dialect.name);
                assert!(!all[..index].contains(name), "{}: {at} has {name} twice", dialect.name);
            }
        }
    }
}

#[test]
fn keys_that_a_schema_calls_read_are_in_a_table() {
    for (dialect, schema) in schemas() {
        let rows: Vec<_> = read_by(dialect).flat_map(|key| key.names.iter()).collect();
        let is_of_rows = |name: &str| rows.iter().any(|own| own.rsplit('.').any(|part| part == name));
        let names = include_str!("../names.toml");
        let all: Vec<_> = names.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').collect();
        let is_table = |name: &str| {
            let ats = schema.tables.iter().flat_map(|table| table.at.iter());
            ats.into_iter().any(|at| at.rsplit('.').next() == Some(name))
        };
        for name in schema.tables.iter().flat_map(|table| table.read.iter()) {
            let is_read = is_of_rows(name) || is_table(name) || all.contains(&name);
            assert!(is_read, "{}: no table reads {name}", dialect.name);
        }
    }
}

#[derive(Deserialize)]
struct Sample {
    dialect: String,
    source: String,
    at: String,
    names: Words,
}

#[test]
fn schemas_have_the_keys_that_frameworks_declare() {
    let samples: BTreeMap<String, Vec<Sample>> =
        toml::from_str(include_str!("schema_samples.toml")).expect("a valid table");
    for sample in &samples["sample"] {
        assert!(sample.source.starts_with("https://github.com/"), "{}", sample.source);
        let schema = Dialect::named(&sample.dialect).and_then(|dialect| dialect.schema.as_ref()).expect("a schema");
        let path = |name: &str| {
            let tables = sample.at.split('.').filter(|table| !table.is_empty());
            tables.chain([name]).map(str::to_owned).collect::<Vec<_>>().join(".")
        };
        for name in sample.names.iter() {
            let is_key = |table: &SchemaTable| table.at.has(&sample.at) && table.names().any(|own| own == name);
            let is_there = schema.tables.iter().any(|table| is_key(table) || table.at.has(&path(name)));
            assert!(is_there, "{}: no `{name}` of {}", sample.dialect, sample.source);
        }
    }
    assert!(schemas().all(|(dialect, _)| samples["sample"].iter().any(|sample| sample.dialect == dialect.name)));
}

/// The smallest config of each closed dialect.
const CONFIGS: [(&str, &str); 16] = [
    ("axolotl", "base_model: a/b\nmicro_batch_size: 2\nsequence_len: 64\n"),
    ("LLaMA-Factory", "model_name_or_path: a/b\nfinetuning_type: full\nper_device_train_batch_size: 2\n"),
    ("torchtune", "model: {_component_: a.b}\ntokenizer: {_component_: a.c, max_seq_len: 64}\nbatch_size: 2\n"),
    ("LitGPT", "train: {global_batch_size: 8, micro_batch_size: 2}\n"),
    ("Megatron-LM", "micro_batch_size: 2\nglobal_batch_size: 8\ntensor_model_parallel_size: 1\n"),
    ("NeMo", "micro_batch_size: 2\nglobal_batch_size: 8\ntensor_model_parallel_size: 1\nmcore_gpt: true\n"),
    ("nanotron", "tokens: {micro_batch_size: 2, batch_accumulation_per_replica: 4, sequence_length: 64}\n"),
    ("OLMo", "device_train_microbatch_size: 2\nglobal_train_batch_size: 8\nmodel: {mlp_ratio: 4}\n"),
    ("Composer", "device_train_microbatch_size: 2\nglobal_train_batch_size: 8\nmax_duration: 1ep\n"),
    ("ms-swift", "tuner_type: full\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 1\n"),
    ("TRL", "model_name_or_path: a/b\npadding_free: true\nper_device_train_batch_size: 2\n"),
    ("Hugging Face", "output_dir: a\nper_device_train_batch_size: 2\n"),
    ("GPT-NeoX", "pipe_parallel_size: 0\nmodel_parallel_size: 1\ntrain_micro_batch_size_per_gpu: 2\n"),
    ("DeepSpeed", "train_micro_batch_size_per_gpu: 2\nsteps_per_print: 10\n"),
    ("Lightning", "trainer: {max_epochs: 1, precision: 32}\nbatch_size: 2\n"),
    ("nanoGPT", "batch_size: 2\nblock_size: 64\neval_iters: 8\ndecay_lr: true\n"),
];

#[test]
fn a_key_that_a_framework_does_not_have_is_refused_by_name() {
    for (name, text) in CONFIGS {
        let read = |added: &str, left: Option<&str>| {
            let text = match text.strip_prefix("trainer: {") {
                Some(rest) => format!("trainer: {{{added}, {rest}"),
                None => format!("{text}{added}\n"),
            };
            let file = file(Format::Yaml, &text);
            let entries = file.entries().expect("valid YAML");
            let left = left.map(|key| KeyOverride::leave(key, &entries).expect("a key"));
            let config = Config::read(&entries, &file, left.as_slice());
            config.map(|config| config.dialect).map_err(|error| error.to_string())
        };
        let dialect = Dialect::named(name).expect("a dialect");
        let release = &dialect.schema.as_ref().expect("a schema").release;
        let of = |key: &str| if name == "Lightning" { format!("trainer.{key}") } else { key.to_owned() };
        let own = if name == "Lightning" { "max_steps: null" } else { "zzfrob: null" };
        assert!(core::ptr::eq(read(own, None).unwrap_or_else(|error| panic!("{name}: {error}")), dialect));
        let key = of("zzfrob");
        let error = read("zzfrob: 3", None).expect_err("an unknown key");
        let expected = format!("`{key}` is no key of {release}; to plan as if it had no effect: --leave {key}");
        assert!(error.contains(&expected), "{name}: {error}");
        assert!(read("zzfrob: 3", Some(&key)).is_ok(), "{name}");
        let key = of("lora_zzfrob");
        let error = read("lora_zzfrob: 3", Some(&key)).expect_err("a key that touches the plan");
        assert!(error.contains(&format!("--assume {key}=harmless")), "{name}: {error}");
    }
    assert_eq!(schemas().count(), CONFIGS.len());
}

#[test]
fn the_nearest_key_of_a_framework_is_proposed() {
    let text = "base_model: a/b\nmicro_batch_size: 2\nlerning_rate: 1e-4\n";
    let file = file(Format::Yaml, text);
    let error = Config::read(&file.entries().expect("valid YAML"), &file, &[]).err().expect("a mistake").to_string();
    assert!(error.contains("`lerning_rate` is no key of axolotl 0.18; did you mean `learning_rate`?"), "{error}");
}

#[test]
fn a_table_of_another_framework_has_its_keys() {
    for text in [
        "per_device_train_batch_size: 2\noutput_dir: a\n",
        "base_model: a/b\nmicro_batch_size: 2\nsequence_len: 64\n",
        "model_name_or_path: a/b\nfinetuning_type: full\nper_device_train_batch_size: 2\n",
    ] {
        let text = format!("{text}deepspeed: {{zero_optimization: {{stage: 2, overlap_comm: true, zzfrob: 3}}}}\n");
        let file = file(Format::Yaml, &text);
        let error = Config::read(&file.entries().expect("valid YAML"), &file, &[]).err().expect("a mistake");
        let error = error.to_string();
        assert!(error.contains("`deepspeed.zero_optimization.zzfrob` is no key of DeepSpeed"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
