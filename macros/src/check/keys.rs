//! The keys that exist, and where they may stand.

use gpu_tuned_core::Goal;
use gpu_tuned_core::dims::{Described, Dim};
use gpu_tuned_core::suggest;
use gpu_tuned_core::workload::{ModelKind, Training};

use crate::error::Mistakes;
use crate::model::Argument;

/// The keys that say what the model is; exactly one is given.
pub(super) fn models() -> impl Iterator<Item = &'static str> {
    core::iter::once("workload").chain(ModelKind::ALL.iter().map(|kind| kind.name))
}

/// The keys of `#[gpu_tuned(…)]`.
pub(super) fn attribute() -> Vec<&'static str> {
    let names = |dims: &'static [Dim]| dims.iter().map(|dim| dim.name);
    models().chain(names(Goal::DIMS)).chain(names(Training::DIMS)).chain(["target"]).collect()
}

/// The keys of `#[tuned(…)]`.
pub(super) const FIELD: [&str; 4] = ["setting", "dim", "dims", "default"];

/// Reports keys that `owner` does not have, and those given twice.
pub(super) fn check(arguments: &[Argument], owner: &str, known: &[&str], mistakes: &mut Mistakes) {
    for (index, argument) in arguments.iter().enumerate() {
        let name = argument.name();
        if !known.contains(&name.as_str()) {
            let near = suggest(&name, known.iter().copied());
            let mistake = mistakes.at(&argument.key, format!("`{owner}` does not take `{name}`{near}"));
            if ModelKind::named(owner).is_some() && attribute().contains(&name.as_str()) {
                mistake.help(format!("`{name}` stands beside `{owner}(…)`, not in it"));
            } else {
                mistake.help(format!("it takes {}", known.join(", ")));
            }
        } else if arguments[..index].iter().any(|earlier| earlier.key == argument.key) {
            mistakes.at(&argument.key, format!("`{name}` is given twice"));
        }
    }
}

/// The first argument with this key.
pub(super) fn find<'m>(arguments: &'m [Argument], name: &str) -> Option<&'m Argument> {
    arguments.iter().find(|argument| argument.name() == name)
}
