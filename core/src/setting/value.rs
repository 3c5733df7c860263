//! Kinds of values, and values of any kind.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::SettingRow;
use crate::{Precision, suggest};

/// Kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// Whole number.
    Count,
    /// `true` or `false`.
    Flag,
    /// [`Precision`].
    Precision,
}

impl SettingKind {
    /// Types of the config fields that can hold such a value; a precision also fits an enum with the usual names.
    pub const fn field_types(self) -> &'static [&'static str] {
        match self {
            Self::Count => &["usize", "u32", "u64", "i32", "i64"],
            Self::Flag => &["bool"],
            Self::Precision => &["Precision", "String", "&str", "bool"],
        }
    }
}

/// Value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// Whole number.
    Count(u64),
    /// `true` or `false`.
    Flag(bool),
    /// Precision.
    Precision(Precision),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.pad(&count.to_string()),
            Self::Flag(flag) => f.pad(if *flag { "true" } else { "false" }),
            Self::Precision(precision) => f.pad(precision.name()),
        }
    }
}

/// Type of a field of [`Settings`](super::Settings).
pub(super) trait Typed: Into<SettingValue> {
    const KIND: SettingKind;

    /// Parses a value of the setting in this row. The error is the text that was expected.
    fn parse(text: &str, row: &SettingRow) -> Result<Self, String>;
}

macro_rules! from {
    ($($type:ident: $kind:ident),+) => {$(
        impl From<$type> for SettingValue {
            fn from(value: $type) -> Self {
                Self::$kind(value)
            }
        }
    )+};
}

from!(u64: Count, bool: Flag, Precision: Precision);

impl Typed for u64 {
    const KIND: SettingKind = SettingKind::Count;

    fn parse(text: &str, row: &SettingRow) -> Result<Self, String> {
        let commas = if text.contains('=') { "; settings are separated by commas" } else { "" };
        let count = text.parse().ok().filter(|count| row.contains(*count));
        count.ok_or_else(|| format!("expected a whole number from {}{commas}", row.range()))
    }
}

impl Typed for bool {
    const KIND: SettingKind = SettingKind::Flag;

    fn parse(text: &str, _: &SettingRow) -> Result<Self, String> {
        text.parse().map_err(|_| "expected true or false".to_owned())
    }
}

impl Typed for Precision {
    const KIND: SettingKind = SettingKind::Precision;

    fn parse(text: &str, _: &SettingRow) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        text.parse().map_err(|_| format!("expected {}{}", names.join(", "), suggest(text, names)))
    }
}
