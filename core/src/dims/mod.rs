//! Tables of user-facing keys: names, kinds, ranges. Files, attributes, generated code and documentation share them.

mod kind;
mod value;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

pub use kind::{Choices, DimKind, PRODUCT_KEYS, choices};
pub use value::{DimValue, DimValues};

/// A structure whose fields users set by name.
pub trait Schema: Default + PartialEq + Serialize + DeserializeOwned {
    /// The keys; each is the name of a field.
    const DIMS: &'static [Dim];

    /// Values by name: all required keys, and all that differ from the defaults. Empty if a number is too large for a
    /// file; [`out_of_range`](Self::out_of_range) reports that.
    fn values(&self) -> DimValues {
        let Ok(given) = Table::try_from(self) else { return DimValues::new() };
        let default = Table::try_from(Self::default()).expect("BUG: the defaults are numbers, names and lists");
        let is_given = |dim: &&Dim| dim.presence == Presence::Required || given.get(dim.name) != default.get(dim.name);
        let value = |dim: &Dim| Some((dim.name, dim.kind.read(given.get(dim.name)?)?));
        Self::DIMS.iter().filter(is_given).filter_map(value).collect()
    }

    /// Builds the structure from these values and the defaults of the others. Values must be of their key's kind.
    fn from_values(values: &DimValues) -> Self {
        let table: Table = values.iter().map(|(name, value)| ((*name).to_owned(), value.to_toml())).collect();
        table.try_into().expect("BUG: the table of dimensions matches the structure")
    }

    /// Values outside their range, as `(name, message)`.
    fn out_of_range(&self) -> Vec<(&'static str, String)> {
        // Happens when a negative number was converted to a count.
        if Table::try_from(self).is_err() {
            let message = "a whole number is out of range: negative, or 2^63 and more";
            return vec![(Self::DIMS[0].name, message.to_owned())];
        }
        let values = self.values();
        let mistake = |dim: &Dim| Some((dim.name, dim.mistake(values.get(dim.name)?)?));
        Self::DIMS.iter().filter_map(mistake).collect()
    }
}

/// Defines a structure with its defaults and its table of keys. A row is the documentation of a field, then
/// `required: type, kind, "meaning";`, `defaulted: type = default, kind, "meaning";` or `optional?: type, kind, "meaning";`.
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
        }
    };
    (@default $type:ty = $default:expr) => { $default };
    (@default $type:ty) => { <$type>::default() };
    (@optional $type:ty) => { $crate::dims::Presence::Optional };
    (@presence ; $type:ty) => { $crate::dims::Presence::Required };
    (@presence $default:expr; $type:ty) => { $crate::dims::Presence::Defaulted };
}
pub use schema;

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
                let most = *range.end();
                outside(number, range.start(), if most > 1e6 { format!("{most:e}") } else { most.to_string() })
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

#[cfg(test)]
mod tests {
    use super::parse_value;

    #[test]
    fn a_value_is_all_of_the_text() {
        assert_eq!(parse_value("8_192").as_integer(), Some(8192));
        assert_eq!(parse_value("adamw").as_str(), Some("adamw"));
        assert_eq!(parse_value("6\nx = 1").as_str(), Some("6\nx = 1"));
    }
}
