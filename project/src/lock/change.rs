//! Differences between a measured description and the present one.

use core::fmt;
use std::collections::BTreeSet;

use gpu_tuned_core::dims::{DimValues, Schema as _};
use gpu_tuned_core::workload::WorkloadSpec;

/// A difference between two workloads: a dimension, or the kind of `model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecChange {
    /// Name of the dimension, such as `layers`.
    pub name: &'static str,
    /// Earlier value in TOML; `its default` if absent.
    pub was: String,
    /// Present value, likewise.
    pub now: String,
}

/// `layers = 4, now 6`
impl fmt::Display for SpecChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}, now {}", self.name, self.was, self.now)
    }
}

impl SpecChange {
    /// Lists the differences of `now` from `earlier`, sorted. For another kind of model, lists that difference only.
    pub fn between(earlier: &WorkloadSpec, now: &WorkloadSpec) -> Vec<Self> {
        let kinds = [earlier, now].map(|spec| spec.model.kind().name);
        if let [was, now] = kinds
            && was != now
        {
            return vec![Self { name: "model", was: was.to_owned(), now: now.to_owned() }];
        }
        let [was, now] = [earlier, now].map(values);
        let names: BTreeSet<_> = was.keys().chain(now.keys()).copied().collect();
        let changed = names.into_iter().filter(|name| was.get(name) != now.get(name));
        let change = |name| Self { name, was: value_or_default(&was, name), now: value_or_default(&now, name) };
        changed.map(change).collect()
    }
}

fn values(spec: &WorkloadSpec) -> DimValues {
    spec.model.values().into_iter().chain(spec.training.values()).collect()
}

fn value_or_default(values: &DimValues, name: &str) -> String {
    values.get(name).map_or_else(|| "its default".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::workload::{Mlp, Transformer, WorkloadSpec};

    use super::SpecChange;

    #[test]
    fn changes_are_named_with_both_values() {
        let changes = |was: WorkloadSpec, now: WorkloadSpec| {
            SpecChange::between(&was, &now).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let lm = Transformer::new(4, 128, 65, 128);
        let deeper = Transformer { heads: Some(8), layers: 6, ..lm.clone() };
        assert_eq!(changes(lm.clone().into(), lm.clone().into()), Vec::<String>::new());
        assert_eq!(changes(lm.clone().into(), deeper.into()), ["heads = its default, now 8", "layers = 4, now 6"]);
        assert_eq!(changes(lm.into(), Mlp { widths: vec![8, 8] }.into()), ["model = transformer, now mlp"]);
    }
}
