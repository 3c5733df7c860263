//! A workload from `NAME=VALUE` pairs of a command line.

use gpu_tuned_core::dims::{self, Schema};
use gpu_tuned_core::source::Source;
use gpu_tuned_core::suggest;
use gpu_tuned_core::workload::{ModelKind, Training, WorkloadSpec};
use thiserror::Error;
use toml::de::DeTable;
use toml::{Table, Value};

use super::parse_workload;

/// Pairs that describe no workload.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum PairsError {
    /// The model is unknown.
    #[error("there is no model `{name}`{hint}; there are {}", ModelKind::requestable().collect::<Vec<_>>().join(", "))]
    UnknownModel {
        /// The name.
        name: String,
        /// The suggestion.
        hint: String,
    },
    /// A name is given twice.
    #[error("`{name}` is given twice: keep one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// Dimensions are unknown, missing, out of range or contradictory.
    #[error("{}", messages.join("\n"))]
    Mistakes {
        /// A message for each mistake.
        messages: Vec<String>,
    },
}

/// Parses the dimensions of a model and of its training, by the code that parses `gpu-tuned.toml`. Names need no quotes.
///
/// # Errors
///
/// When the model is unknown, or a dimension is unknown, missing, out of range or given twice.
pub fn workload_from_pairs(model: &str, pairs: &[(String, String)]) -> Result<WorkloadSpec, PairsError> {
    let unknown =
        || PairsError::UnknownModel { name: model.to_owned(), hint: suggest(model, ModelKind::requestable()) };
    let (kind, cell) = ModelKind::requested(model).ok_or_else(unknown)?;
    let (mut dims, mut training) = (Table::new(), Table::new());
    dims.extend(cell.map(|cell| ("cell".to_owned(), cell.into())));
    for (name, value) in pairs {
        let is_training = dims::named(Training::DIMS, name).is_some();
        let table = if is_training { &mut training } else { &mut dims };
        if table.insert(name.clone(), parse_value(value)).is_some() {
            return Err(PairsError::Twice { name: name.clone() });
        }
    }
    training.insert(kind.name.to_owned(), dims.into());
    let text = training.to_string();
    let source = Source { file: "--dim", text: &text };
    let table = DeTable::parse(&text).expect("BUG: a table is written as TOML");
    let parsed = parse_workload(kind.name, 0..0, table, source);
    parsed.map_err(|found| PairsError::Mistakes { messages: found.into_iter().map(|it| it.message).collect() })
}

/// Parses a value as TOML, else takes the text as a name.
fn parse_value(text: &str) -> Value {
    let mut table: Table = format!("value = {text}").parse().unwrap_or_default();
    let value = table.remove("value").filter(|_| table.is_empty());
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::workload::{Norm, Optimizer, Training, Transformer, WorkloadSpec};

    use super::workload_from_pairs;

    fn parse(model: &str, pairs: &[(&str, &str)]) -> Result<WorkloadSpec, String> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        workload_from_pairs(model, &pairs).map_err(|error| error.to_string())
    }

    #[test]
    fn dimensions_and_training_are_parsed_as_in_a_file() {
        let pairs = [("layers", "6"), ("d_model", "512"), ("vocab", "8_192"), ("seq", "256"), ("norm", "rms")];
        let model = Transformer { norm: Norm::Rms, ..Transformer::new(6, 512, 8192, 256) };
        let training = Training { optimizer: Optimizer::Sgd, ..Training::default() };
        let spec = parse("transformer", &[&pairs[..], &[("optimizer", "sgd")]].concat()).unwrap();
        assert_eq!(spec, WorkloadSpec { model: model.into(), training });
        let dims = [("inputs", "8"), ("hidden", "64"), ("layers", "2"), ("seq", "30"), ("outputs", "1")];
        let gru = [&dims[..], &[("cell", "gru")]].concat();
        assert_eq!(parse("gru", &dims), parse("recurrent", &gru));
        assert_eq!(parse("lstm", &dims), parse("recurrent", &dims));
        assert!(parse("gru", &gru).is_err_and(|error| error.contains("`cell` is given twice")));
        assert!(parse("convnet", &[("image", "28"), ("classes", "10"), ("stages", "[[8, 1]]")]).is_ok());
    }

    #[test]
    fn mistakes_name_what_would_do() {
        let dims = [("layers", "6"), ("d_model", "512")];
        for (model, pairs, expected) in [
            (
                "transfromer",
                &dims[..],
                "there is no model `transfromer`; did you mean `transformer`?; there are declared, ",
            ),
            ("transformer", &dims, "transformer needs vocab, seq"),
            (
                "transformer",
                &[("layer", "6")],
                "unknown key `layer`; did you mean `layers`?; transformer takes layers, ",
            ),
            ("mlp", &[("widths", "8")], "widths: expected a list of whole numbers, such as [784, 512, 10]"),
            ("mlp", &[("widths", "[8, 8]"), ("widths", "[8]")], "`widths` is given twice: keep one of them"),
            ("mlp", &[("widths", "[8, 8]"), ("optimizer", "adamv")], "optimizer: expected one of"),
            ("mlp", &[("widths", "[8, 8]\nx = 1")], "widths: expected a list of whole numbers"),
            ("transformer", &[&dims[..], &[("vocab", "0"), ("seq", "8")]].concat(), "vocab = 0 is out of range, "),
        ] {
            let error = parse(model, pairs).unwrap_err();
            assert!(error.contains(expected), "{model} {pairs:?}: {error}");
        }
    }
}
