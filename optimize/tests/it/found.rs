//! Values that are read from each config.

use gpu_tuned_core::workload::WorkloadSpec;

use crate::api::{self, Reading};
use crate::table::{Expected, Table, path};

const NONE: &str = "none";

#[test]
fn configs_have_the_values_that_the_frameworks_document() {
    let mut checks = crate::Checks::default();
    let table = Table::read();
    for expected in &table.configs {
        let mut check = |name: &str, wanted: String, found: String, is_right: bool| {
            checks.add(&expected.file, [name, &wanted], found, is_right);
        };
        let reading = match api::read(&path("configs", &expected.file), expected.model.as_deref(), &expected.options) {
            Ok(reading) => reading,
            Err(error) => {
                check("is read", "true".to_owned(), error.to_string(), false);
                continue;
            }
        };
        for name in ["batch", "accumulation", "global", "ranks", "precision", "workers", "optimizer"] {
            let Some(wanted) = expected.want(name) else { continue };
            let found = setting(&reading, name);
            let is_right = found == wanted;
            check(name, wanted, found, is_right);
        }
        let Some(kind) = expected.want("kind") else { continue };
        match &reading.model {
            Err(error) => {
                let error = error.to_string();
                let is_right = expected.may_refuse_model() && (error.contains("--model") || error.contains("--dim"));
                check("kind", kind, error, is_right);
            }
            Ok(spec) => {
                let found = spec.model.kind().name.to_owned();
                let is_right = found == kind;
                check("kind", kind, found, is_right);
                for (name, wanted, found) in model_values(expected, spec) {
                    let is_right = agrees(name, &wanted, &found);
                    check(name, wanted, found, is_right);
                }
            }
        }
    }
    checks.end("values");
}

#[test]
fn a_config_without_dimensions_has_those_of_the_model_that_it_names() {
    let mut checks = crate::Checks::default();
    let table = Table::read();
    let of_named_models = |it: &&Expected| ["huggingface", "axolotl", "llamafactory"].contains(&it.dialect());
    for expected in table.configs.iter().filter(of_named_models) {
        let parameters = |model: Option<&str>| {
            let read = api::read(&path("configs", &expected.file), model, &expected.options);
            let model = read.and_then(|reading| reading.model);
            model.map_or_else(|error| error.to_string(), |spec| spec.parameters().to_string())
        };
        let (named, of_file) = (parameters(None), parameters(expected.model.as_deref()));
        checks.add(&expected.file, ["parameters", &of_file], named.clone(), named == of_file);
    }
    checks.end("named models");
}

fn setting(reading: &Reading, name: &str) -> String {
    let step = reading.step;
    match name {
        "batch" => step.batch.to_string(),
        "accumulation" => step.accumulation.to_string(),
        "global" => step.global.to_string(),
        "ranks" => step.ranks.to_string(),
        "precision" => reading.precision().unwrap_or_else(|problem| problem),
        "workers" => reading.workers().map_or_else(|| NONE.to_owned(), |workers| workers.to_string()),
        _ => reading.optimizer().unwrap_or_else(|| NONE.to_owned()),
    }
}

/// The expected values of the model and its training, with those that were read.
fn model_values(expected: &Expected, spec: &WorkloadSpec) -> Vec<(&'static str, String, String)> {
    let table = toml::Table::try_from(spec).expect("a table");
    let dims = table["model"].as_table().and_then(|kinds| kinds.values().next()?.as_table());
    let training = table.get("training").and_then(toml::Value::as_table);
    let value = |table: Option<&toml::Table>, name: &str| {
        let value = table.and_then(|table| table.get(name)).map(ToString::to_string);
        value.unwrap_or_else(|| NONE.to_owned()).trim_matches('"').to_owned()
    };
    let packed = match value(training, "frozen_weights").as_str() {
        "q4" => "4".to_owned(),
        "q8" => "8".to_owned(),
        _ => NONE.to_owned(),
    };
    let all = [
        ("seq", value(dims, "seq")),
        ("lora_rank", value(training, "lora_rank")),
        ("packed_bits", packed),
        ("parameters", spec.parameters().to_string()),
        ("trained", spec.workload().trained_parameters().0.to_string()),
    ];
    all.into_iter().filter_map(|(name, found)| Some((name, expected.want(name)?, found))).collect()
}

/// Equal; or within 1% for parameters, because biases and the classifier differ between implementations.
fn agrees(name: &str, wanted: &str, found: &str) -> bool {
    match (name, wanted.parse::<f64>(), found.parse::<f64>()) {
        ("parameters" | "trained", Ok(wanted), Ok(found)) => (found / wanted - 1.0).abs() < 0.01,
        _ => wanted == found,
    }
}
