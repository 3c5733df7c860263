use core::fmt;
use std::collections::BTreeSet;

use super::WorkloadSpec;
use crate::dims::{DimValues, Schema};

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

impl WorkloadSpec {
    /// Lists the differences from `earlier`, sorted. For another kind of model, lists that difference only.
    pub fn changes_since(&self, earlier: &Self) -> Vec<SpecChange> {
        let (was, now) = (earlier.model.kind().name, self.model.kind().name);
        if was != now {
            return vec![SpecChange { name: "model", was: was.to_owned(), now: now.to_owned() }];
        }
        let (was, now) = (earlier.values(), self.values());
        let names: BTreeSet<_> = was.keys().chain(now.keys()).copied().collect();
        let changed = names.into_iter().filter(|name| was.get(name) != now.get(name));
        changed
            .map(|name| SpecChange { name, was: value_or_default(&was, name), now: value_or_default(&now, name) })
            .collect()
    }

    fn values(&self) -> DimValues {
        self.model.values().into_iter().chain(self.training.values()).collect()
    }
}

fn value_or_default(values: &DimValues, name: &str) -> String {
    values.get(name).map_or_else(|| "its default".to_owned(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use crate::workload::{Mlp, Transformer, WorkloadSpec};

    #[test]
    fn changes_are_named_with_both_values() {
        let changes = |was: WorkloadSpec, now: WorkloadSpec| {
            now.changes_since(&was).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let lm = Transformer::new(4, 128, 65, 128);
        let deeper = Transformer { heads: Some(8), layers: 6, ..lm.clone() };
        assert_eq!(changes(lm.clone().into(), lm.clone().into()), Vec::<String>::new());
        assert_eq!(changes(lm.clone().into(), deeper.into()), ["heads = its default, now 8", "layers = 4, now 6"]);
        assert_eq!(changes(lm.into(), Mlp { widths: vec![8, 8] }.into()), ["model = transformer, now mlp"]);
    }
}
