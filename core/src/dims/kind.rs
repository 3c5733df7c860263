use core::ops::RangeInclusive;

use toml::Value;

use super::DimValue;

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
pub use choices;

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
        let names = || choices.names.iter().map(|(name, _)| *name);
        let wrong = found.map(words).unwrap_or_default().into_iter().find(|word| !names().any(|name| name == word));
        wrong.map_or_else(String::new, |word| crate::suggest(&word, names()))
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
