//! The JSON schema of `gpu-tuned.toml` compared with the parser.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use boon::{Compiler, SchemaIndex, Schemas};
use gpu_tuned_core::profile::Profile;
use gpu_tuned_core::source::Source;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::schema::config_schema;
use proptest::prelude::*;
use serde_json::Value;

use crate::strategies::written;

struct Validator {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Validator {
    fn new() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let schema = serde_json::to_value(config_schema()).expect("the schema is JSON");
        compiler.add_resource("gpu-tuned.schema.json", schema).expect("the schema has an address");
        let index = compiler.compile("gpu-tuned.schema.json", &mut schemas).expect("the schema is one of draft 7");
        Self { schemas, index }
    }

    fn mistake(&self, text: &str) -> Option<String> {
        let table: toml::Table = text.parse().map_err(|error| format!("{error}")).ok()?;
        let value = serde_json::to_value(table).expect("JSON");
        self.schemas.validate(&value, self.index).err().map(|error| error.to_string())
    }
}

fn is_parsed(text: &str) -> bool {
    ConfigFile::parse(Source { file: "gpu-tuned.toml", text }).is_ok()
}

const LM: &str = "[workload.lm.transformer]\nlayers = 12\nd_model = 768\nvocab = 50257\nseq = 1024\n";

#[test]
fn files_of_this_repository_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let validator = Validator::new();
    for name in [
        "examples/digits",
        "tests/burn-configs",
        "tests/ui/cases/with_table",
        "cli/tests/fixtures/declared",
        "cli/tests/fixtures/stale",
    ] {
        let text = fs::read_to_string(root.join(name).join("gpu-tuned.toml")).expect(name);
        assert!(is_parsed(&text), "{name}");
        assert_eq!(validator.mistake(&text), None, "{name}");
    }
    let template = fs::read_to_string(root.join("cli/src/init/template.toml")).expect("a template");
    let in_force = |line: &str| match line.strip_prefix("# ") {
        Some(setting) if !setting.contains('`') && (setting.starts_with('[') || setting.contains(" = ")) => {
            format!("{setting}\n")
        }
        _ => format!("{line}\n"),
    };
    let template: String = template.lines().map(in_force).collect();
    assert!(is_parsed(&template) && template.contains("\n[workload."), "{template}");
    assert_eq!(validator.mistake(&template), None);
}

#[test]
fn both_take_values_as_people_write_them() {
    let validator = Validator::new();
    for goal in [
        "memory_headroom = \"10%\"",
        "global_batch = 1e3",
        "throughput_tolerance = \"2.5 %\"",
        "mean_tokens = 3\nglobal_tokens = 6e4\n[profile.mine]\nbase = \"rtx4090\"\nnames = [\"Mine\"]",
    ] {
        let text = format!("[goal]\n{goal}\n");
        assert!(is_parsed(&text), "{text}");
        assert_eq!(validator.mistake(&text), None, "{text}");
    }
}

#[test]
fn both_refuse_mistakes() {
    let validator = Validator::new();
    for (text, place) in [
        ("[gaol]\n".to_owned(), "gaol"),
        ("[goal]\nglobal_batsh = 1\n".to_owned(), "global_batsh"),
        ("[goal]\nglobal_batch = \"many\"\n".to_owned(), "global_batch"),
        ("[goal]\nglobal_batch = 1.5\n".to_owned(), "global_batch"),
        ("[goal]\nglobal_batch = 0\n".to_owned(), "global_batch"),
        ("[goal]\nmemory_headroom = \"a tenth\"\n".to_owned(), "memory_headroom"),
        ("[goal]\nmemory_headroom = 0.95\n".to_owned(), "memory_headroom"),
        ("[goal]\nprecision = \"bf15\"\n".to_owned(), "precision"),
        (LM.replace("seq = 1024\n", ""), "seq"),
        (LM.replace("layers", "layer"), "layer"),
        (format!("[workload.lm]\noptimizer = \"adamv\"\n{LM}"), "optimizer"),
        (format!("{LM}[workload.lm.mlp]\nwidths = [8, 8]\n"), "lm"),
        ("[workload.lm]\nparameters = 1000\n".to_owned(), "lm"),
        ("[workload.lm.mlp]\nwidths = [8, \"8\"]\n".to_owned(), "widths"),
        ("[profile.mine]\nbase = \"rtx4090\"\nmemory.size = 3\n".to_owned(), "size"),
        ("[profile.mine]\nbase = 4090\n".to_owned(), "base"),
    ] {
        assert!(!is_parsed(&text), "{text}");
        let mistake = validator.mistake(&text).unwrap_or_else(|| panic!("taken by the schema: {text}"));
        assert!(mistake.contains(place), "{text}: {mistake}");
    }
}

/// Keys that serde expects in a table of a profile, by its message on another key.
fn expected(table: &str) -> BTreeSet<String> {
    let text = format!("{table}nonsense = 1\n");
    let message = toml::from_str::<Profile>(&text).expect_err("no such key").to_string();
    let (_, list) = message.split_once("expected one of ").unwrap_or_else(|| panic!("{message}"));
    list.split(", ").map(|name| name.trim().trim_matches('`').to_owned()).collect()
}

#[test]
fn profiles_have_the_keys_of_the_parser() {
    let schema = serde_json::to_value(config_schema()).expect("JSON");
    let keys = |schema: &Value| -> BTreeSet<String> {
        schema["properties"].as_object().expect("properties").keys().cloned().collect()
    };
    let profile = &schema["properties"]["profile"]["additionalProperties"];
    let mut whole = expected("");
    whole.remove("id");
    whole.insert("base".to_owned());
    assert_eq!(keys(profile), whole);
    for table in ["memory", "compute", "peaks", "board"] {
        assert_eq!(keys(&profile["properties"][table]), expected(&format!("[{table}]\n")), "{table}");
    }
}

proptest! {
    #[test]
    fn what_the_parser_takes_the_schema_takes(text in written::files()) {
        thread_local!(static VALIDATOR: Validator = Validator::new());
        if is_parsed(&text) {
            prop_assert_eq!(VALIDATOR.with(|validator| validator.mistake(&text)), None, "{}", text);
        }
    }
}
