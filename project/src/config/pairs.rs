//! A workload from the words of a command line.

use gpu_tuned_core::Goal;
use gpu_tuned_core::dims::{self, Schema};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{ModelKind, Training, WorkloadSpec};
use thiserror::Error;
use toml::de::DeTable;
use toml::{Table, Value};

use super::parse_workload;

/// Words that describe no workload.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum PairsError {
    /// The model is unknown.
    #[error("there is no model `{name}`{hint}; models are {}", ModelKind::requestable().collect::<Vec<_>>().join(", "))]
    UnknownModel {
        /// The name.
        name: String,
        /// The suggestion.
        hint: String,
    },
    /// The list of dimensions has no end.
    #[error("the list of dimensions has no `)` at its end; expected {model}(NAME = VALUE, …)")]
    NoEnd {
        /// The model.
        model: String,
    },
    /// An entry has no value.
    #[error("`{found}` is no dimension with a value; expected {model}(NAME = VALUE, …)")]
    NoPair {
        /// The model.
        model: String,
        /// The text in place of a dimension.
        found: String,
    },
    /// A key of the goal.
    #[error("`{name}` is no dimension of a model, but of the goal: give it as an option, such as --global-batch")]
    Goal {
        /// The key.
        name: String,
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

/// Parses a model by the code that parses `gpu-tuned.toml`. Returns its name and the workload.
///
/// `model` is a name, or the model in the words of an attribute: `transformer(layers = 12, …)`. `pairs` are further
/// dimensions, or keys of the training. Names in values need no quotes.
///
/// # Errors
///
/// When the model is unknown, or a dimension is unknown, missing, out of range or given twice.
pub fn workload_from_words<'m>(
    model: &'m str,
    pairs: &[(String, String)],
) -> Result<(&'m str, WorkloadSpec), PairsError> {
    let (model, list) = model.split_once('(').unwrap_or((model, ")"));
    let model = model.trim();
    let unknown = || PairsError::UnknownModel { name: model.to_owned(), hint: ModelKind::suggest(model) };
    let (kind, cell) = ModelKind::requested(model).ok_or_else(unknown)?;
    let Some((inside, behind)) = list.rsplit_once(')') else {
        return Err(PairsError::NoEnd { model: model.to_owned() });
    };
    let listed = listed(inside, behind).map_err(|found| PairsError::NoPair { model: model.to_owned(), found })?;
    let (mut dims, mut training) = (Table::new(), Table::new());
    dims.extend(cell.map(|cell| ("cell".to_owned(), cell.into())));
    for (name, value) in listed.iter().chain(pairs) {
        let is_training = dims::named(Training::DIMS, name).is_some();
        if dims::named(Goal::DIMS, name).is_some() {
            return Err(PairsError::Goal { name: name.clone() });
        }
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
    let mistakes =
        |found: Vec<_>| PairsError::Mistakes { messages: found.into_iter().map(|it: FileError| it.message).collect() };
    parsed.map(|spec| (model, spec)).map_err(mistakes)
}

/// Splits `layers = 12, widths = [8, 8]` into names and values, or returns the text that is no pair. Further pairs may
/// follow `behind` the parenthesis, as in an attribute.
fn listed(inside: &str, behind: &str) -> Result<Vec<(String, String)>, String> {
    let (mut depth, mut is_quoted) = (0_usize, false);
    let is_end = |character: char| {
        match character {
            '"' => is_quoted = !is_quoted,
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0 && !is_quoted
    };
    let all = format!("{inside},{behind}");
    let entries = all.split(is_end).map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |entry: &str| {
        let pair = entry.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        pair.filter(|(name, value)| !name.is_empty() && !value.is_empty()).ok_or_else(|| entry.to_owned())
    };
    entries.map(pair).collect()
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

    use super::workload_from_words;

    fn parse(model: &str, pairs: &[(&str, &str)]) -> Result<WorkloadSpec, String> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let parsed = workload_from_words(model, &pairs).map(|(_, spec)| spec);
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn a_model_is_parsed_in_the_words_of_an_attribute() {
        let gpt = "transformer(layers = 6, d_model = 512, vocab = 8_192, seq = 256, norm = \"rms\",)";
        let pairs = [("layers", "6"), ("d_model", "512"), ("vocab", "8192"), ("seq", "256"), ("norm", "rms")];
        assert_eq!(parse(gpt, &[]), parse("transformer", &pairs));
        assert_eq!(
            parse(&format!("{gpt}, optimizer = \"sgd\""), &[]),
            parse("transformer", &[&pairs[..], &[("optimizer", "sgd")]].concat())
        );
        assert_eq!(parse("mlp( widths=[784, 512, 10] )", &[]), parse("mlp", &[("widths", "[784, 512, 10]")]));
        for (model, expected) in [
            ("mlp(widths = [8, 8]", "the list of dimensions has no `)` at its end; expected mlp(NAME = VALUE, …)"),
            ("mlp(8, 8)", "`8` is no dimension with a value; expected mlp(NAME = VALUE, …)"),
            ("mlp(widths =)", "`widths =` is no dimension with a value"),
            ("(widths = [8, 8])", "there is no model ``"),
            ("mlp(widths = [8, 8], global_batch = 8)", "`global_batch` is no dimension of a model, but of the goal"),
        ] {
            assert!(parse(model, &[]).is_err_and(|error| error.starts_with(expected)), "{model}");
        }
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
                "there is no model `transfromer`; did you mean `transformer`?; models are declared, ",
            ),
            ("resnet50", &dims, "there is no model `resnet50`; `convnet` describes it; models are declared, "),
            (
                "transformer",
                &[("hidden_size", "6")],
                "unknown key `hidden_size`; did you mean `d_model`?; transformer takes",
            ),
            (
                "transformer",
                &dims,
                "transformer needs vocab (tokens in the vocabulary), seq (tokens in a sequence; one sample is one sequence)",
            ),
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
