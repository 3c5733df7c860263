use std::collections::BTreeSet;

use gpu_tuned_core::profile::{ProfileId, ProfileNames};

use crate::BuildError;
use crate::package::Package;

/// The target of a build, before `native` is resolved.
#[derive(Debug, PartialEq)]
pub(crate) enum Choice {
    /// No GPU is named.
    Generic,
    /// Profiles, at least one, sorted.
    Targets(Vec<ProfileId>),
    /// The GPU in the build machine.
    Native,
}

/// Parses `GPU_TUNED_TARGET`.
pub(crate) fn by_name(asked: &str, known: &ProfileNames) -> Result<Choice, BuildError> {
    let words: BTreeSet<&str> = asked.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    for (word, choice) in [(ProfileId::GENERIC, Choice::Generic), (ProfileId::NATIVE, Choice::Native)] {
        if words.contains(word) {
            return if words.len() == 1 { Ok(choice) } else { Err(BuildError::NotAlone { word: word.to_owned() }) };
        }
    }
    let targets: Vec<ProfileId> = words.iter().filter_map(|word| known.get(word)).collect();
    let strangers = words.iter().filter(|word| known.get(word).is_none());
    let unknown: Vec<String> =
        strangers.map(|word| format!("there is no profile `{word}`{}", known.suggest_or_advise(word))).collect();
    match (unknown.is_empty(), targets.is_empty()) {
        (false, _) => Err(BuildError::UnknownTargets { unknown }),
        (true, true) => Err(BuildError::NoTarget { value: asked.to_owned() }),
        (true, false) => Ok(Choice::Targets(targets)),
    }
}

/// Returns the choice of the enabled features, and a warning if a feature is ignored.
pub(crate) fn by_features(package: &Package, known: &ProfileNames) -> (Choice, Option<String>) {
    let targets = known.among(&package.enabled);
    let native = package.enabled.contains(ProfileId::NATIVE);
    match (targets.is_empty(), native) {
        (true, true) => (Choice::Native, None),
        (true, false) => (Choice::Generic, None),
        (false, false) => (Choice::Targets(targets), None),
        (false, true) => {
            let names: Vec<&str> = targets.iter().map(ProfileId::as_str).collect();
            let warning = format!("the feature `native` has no say, because others name a GPU: {}", names.join(", "));
            (Choice::Targets(targets), Some(warning))
        }
    }
}
