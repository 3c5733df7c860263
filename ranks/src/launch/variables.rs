//! Environment variables, converted and checked.

use std::str::FromStr;

use super::LaunchError;

/// Environment variables behind a lookup.
pub(super) struct Variables<'a> {
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl Variables<'_> {
    /// Returns the trimmed text of a variable; `None` if the variable is unset or blank.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = (self.lookup)(name)?;
        let text = value.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// Returns the number in a variable; `None` if the variable is unset or blank.
    pub(super) fn number<T: FromStr>(&self, variable: &'static str) -> Result<Option<T>, LaunchError> {
        let Some(value) = self.text(variable) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| LaunchError::NotANumber { variable, value })
    }

    /// Returns the number in the first of several variables that is set.
    pub(super) fn first_number<T: FromStr>(&self, names: &[&'static str]) -> Result<Option<T>, LaunchError> {
        names.iter().copied().find(|name| self.text(name).is_some()).map_or(Ok(None), |name| self.number(name))
    }

    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.text(name).is_some())
    }

    /// Returns the first name whose variable is set, or else the first name.
    pub(super) fn first(&self, names: &[&'static str]) -> &'static str {
        names.iter().copied().find(|name| self.text(name).is_some()).unwrap_or(names[0])
    }
}
