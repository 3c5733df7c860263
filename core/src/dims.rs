//! Tables of what users may say: names, kinds, ranges. Files, attributes, generated code and documentation all read them.

use core::fmt;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// A structure whose fields users set by name.
pub trait Described: Default + PartialEq + Serialize + DeserializeOwned {
    /// What users may say of it; each name is that of a field.
    const DIMS: &'static [Dim];

    /// What differs from the defaults, and all that is required, by name; nothing when a figure is too large for a file,
    /// of which [`out_of_range`](Self::out_of_range) tells.
    fn values(&self) -> DimValues {
        let Ok(given) = Table::try_from(self) else { return DimValues::new() };
        let default = Table::try_from(Self::default()).expect("BUG: the defaults are numbers, names and lists");
        let is_said = |dim: &&Dim| dim.presence == Presence::Required || given.get(dim.name) != default.get(dim.name);
        let value = |dim: &Dim| Some((dim.name, dim.kind.read(given.get(dim.name)?)?));
        Self::DIMS.iter().filter(is_said).filter_map(value).collect()
    }

    /// The structure with these values and the defaults of the others. Values must be of their dimension's kind.
    fn from_values(values: &DimValues) -> Self {
        let table: Table = values.iter().map(|(name, value)| ((*name).to_owned(), value.to_toml())).collect();
        table.try_into().expect("BUG: the table of dimensions describes the structure")
    }

    /// Values out of their range, as `(name, message)`.
    fn out_of_range(&self) -> Vec<(&'static str, String)> {
        // Where a negative number was taken for a count, for one.
        if Table::try_from(self).is_err() {
            let message = "a whole number is out of range: no figure is negative, or as large as 2^63";
            return vec![(Self::DIMS[0].name, message.to_owned())];
        }
        let values = self.values();
        let mistake = |dim: &Dim| Some((dim.name, dim.mistake(values.get(dim.name)?)?));
        Self::DIMS.iter().filter_map(mistake).collect()
    }
}

/// The dimension with this name.
pub fn named<'d>(dims: &'d [Dim], name: &str) -> Option<&'d Dim> {
    dims.iter().find(|dim| dim.name == name)
}

/// One thing that users say, such as a dimension of a model.
#[derive(Clone, Debug)]
pub struct Dim {
    /// The name in attributes and files.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: DimKind,
    /// Whether it must be given.
    pub presence: Presence,
    /// What it is.
    pub meaning: &'static str,
}

/// Whether a dimension must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// There is no model without it.
    Required,
    /// It has a default.
    Defaulted,
    /// It may be absent, which means something of its own.
    Optional,
}

/// The kind of a dimension's value.
#[derive(Clone, Debug)]
pub enum DimKind {
    /// A whole number in a range.
    Count(RangeInclusive<u64>),
    /// `true` or `false`.
    Flag,
    /// A number in a range.
    Number(RangeInclusive<f64>),
    /// One of several names.
    Choice(&'static Choices),
    /// A list of names.
    ChoiceList(&'static Choices),
    /// A list of whole numbers in a range.
    Counts(RangeInclusive<u64>),
    /// A list of `[channels, blocks]`.
    Stages,
    /// `{ rows_per_sample, inner, columns }`
    Product,
}

/// The names that a choice has.
#[derive(Debug)]
pub struct Choices {
    /// What is chosen.
    pub what: &'static str,
    /// The enumeration in Rust, from the facade crate on.
    pub path: &'static str,
    /// Each choice as users write it, and its variant in Rust.
    pub names: &'static [(&'static str, &'static str)],
}

/// The value of a dimension.
#[derive(Clone, Debug, PartialEq)]
pub enum DimValue {
    /// For [`DimKind::Count`].
    Count(u64),
    /// For [`DimKind::Flag`].
    Flag(bool),
    /// For [`DimKind::Number`].
    Number(f64),
    /// For [`DimKind::Choice`]: the name as users write it.
    Choice(String),
    /// For [`DimKind::ChoiceList`].
    ChoiceList(Vec<String>),
    /// For [`DimKind::Counts`].
    Counts(Vec<u64>),
    /// For [`DimKind::Stages`].
    Stages(Vec<[u64; 2]>),
    /// For [`DimKind::Product`]: rows for each sample, inner, columns.
    Product([u64; 3]),
}

/// Values by the names of their dimensions.
pub type DimValues = BTreeMap<&'static str, DimValue>;

/// Sizes beyond this are slips; they would also overflow the sums made of them.
const LARGEST: u64 = 1 << 32;

/// The keys of a [`DimKind::Product`].
pub const PRODUCT_KEYS: [&str; 3] = ["rows_per_sample", "inner", "columns"];

impl Dim {
    pub(crate) const fn count(name: &'static str, presence: Presence, meaning: &'static str) -> Self {
        Self::count_in(name, presence, 1..=LARGEST, meaning)
    }

    pub(crate) const fn count_in(
        name: &'static str,
        presence: Presence,
        range: RangeInclusive<u64>,
        meaning: &'static str,
    ) -> Self {
        Self { name, kind: DimKind::Count(range), presence, meaning }
    }

    pub(crate) const fn flag(name: &'static str, meaning: &'static str) -> Self {
        Self { name, kind: DimKind::Flag, presence: Presence::Defaulted, meaning }
    }

    pub(crate) const fn number(
        name: &'static str,
        presence: Presence,
        range: RangeInclusive<f64>,
        meaning: &'static str,
    ) -> Self {
        Self { name, kind: DimKind::Number(range), presence, meaning }
    }

    pub(crate) const fn choice(name: &'static str, choices: &'static Choices, meaning: &'static str) -> Self {
        Self { name, kind: DimKind::Choice(choices), presence: Presence::Defaulted, meaning }
    }

    /// What is wrong with a value of the right kind; `None` when nothing is.
    pub fn mistake(&self, value: &DimValue) -> Option<String> {
        let Self { name, kind, .. } = self;
        let outside = |value: &dyn core::fmt::Display, least: &dyn core::fmt::Display, most: String| {
            Some(format!("{name} = {value} is out of range, expected {least} to {most}"))
        };
        match (kind, value) {
            (DimKind::Count(range), DimValue::Count(count)) if !range.contains(count) => {
                outside(count, range.start(), in_words(*range.end()))
            }
            (DimKind::Number(range), DimValue::Number(number)) if !range.contains(number) => {
                let most = *range.end();
                outside(number, range.start(), if most > 1e6 { format!("{most:e}") } else { most.to_string() })
            }
            (DimKind::Counts(range), DimValue::Counts(counts)) => {
                let fits = |count: &u64| range.contains(count);
                (!(1..=4096).contains(&counts.len()) || !counts.iter().all(fits)).then(|| {
                    let (least, most) = (range.start(), in_words(*range.end()));
                    format!("{name}: expected 1 to 4096 numbers from {least} to {most}")
                })
            }
            (DimKind::Stages, DimValue::Stages(stages)) => {
                let fits =
                    |[channels, blocks]: &[u64; 2]| (1..=16_384).contains(channels) && (1..=1_000).contains(blocks);
                (!(1..=64).contains(&stages.len()) || !stages.iter().all(fits)).then(|| {
                    format!(
                        "{name}: expected 1 to 64 of [channels, blocks], with at most 16384 channels and 1000 blocks"
                    )
                })
            }
            (DimKind::Product, DimValue::Product(sizes)) => {
                let wrong = sizes.iter().any(|size| !(1..=LARGEST).contains(size));
                wrong.then(|| format!("{name}: expected sizes from 1 to 2^32"))
            }
            _ => None,
        }
    }
}

/// A large power of two as one.
pub fn in_words(count: u64) -> String {
    if count > 1 << 20 && count.is_power_of_two() { format!("2^{}", count.ilog2()) } else { count.to_string() }
}

impl DimKind {
    /// What a value of this kind looks like, in words.
    pub fn expected(&self) -> String {
        let list = |choices: &Choices| choices.names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        match self {
            Self::Count(_) => "a whole number".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Number(_) => "a number".to_owned(),
            Self::Choice(choices) => format!("one of {}", list(choices)),
            Self::ChoiceList(choices) => format!("a list of {}", list(choices)),
            Self::Counts(_) => "a list of whole numbers, such as [784, 512, 10]".to_owned(),
            Self::Stages => "a list of [channels, blocks], such as [[64, 2], [128, 2]]".to_owned(),
            Self::Product => "a table { rows_per_sample, inner, columns }".to_owned(),
        }
    }

    /// `; did you mean …?` for a text that is nearly one of the names of this kind.
    pub fn suggest(&self, found: Option<&Value>) -> String {
        let (Self::Choice(choices) | Self::ChoiceList(choices)) = self else { return String::new() };
        let words = |value: &'_ Value| match value {
            Value::Array(words) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            other => other.as_str().map(str::to_owned).into_iter().collect::<Vec<_>>(),
        };
        let names = || choices.names.iter().map(|(name, _)| *name);
        let wrong = found.map(words).unwrap_or_default().into_iter().find(|word| !names().any(|name| name == word));
        wrong.map_or_else(String::new, |word| crate::suggest(&word, names()))
    }

    /// A value of this kind that no model has, to stand for one that is missing.
    pub fn placeholder(&self) -> DimValue {
        match self {
            Self::Count(_) => DimValue::Count(1),
            Self::Flag => DimValue::Flag(false),
            Self::Number(_) => DimValue::Number(1.0),
            Self::Choice(choices) => DimValue::Choice(choices.names[0].0.to_owned()),
            Self::ChoiceList(_) => DimValue::ChoiceList(Vec::new()),
            Self::Counts(_) => DimValue::Counts(vec![1, 1]),
            Self::Stages => DimValue::Stages(vec![[1, 1]]),
            Self::Product => DimValue::Product([1, 1, 1]),
        }
    }

    /// The value as a file holds it, read as this kind; `None` when it is of another.
    pub fn read(&self, value: &Value) -> Option<DimValue> {
        let count = |value: &Value| value.as_integer().and_then(|count| u64::try_from(count).ok());
        let counts = |value: &Value| value.as_array()?.iter().map(count).collect::<Option<Vec<u64>>>();
        let name = |value: &Value, choices: &Choices| {
            let text = value.as_str()?;
            choices.names.iter().any(|(name, _)| *name == text).then(|| text.to_owned())
        };
        Some(match self {
            Self::Count(_) => DimValue::Count(count(value)?),
            Self::Flag => DimValue::Flag(value.as_bool()?),
            Self::Number(_) => DimValue::Number(value.as_float().or(value.as_integer().map(|whole| whole as f64))?),
            Self::Choice(choices) => DimValue::Choice(name(value, choices)?),
            Self::ChoiceList(choices) => {
                DimValue::ChoiceList(value.as_array()?.iter().map(|value| name(value, choices)).collect::<Option<_>>()?)
            }
            Self::Counts(_) => DimValue::Counts(counts(value)?),
            Self::Stages => {
                let pairs = value.as_array()?.iter().map(|pair| counts(pair)?.try_into().ok());
                DimValue::Stages(pairs.collect::<Option<_>>()?)
            }
            Self::Product => {
                let table = value.as_table().filter(|table| table.len() == PRODUCT_KEYS.len())?;
                let [rows, inner, columns] = PRODUCT_KEYS.map(|key| table.get(key).and_then(count));
                DimValue::Product([rows?, inner?, columns?])
            }
        })
    }
}

/// As a file holds it.
impl fmt::Display for DimValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_toml().fmt(f)
    }
}

impl DimValue {
    /// The value as a file holds it.
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
