//! Identity of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// A figure of the model that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureChange {
    /// The figure: `parameters`, `transformer.layers`.
    pub figure: String,
    /// Its value in the saved run; `None` where it was not given.
    pub then: Option<String>,
    /// Its value in the config; `None` where it is not given.
    pub now: Option<String>,
}

impl fmt::Display for FigureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not given".to_owned());
        write!(f, "{} was {}, is {}", self.figure, value(&self.then), value(&self.now))
    }
}

/// Declared costs that identify the model. The others are costs of a step, which may be measured again.
const OF_THE_MODEL: [&str; 3] = ["parameters", "family", "batch_statistics"];

/// Costs in the description of the training.
const COSTS: [&str; 2] = ["training.host_ms_per_sample", "training.layer_scratch_bytes"];

/// Values in which two workload specifications differ, sorted. A value in only one of them counts.
pub(super) fn changes(then: &Value, now: &Value) -> Vec<FigureChange> {
    let kinds = (kind(then), kind(now));
    if kinds.0 != kinds.1 {
        return vec![FigureChange { figure: "workload".to_owned(), then: kinds.0, now: kinds.1 }];
    }
    let (then, now) = (figures(then), figures(now));
    let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let differing = names.into_iter().filter(|name| then.get(*name) != now.get(*name));
    differing
        .map(|name| FigureChange { figure: name.clone(), then: then.get(name).cloned(), now: now.get(name).cloned() })
        .collect()
}

/// `transformer`, `convnet`, `declared`.
fn kind(spec: &Value) -> Option<String> {
    spec.get("model")?.as_object()?.keys().next().cloned()
}

fn figures(spec: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    flatten(spec, String::new(), &mut found);
    let is_cost = |name: &String| {
        COSTS.contains(&name.as_str())
            || name.strip_prefix("model.declared.").is_some_and(|figure| !OF_THE_MODEL.contains(&figure))
    };
    found.retain(|name, _| !is_cost(name));
    found.into_iter().map(|(name, value)| (name.trim_start_matches("model.").to_owned(), value)).collect()
}

fn flatten(value: &Value, name: String, found: &mut BTreeMap<String, String>) {
    let below = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| flatten(value, below(key), found)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten(item, format!("{name}[{index}]"), found);
            }
        }
        Value::String(text) => drop(found.insert(name, text.clone())),
        // Fields that serde leaves out equal fields written as null.
        Value::Null => {}
        other => drop(found.insert(name, other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::changes;

    #[test]
    fn models_differ_by_figures_and_not_by_what_a_step_costs() {
        let declared = |parameters: u64, flops: f64| json!({ "model": { "declared": { "parameters": parameters, "flops_per_sample": flops } } });
        let stages = |second: u64| json!({ "model": { "convnet": { "stages": [[64, 2], [128, second]] } } });
        let transformer = json!({ "model": { "transformer": { "layers": 6 } } });
        let with_heads = json!({ "model": { "transformer": { "layers": 6, "heads": 8 } } });
        for (then, now, expected) in [
            (declared(10, 1e9), declared(10, 2e9), vec![]),
            (declared(10, 1e9), declared(20, 1e9), vec!["declared.parameters was 10, is 20"]),
            (stages(2), stages(3), vec!["convnet.stages[1][1] was 2, is 3"]),
            (transformer.clone(), with_heads, vec!["transformer.heads was not given, is 8"]),
            (transformer, stages(2), vec!["workload was transformer, is convnet"]),
        ] {
            let found: Vec<_> = changes(&then, &now).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        }
    }
}
