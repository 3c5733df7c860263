//! Pinned settings, also as text: `batch_size=64,num_workers=4`.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

use super::value::Typed;
use super::{Pins, Setting, SettingValue};
use crate::suggest;

/// Error in a text that pins settings.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SetError {
    /// A word has no value.
    #[error("`{word}` has no value: write it as {word}=VALUE; values are separated by commas")]
    NoValue {
        /// The word.
        word: String,
    },
    /// No setting has this name.
    #[error("there is no setting `{name}`{hint}; there are {}", Setting::ALL.map(Setting::name).join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Suggestion of a similar name.
        hint: String,
    },
    /// The setting has no such value.
    #[error("{setting} cannot be `{value}`: {expected}")]
    Value {
        /// The setting.
        setting: Setting,
        /// The text of the value.
        value: String,
        /// Values that the setting accepts.
        expected: String,
    },
    /// The text pins a setting twice.
    #[error("{setting} is given twice: keep one of them")]
    Twice {
        /// The setting.
        setting: Setting,
    },
}

impl Pins {
    /// Returns `true` if nothing is pinned.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if the setting is pinned.
    pub fn has(&self, setting: Setting) -> bool {
        self.get(setting).is_some()
    }

    /// Pinned settings with their values, in the order of [`Setting::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Setting, SettingValue)> {
        Setting::ALL.into_iter().filter_map(|setting| Some((setting, self.get(setting)?)))
    }

    /// Keeps the pins of the settings that `is_kept` accepts.
    #[must_use]
    pub fn keep(&self, is_kept: impl Fn(Setting) -> bool) -> Self {
        Self::default().merge(self, is_kept)
    }

    /// Adds the pins of `others` where none is set. Pins that cut the optimizer step come from `self` alone if it has any.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        let cuts_step = |setting: Setting| setting.row().cuts_step;
        let is_cut = self.iter().any(|(setting, _)| cuts_step(setting));
        self.merge(others, |setting| !(is_cut && cuts_step(setting)))
    }

    /// Returns `false` if TF32 is pinned off.
    pub(crate) fn allow_tf32(&self) -> bool {
        self.allow_tf32 != Some(false)
    }
}

/// Parses the value of a setting.
pub(super) fn parse<T: Typed>(setting: Setting, text: &str) -> Result<T, SetError> {
    T::parse(text, setting.row()).map_err(|expected| SetError::Value { setting, value: text.to_owned(), expected })
}

impl FromStr for Pins {
    type Err = SetError;

    fn from_str(text: &str) -> Result<Self, SetError> {
        let mut pins = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let Some((name, text)) = word.split_once('=') else {
                return Err(SetError::NoValue { word: word.to_owned() });
            };
            let (name, text) = (name.trim(), text.trim());
            let unknown =
                || SetError::Unknown { name: name.to_owned(), hint: suggest(name, Setting::ALL.map(Setting::name)) };
            let setting = Setting::named(name).ok_or_else(unknown)?;
            if pins.has(setting) {
                return Err(SetError::Twice { setting });
            }
            pins.set(setting, text)?;
        }
        Ok(pins)
    }
}

/// The text that [`FromStr`] parses.
impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.iter().map(|(setting, value)| format!("{setting}={value}")).collect();
        f.write_str(&words.join(","))
    }
}
