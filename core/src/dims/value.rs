use core::fmt;
use std::collections::BTreeMap;

use toml::Value;

use super::PRODUCT_KEYS;

/// The value of a dimension.
#[derive(Clone, Debug, PartialEq)]
pub enum DimValue {
    /// For [`DimKind::Count`](super::DimKind::Count).
    Count(u64),
    /// For [`DimKind::Flag`](super::DimKind::Flag).
    Flag(bool),
    /// For [`DimKind::Number`](super::DimKind::Number).
    Number(f64),
    /// For [`DimKind::Choice`](super::DimKind::Choice): the name in files.
    Choice(String),
    /// For [`DimKind::ChoiceList`](super::DimKind::ChoiceList).
    ChoiceList(Vec<String>),
    /// For [`DimKind::Counts`](super::DimKind::Counts).
    Counts(Vec<u64>),
    /// For [`DimKind::Stages`](super::DimKind::Stages).
    Stages(Vec<[u64; 2]>),
    /// For [`DimKind::Product`](super::DimKind::Product): rows per sample, inner, columns.
    Product([u64; 3]),
}

/// Values by name.
pub type DimValues = BTreeMap<&'static str, DimValue>;

/// Formats as TOML.
impl fmt::Display for DimValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_toml().fmt(f)
    }
}

impl DimValue {
    /// Converts to TOML.
    pub fn to_toml(&self) -> Value {
        let whole = |count: u64| Value::Integer(i64::try_from(count).unwrap_or(i64::MAX));
        let wholes = |counts: &[u64]| Value::Array(counts.iter().copied().map(whole).collect());
        match self {
            Self::Count(count) => whole(*count),
            Self::Flag(flag) => Value::Boolean(*flag),
            Self::Number(number) => Value::Float(*number),
            Self::Choice(name) => Value::String(name.clone()),
            Self::ChoiceList(names) => Value::Array(names.iter().cloned().map(Value::String).collect()),
            Self::Counts(counts) => wholes(counts),
            Self::Stages(stages) => Value::Array(stages.iter().map(|pair| wholes(pair)).collect()),
            Self::Product(sizes) => {
                let pairs = PRODUCT_KEYS.into_iter().zip(sizes);
                Value::Table(pairs.map(|(key, size)| (key.to_owned(), whole(*size))).collect())
            }
        }
    }
}
