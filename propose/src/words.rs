//! The model of a program in the words of an attribute, for a plan before any edit.

use std::collections::BTreeMap;

use gpu_tuned_core::dims::Presence;
use gpu_tuned_core::workload::ModelKind;
use serde::Serialize;

use crate::code::Code;
use crate::numbers::{self, Family};
use crate::optimizer::{self, Annotated};

/// A model with the numbers of the code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModelWords {
    /// The model: `mlp(widths = [784, 512, 10])`.
    pub model: String,
    /// Dimensions with an example in place of a number that the code lacks.
    pub examples: Vec<&'static str>,
    /// Samples of an optimizer step.
    pub global_batch: Option<u64>,
}

/// Example of each required dimension, of any kind of model.
const EXAMPLES: &[(&str, &str)] = &[
    ("activation_bytes_per_sample", "50_000_000"),
    ("classes", "10"),
    ("d_model", "512"),
    ("flops_per_sample", "1e10"),
    ("hidden", "128"),
    ("image", "224"),
    ("inputs", "8"),
    ("layers", "6"),
    ("outputs", "1"),
    ("parameters", "25_000_000"),
    ("seq", "256"),
    ("stages", "[[64, 2], [128, 2]]"),
    ("vocab", "32_000"),
];

/// Returns an example of a required dimension.
fn example(kind: &ModelKind, dim: &str) -> &'static str {
    match (kind.name, dim) {
        ("unet", "widths") => "[64, 128, 256]",
        (_, "widths") => "[784, 512, 10]",
        _ => EXAMPLES.iter().find(|(name, _)| *name == dim).map_or("1", |(_, value)| value),
    }
}

impl ModelWords {
    /// Describes the model by the numbers of fields and of the code. A model of an unknown kind is a transformer of examples.
    pub(super) fn new(
        family: &Family,
        (code, chosen): (&Code, &Code),
        fields: &BTreeMap<&'static str, u64>,
        global_batch: Option<u64>,
    ) -> Self {
        let is_known = family.hint.is_some();
        let kind = if is_known { family.kind } else { ModelKind::named("transformer").unwrap_or(family.kind) };
        let (mut dims, mut examples) = (Vec::new(), Vec::new());
        for dim in kind.dims.iter().filter(|dim| dim.presence == Presence::Required) {
            let field = fields.get(dim.name).map(u64::to_string);
            let found = || numbers::value(kind.name, dim.name, code, chosen, &family.names_of(dim.name));
            let found = field.or_else(|| is_known.then(found)?);
            examples.extend(found.is_none().then_some(dim.name));
            dims.push((dim.name, found.unwrap_or_else(|| example(kind, dim.name).to_owned())));
        }
        let is_missing = |name: &str| !dims.iter().any(|(dim, _)| *dim == name);
        let others = fields.iter().filter(|(name, _)| is_known && is_missing(name));
        let mut all = dims.clone();
        all.extend(others.map(|(name, value)| (*name, value.to_string())));
        let extras = numbers::extras(kind.name, code, chosen).into_iter();
        all.extend(extras.filter(|(name, _)| is_known && is_missing(name) && !fields.contains_key(name)));
        all.extend(family.is_gru().then(|| ("cell", "\"gru\"".to_owned())));
        if let Annotated::Other(optimizer) = optimizer::find(code, chosen) {
            all.push(("optimizer", format!("\"{optimizer}\"")));
        }
        let all: Vec<_> = all.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        Self { model: format!("{}({})", kind.name, all.join(", ")), examples, global_batch }
    }

    /// The command that plans the model for a GPU, or with `--here` for this machine.
    pub fn command(&self, gpu: &str) -> String {
        let batch = self.global_batch.map_or_else(String::new, |samples| format!(" --global-batch {samples}"));
        format!("cargo gpu-tuned plan {gpu} --model '{}'{batch}", self.model)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gpu_tuned_core::workload::ModelKind;
    use gpu_tuned_project::config::workload_from_words;

    use super::{Code, Family, ModelWords};

    #[test]
    fn examples_describe_a_model_of_each_kind() {
        for kind in ModelKind::ALL {
            let family = Family { kind, hint: Some(("Module".to_owned(), "src/main.rs:1".to_owned())), doubt: None };
            let code = Code::default();
            let words = ModelWords::new(&family, (&code, &code), &BTreeMap::new(), None);
            let parsed = workload_from_words(&words.model, &[]);
            assert!(parsed.is_ok_and(|(name, _)| name == kind.name), "{}", words.model);
            assert!(!words.examples.is_empty(), "{}", words.model);
        }
    }

    #[test]
    fn numbers_of_fields_replace_examples() {
        let family = Family { kind: ModelKind::named("transformer").expect("a kind"), hint: None, doubt: None };
        let fields = BTreeMap::from([("layers", 12), ("d_model", 768), ("seq", 1024)]);
        let words = ModelWords::new(&family, (&Code::default(), &Code::default()), &fields, Some(64));
        assert_eq!(words.examples, ["vocab"]);
        let model = "transformer(layers = 12, d_model = 768, vocab = 32_000, seq = 1024)";
        assert_eq!(words.command("h200"), format!("cargo gpu-tuned plan h200 --model '{model}' --global-batch 64"));
    }
}
