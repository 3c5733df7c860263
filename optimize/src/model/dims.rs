//! Dimensions of a model with their origins.

use gpu_tuned_core::dims::{Dim, DimValue, DimValues, named};
use serde::Serialize;

/// A dimension of a model with its origin.
#[derive(Clone, Debug, Serialize)]
pub struct Dimension {
    /// Name of the dimension.
    pub name: String,
    /// Value as attributes spell it.
    pub value: String,
    /// Origin of the value.
    #[serde(flatten)]
    pub origin: Origin,
}

/// Origin of a dimension.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "origin", content = "from")]
pub enum Origin {
    /// One key of the config, or several with commas between.
    Key(String),
    /// The command line.
    Option,
    /// An assumption with its reason.
    Assumed(String),
}

/// Dimensions by name, in the order of discovery.
#[derive(Default)]
pub(super) struct Dims(Vec<(&'static str, DimValue, Origin)>);

impl Dims {
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn get(&self, name: &str) -> Option<&DimValue> {
        self.0.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| value)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut DimValue> {
        self.0.iter_mut().find(|(known, ..)| *known == name).map(|(_, value, _)| value)
    }

    pub(super) fn origin(&self, name: &str) -> Option<&Origin> {
        self.0.iter().find(|(known, ..)| *known == name).map(|(.., origin)| origin)
    }

    /// Adds a dimension unless it is there.
    pub(super) fn add(&mut self, name: &'static str, value: DimValue, origin: Origin) {
        if !self.has(name) {
            self.0.push((name, value, origin));
        }
    }

    /// Replaces the value of a dimension.
    pub(super) fn set(&mut self, name: &'static str, value: DimValue, origin: Origin) {
        self.remove(name);
        self.add(name, value, origin);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|(known, ..)| *known != name);
    }

    /// Values of those dimensions that a table describes.
    pub(super) fn values(&self, table: &'static [Dim]) -> DimValues {
        self.0.iter().filter_map(|(name, value, _)| Some((named(table, name)?.name, value.clone()))).collect()
    }

    pub(super) fn into_list(self) -> Vec<Dimension> {
        let dimension = |(name, value, origin): (&str, DimValue, Origin)| Dimension {
            name: name.to_owned(),
            value: value.to_string(),
            origin,
        };
        self.0.into_iter().map(dimension).collect()
    }
}
