//! Tables of user-facing keys: names, kinds, ranges. Files, attributes, generated code and documentation share them.

use core::fmt;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::{Precision, PrecisionPolicy};

pub use crate::{choices, schema};

/// A structure whose fields users set by name.
pub trait Schema: Default + PartialEq {
    /// The keys; each is the name of a field.
    const DIMS: &'static [Dim];

    /// The structure as a table; `None` if a number is too large for a file.
    fn to_table(&self) -> Option<Table>;

    /// Builds the structure from these values and the defaults of the others. Values must be of their key's kind.
    fn from_values(values: &DimValues) -> Self;

    /// Values by name: all required keys, and all that differ from the defaults. Empty if a number is too large for a
    /// file; [`out_of_range`](Self::out_of_range) reports that.
    fn values(&self) -> DimValues {
        let Some(given) = self.to_table() else { return DimValues::new() };
        let default = Self::default().to_table().expect("BUG: the defaults are numbers, names and lists");
        given_values(Self::DIMS, &given, &default)
    }

    /// Values outside their range, as `(name, message)`.
    fn out_of_range(&self) -> Vec<(&'static str, String)> {
        // Happens when a negative number was converted to a count.
        if self.to_table().is_none() {
            let message = "a whole number is out of range: negative, or 2^63 and more";
            return vec![(Self::DIMS[0].name, message.to_owned())];
        }
        mistakes(Self::DIMS, &self.values())
    }
}

fn given_values(dims: &'static [Dim], given: &Table, default: &Table) -> DimValues {
    let is_given = |dim: &&Dim| dim.presence == Presence::Required || given.get(dim.name) != default.get(dim.name);
    let value = |dim: &Dim| Some((dim.name, dim.kind.read(given.get(dim.name)?)?));
    dims.iter().filter(is_given).filter_map(value).collect()
}

fn mistakes(dims: &'static [Dim], values: &DimValues) -> Vec<(&'static str, String)> {
    let mistake = |dim: &Dim| Some((dim.name, dim.mistake(values.get(dim.name)?)?));
    dims.iter().filter_map(mistake).collect()
}

/// The table of these values.
#[doc(hidden)]
pub fn table(values: &DimValues) -> Table {
    values.iter().map(|(name, value)| ((*name).to_owned(), value.to_toml())).collect()
}

/// Defines a structure with its defaults and its table of keys. A row is further documentation of a field, if there is
/// any, then `required: type, kind, "meaning";`, `defaulted: type = default, kind, "meaning";` or `optional?: type, kind, "meaning";`.
/// Fields below `with` are no keys.
#[doc(hidden)]
#[macro_export]
macro_rules! schema {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $(
                $(#[$field:meta])*
                $key:ident $(?: $optional:ty)? $(: $type:ty $(= $default:expr)?)?,
                $kind:ident $(($($argument:tt)*))?, $meaning:literal;
            )+
        } $(with { $($(#[$other_meta:meta])* $other:ident: $other_type:ty;)+ })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(
                #[doc = concat!("`", stringify!($key), "`: ", $meaning, ".")]
                $(#[$field])*
                $(#[serde(skip_serializing_if = "Option::is_none")] pub $key: Option<$optional>,)?
                $(pub $key: $type,)?
            )+
            $($($(#[$other_meta])* pub $other: $other_type,)+)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($key: $(None::<$optional>)? $($crate::schema!(@default $type $(= $default)?))?,)+
                    $($($other: <$other_type>::default(),)+)?
                }
            }
        }

        impl $crate::dims::Schema for $name {
            const DIMS: &'static [$crate::dims::Dim] = &[$($crate::dims::Dim {
                name: stringify!($key),
                kind: $crate::dims::DimKind::$kind $(($($argument)*))?,
                presence: $($crate::schema!(@optional $optional))?
                    $($crate::schema!(@presence $($default)?; $type))?,
                meaning: $meaning,
            }),+];

            // Not inlined, so that other crates do not compile the conversions again.
            #[inline(never)]
            fn to_table(&self) -> Option<::toml::Table> {
                ::toml::Table::try_from(self).ok()
            }

            #[inline(never)]
            fn from_values(values: &$crate::dims::DimValues) -> Self {
                let table = $crate::dims::table(values);
                table.try_into().expect("BUG: the table of dimensions matches the structure")
            }
        }
    };
    (@default $type:ty = $default:expr) => { $default };
    (@default $type:ty) => { <$type>::default() };
    (@optional $type:ty) => { $crate::dims::Presence::Optional };
    (@presence ; $type:ty) => { $crate::dims::Presence::Required };
    (@presence $default:expr; $type:ty) => { $crate::dims::Presence::Defaulted };
}

/// Finds a dimension by name.
pub fn named<'d>(dims: &'d [Dim], name: &str) -> Option<&'d Dim> {
    dims.iter().find(|dim| dim.name == name)
}

/// One user-facing key, such as a dimension of a model.
#[derive(Clone, Debug)]
pub struct Dim {
    /// The name in attributes and files.
    pub name: &'static str,
    /// The kind of value.
    pub kind: DimKind,
    /// Required, defaulted or optional.
    pub presence: Presence,
    /// Description for users.
    pub meaning: &'static str,
}

/// Requirement to give a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Must be given.
    Required,
    /// Has a default.
    Defaulted,
    /// May be absent; absence has its own meaning.
    Optional,
}

/// Largest plausible size. Larger ones are mistakes, and would overflow sums.
pub(crate) const LARGEST: u64 = 1 << 32;

impl Dim {
    /// Describes the error in a value of the right kind; `None` for a valid one.
    pub fn mistake(&self, value: &DimValue) -> Option<String> {
        let Self { name, kind, .. } = self;
        let outside = |value: &dyn core::fmt::Display, least: &dyn core::fmt::Display, most: String| {
            Some(format!("{name} = {value} is out of range, expected {least} to {most}"))
        };
        match (kind, value) {
            (DimKind::Count(range), DimValue::Count(count)) if !range.contains(count) => {
                outside(count, range.start(), format_count(*range.end()))
            }
            (DimKind::Number(range), DimValue::Number(number)) if !range.contains(number) => {
                let is_short = |value: f64| value == 0.0 || (1e-6..=1e6).contains(&value.abs());
                let short = |value: f64| if is_short(value) { value.to_string() } else { format!("{value:e}") };
                outside(&short(*number), range.start(), short(*range.end()))
            }
            (DimKind::Counts(range), DimValue::Counts(counts)) => {
                let fits = |count: &u64| range.contains(count);
                (!(1..=4096).contains(&counts.len()) || !counts.iter().all(fits)).then(|| {
                    let (least, most) = (range.start(), format_count(*range.end()));
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

/// Writes a large power of two as `2^n`.
pub fn format_count(count: u64) -> String {
    if count > 1 << 20 && count.is_power_of_two() { format!("2^{}", count.ilog2()) } else { count.to_string() }
}

/// Parses a value as TOML, else takes the text as a word, which needs no quotes.
pub fn parse_value(text: &str) -> toml::Value {
    let mut table: toml::Table = format!("value = {text}").parse().unwrap_or_default();
    let value = table.remove("value").filter(|_| table.is_empty());
    value.unwrap_or_else(|| toml::Value::String(text.to_owned()))
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
    /// A name from a list.
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

/// The valid names of a choice.
#[derive(Debug)]
pub struct Choices {
    /// Name of the choice, for messages.
    pub what: &'static str,
    /// Path of the Rust enumeration, within the facade crate.
    pub path: &'static str,
    /// The name in files and the Rust variant of each choice.
    pub names: &'static [(&'static str, &'static str)],
}

impl Choices {
    /// Formats the name of a precision that other frameworks name `word`, or `; did you mean …?` for a misspelt name.
    pub fn suggest(&self, word: &str) -> String {
        let is_precision = self.path == PrecisionPolicy::CHOICES.path;
        let elsewhere = is_precision.then(|| Precision::explain_spelling(word)).flatten();
        elsewhere.unwrap_or_else(|| crate::suggest(word, self.names.iter().map(|(name, _)| *name)))
    }
}

/// Defines an enumeration of named choices: `Name: "name for messages", "path" { Variant = "name in files", … }`.
#[doc(hidden)]
#[macro_export]
macro_rules! choices {
    ($(#[$meta:meta])* pub enum $name:ident: $what:literal, $path:literal {
        $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+ }

        impl $name {
            /// All choices.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The names for users.
            pub const CHOICES: $crate::dims::Choices =
                $crate::dims::Choices { what: $what, path: $path, names: &[$(($text, stringify!($variant))),+] };

            /// The name in attributes and files.
            pub const fn name(self) -> &'static str {
                Self::CHOICES.names[self as usize].0
            }
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

/// The keys of a [`DimKind::Product`].
pub const PRODUCT_KEYS: [&str; 3] = ["rows_per_sample", "inner", "columns"];

impl DimKind {
    /// Describes a value of this kind, for messages.
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

    /// Formats `; did you mean …?` for a misspelt name of this kind.
    pub fn suggest(&self, found: Option<&Value>) -> String {
        let (Self::Choice(choices) | Self::ChoiceList(choices)) = self else { return String::new() };
        let words = |value: &'_ Value| match value {
            Value::Array(words) => words.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            other => other.as_str().map(str::to_owned).into_iter().collect::<Vec<_>>(),
        };
        let is_known = |word: &String| choices.names.iter().any(|(name, _)| name == word);
        let wrong = found.map(words).unwrap_or_default().into_iter().find(|word| !is_known(word));
        wrong.map_or_else(String::new, |word| choices.suggest(&word))
    }

    /// An arbitrary value of this kind, used in place of a missing one.
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

    /// Converts a TOML value; `None` for a value of another kind. A count may be `1e3`, a number `"10%"`.
    pub fn read(&self, value: &Value) -> Option<DimValue> {
        let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
        let count = |value: &Value| u64::try_from(value.as_integer().or_else(|| whole(value.as_float()?))?).ok();
        let percent = |text: &str| Some(text.strip_suffix('%')?.trim_end().parse::<f64>().ok()? / 100.0);
        let counts = |value: &Value| value.as_array()?.iter().map(count).collect::<Option<Vec<u64>>>();
        let name = |value: &Value, choices: &Choices| {
            let text = value.as_str()?;
            choices.names.iter().any(|(name, _)| *name == text).then(|| text.to_owned())
        };
        Some(match self {
            Self::Count(_) => DimValue::Count(count(value)?),
            Self::Flag => DimValue::Flag(value.as_bool()?),
            Self::Number(_) => DimValue::Number(value.clone().try_into().ok().or_else(|| percent(value.as_str()?))?),
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

/// The value of a dimension.
#[derive(Clone, Debug, PartialEq)]
pub enum DimValue {
    /// For [`DimKind::Count`].
    Count(u64),
    /// For [`DimKind::Flag`].
    Flag(bool),
    /// For [`DimKind::Number`].
    Number(f64),
    /// For [`DimKind::Choice`]: the name in files.
    Choice(String),
    /// For [`DimKind::ChoiceList`].
    ChoiceList(Vec<String>),
    /// For [`DimKind::Counts`].
    Counts(Vec<u64>),
    /// For [`DimKind::Stages`].
    Stages(Vec<[u64; 2]>),
    /// For [`DimKind::Product`]: rows per sample, inner, columns.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_all_of_the_text() {
        assert_eq!(parse_value("8_192").as_integer(), Some(8192));
        assert_eq!(parse_value("adamw").as_str(), Some("adamw"));
        assert_eq!(parse_value("6\nx = 1").as_str(), Some("6\nx = 1"));
    }
}
