//! Parameters of models by their `config.json`, against those that transformers creates (`tests/counts.toml`).

use std::path::Path;

use gpu_tuned_optimize::{ConfigText, Format, Model, ModelRequest, OptimizeError};

use crate::Checks;

#[derive(serde::Deserialize)]
struct Counts {
    model: Vec<Counted>,
}

#[derive(serde::Deserialize)]
struct Counted {
    name: String,
    config: toml::Table,
    counts: Vec<(String, u64)>,
}

#[test]
fn left_out_keys_have_the_defaults_of_their_class() {
    let all: Counts = toml::from_str(include_str!("../counts.toml")).expect("it is valid");
    let (mut checks, mut refused) = (Checks::default(), String::new());
    for Counted { name, config, counts } in all.model {
        for (change, count) in counts {
            let mut config = config.clone();
            match change.strip_prefix('-') {
                Some(key) => drop(config.remove(key)),
                None => config.extend(toml::from_str::<toml::Table>(&change.replace("; ", "\n")).expect("it is valid")),
            }
            let found = parameters(&config);
            // Heads of classifiers are counted with a bias, and those of decoders have none.
            let biases = if change.contains("num_labels") { 5 } else { 2 };
            let is_classifier = change.starts_with("architectures");
            let is_right = |own: u64| own == count || is_classifier && own == count + biases;
            // Heads that do not divide the default width, or attention that no kind describes.
            let is_refused =
                |error: &OptimizeError| !change.is_empty() && !matches!(error, OptimizeError::MissingDims { .. });
            if let Err(error) = &found {
                let first = error.to_string().lines().next().unwrap_or_default().to_owned();
                refused.push_str(&format!("{name}: {change}: {first}\n"));
            }
            let is_right = found.as_ref().map_or_else(is_refused, |own| is_right(*own));
            let found = found.map_or_else(|error| error.to_string(), |own| own.to_string());
            checks.add(&name, [&change, &count.to_string()], found, is_right);
        }
    }
    checks.end("parameters");
    insta::assert_snapshot!("counts_refused", refused);
}

fn parameters(config: &toml::Table) -> Result<u64, OptimizeError> {
    let file = ConfigText::new(Path::new("config.toml"), Format::Toml, &config.to_string());
    let dims = [("seq".to_owned(), "512".to_owned())];
    let model = Model::read(&file.entries()?, &file, &ModelRequest { dims: &dims, ..ModelRequest::default() })?;
    Ok(model.spec.parameters())
}
