//! Keys that the user assigns to settings, or leaves alone.

use gpu_tuned_core::suggest;

use crate::dialect::Role;
use crate::entry::ConfigEntry;
use crate::error::OptimizeError;

/// A key that the user assigns to a setting, or leaves alone.
#[derive(Clone, Debug)]
pub struct KeyOverride {
    /// The setting; `None` for a key that stays as it is.
    pub(crate) role: Option<Role>,
    pub(crate) key: String,
}

impl KeyOverride {
    /// Assigns a key of the file to a setting, as `--at SETTING=KEY` does.
    ///
    /// # Errors
    ///
    /// Where there is no such setting, or no such key with a single value.
    pub fn new(setting: &str, key: &str, entries: &[ConfigEntry]) -> Result<Self, OptimizeError> {
        let names = || Role::NAMED.iter().map(|(name, _)| *name);
        let role = Role::NAMED.iter().find(|(name, _)| *name == setting).map(|(_, role)| *role);
        let role = role.ok_or_else(|| OptimizeError::NoSetting {
            name: setting.to_owned(),
            hint: suggest(setting, names()),
            names: names().collect::<Vec<_>>().join(", "),
        })?;
        let is_there = entries.iter().any(|entry| entry.shown == key && entry.value.is_scalar());
        if is_there { Ok(Self { role: Some(role), key: key.to_owned() }) } else { Err(no_key(setting, key, entries)) }
    }

    /// Leaves a key of the file as it is, as `--leave KEY` does.
    ///
    /// # Errors
    ///
    /// Where there is no such key.
    pub fn leave(key: &str, entries: &[ConfigEntry]) -> Result<Self, OptimizeError> {
        let is_there = entries.iter().any(|entry| entry.shown == key);
        if is_there { Ok(Self { role: None, key: key.to_owned() }) } else { Err(no_key("", key, entries)) }
    }
}

fn no_key(setting: &str, key: &str, entries: &[ConfigEntry]) -> OptimizeError {
    let hint = suggest(key, entries.iter().map(|entry| entry.shown.as_str()));
    let option = if setting.is_empty() { "--leave ".to_owned() } else { format!("--at {setting}=") };
    OptimizeError::NoKey { option, key: key.to_owned(), hint }
}
