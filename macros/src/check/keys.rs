//! The keys that exist, and where they may stand.

use gpu_tuned_core::suggest;

use crate::error::Mistakes;
use crate::model::Argument;

/// The keys that say what a training step costs; exactly one is given.
pub(super) const WORKLOADS: [&str; 3] = ["workload", "transformer", "convnet"];

/// The keys of `#[gpu_tuned(…)]`.
pub(super) const ATTRIBUTE: [&str; 9] = [
    "workload",
    "transformer",
    "convnet",
    "global_batch",
    "world_size",
    "precision",
    "memory_headroom",
    "throughput_tolerance",
    "target",
];

/// The keys of `#[tuned(…)]`.
pub(super) const FIELD: [&str; 3] = ["setting", "dim", "default"];

/// Reports keys that `owner` does not have, and those given twice.
pub(super) fn check(arguments: &[Argument], owner: &str, known: &[&str], mistakes: &mut Mistakes) {
    for (index, argument) in arguments.iter().enumerate() {
        let name = argument.name();
        if !known.contains(&name.as_str()) {
            let near = suggest(&name, known.iter().copied());
            mistakes
                .at(&argument.key, format!("`{owner}` does not take `{name}`{near}"))
                .help(format!("it takes {}", known.join(", ")));
        } else if arguments[..index].iter().any(|earlier| earlier.key == argument.key) {
            mistakes.at(&argument.key, format!("`{name}` is given twice"));
        }
    }
}

/// The first argument with this key.
pub(super) fn find<'m>(arguments: &'m [Argument], name: &str) -> Option<&'m Argument> {
    arguments.iter().find(|argument| argument.name() == name)
}
