//! The keys of the attributes.

use gpu_tuned_core::Goal;
use gpu_tuned_core::dims::{Dim, Schema};
use gpu_tuned_core::suggest_key;
use gpu_tuned_core::workload::{ModelKind, Training};

use crate::mistakes::Mistakes;
use crate::model::Argument;

/// The keys of the model; exactly one is given.
pub(crate) fn models() -> impl Iterator<Item = &'static str> {
    core::iter::once("workload").chain(ModelKind::ALL.iter().map(|kind| kind.name))
}

/// The keys of `#[gpu_tuned(…)]`.
pub(crate) fn attribute() -> Vec<&'static str> {
    let names = |dims: &'static [Dim]| dims.iter().map(|dim| dim.name);
    models().chain(names(Goal::DIMS)).chain(names(Training::DIMS)).chain(["target", "crate"]).collect()
}

/// Returns true for a key of an attribute, or of the list of a model.
pub(crate) fn is_known(name: &str) -> bool {
    let mut dims = ModelKind::ALL.iter().flat_map(|kind| kind.dims);
    attribute().contains(&name) || FIELD.contains(&name) || dims.any(|dim| dim.name == name)
}

/// The keys of `#[tuned(…)]`.
pub(crate) const FIELD: [&str; 5] = ["setting", "dim", "dims", "default", PER_RANK];

/// The key of a field whose values may differ between ranks.
pub(crate) const PER_RANK: &str = "per_rank";

/// Reports unknown keys of `owner`, and keys given twice.
pub(crate) fn check(arguments: &[Argument], owner: &str, known: &[&str], mistakes: &mut Mistakes) {
    for (index, argument) in arguments.iter().enumerate() {
        let name = argument.name();
        if !known.contains(&name.as_str()) {
            let near = suggest_key(&name, known);
            let mistake = mistakes.at(&argument.key, format!("`{owner}` does not take `{name}`{near}"));
            if ModelKind::named(owner).is_some() && attribute().contains(&name.as_str()) {
                mistake.help(format!("write `{name}` beside `{owner}(…)`, not in it"));
            } else {
                mistake.help(format!("it takes {}", known.join(", ")));
            }
        } else if arguments[..index].iter().any(|earlier| earlier.key == argument.key) {
            mistakes.at(&argument.key, format!("`{name}` is given twice"));
        }
    }
}

/// Returns the first argument with this key.
pub(crate) fn find<'m>(arguments: &'m [Argument], name: &str) -> Option<&'m Argument> {
    arguments.iter().find(|argument| argument.name() == name)
}
