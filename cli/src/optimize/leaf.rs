//! The entries of a config with their paths.

use super::keys::normal;
use super::text::{Entry, Node, Value};

/// An entry and where it is.
#[derive(Clone, Debug)]
pub(super) struct Leaf<'n> {
    /// The names from the root on, as the table of keys has them.
    pub path: Vec<String>,
    /// The same as the file has them, with dots between.
    pub shown: String,
    pub entry: &'n Entry,
    /// The table that it is in.
    pub table: &'n Node,
}

/// Tables whose settings are of something else than training.
const NOT_OF_TRAINING: &[&str] = &[
    "eval",
    "evaluate",
    "evaluation",
    "val",
    "valid",
    "validate",
    "validation",
    "test",
    "testing",
    "dev",
    "inference",
    "predict",
    "prediction",
    "generation",
    "export",
];

/// Every entry, tables before what is in them; without those of evaluation.
pub(super) fn leaves(root: &Node) -> Vec<Leaf<'_>> {
    let mut all = Vec::new();
    walk(root, &[], "", &mut all);
    all
}

fn walk<'n>(node: &'n Node, path: &[String], shown: &str, all: &mut Vec<Leaf<'n>>) {
    match &node.value {
        Value::Table(entries) => {
            for entry in entries {
                let path: Vec<String> = path.iter().cloned().chain([normal(&entry.key)]).collect();
                let shown = if shown.is_empty() { entry.key.clone() } else { format!("{shown}.{}", entry.key) };
                let is_table = matches!(entry.node.value, Value::Table(_) | Value::List(_));
                if is_table && NOT_OF_TRAINING.contains(&path[path.len() - 1].as_str()) {
                    continue;
                }
                all.push(Leaf { path: path.clone(), shown: shown.clone(), entry, table: node });
                walk(&entry.node, &path, &shown, all);
            }
        }
        Value::List(nodes) => {
            for (index, inner) in nodes.iter().enumerate() {
                walk(inner, path, &format!("{shown}[{index}]"), all);
            }
        }
        _ => {}
    }
}

impl Leaf<'_> {
    /// The name of its key, as the table of keys has it.
    pub(super) fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Whether its value is neither a table nor a list.
    pub(super) fn is_single(&self) -> bool {
        !matches!(self.entry.node.value, Value::Table(_) | Value::List(_))
    }
}
