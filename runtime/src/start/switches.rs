//! Switches in the environment.

use super::{Options, StartError};

/// Value of [`Options::STRICT_VARIABLE`].
pub(super) fn is_strict() -> Result<bool, StartError> {
    is_on(Options::STRICT_VARIABLE).map_err(|value| StartError::StrictVariable { value })
}

/// Value of [`Options::INDEPENDENT_VARIABLE`].
pub(super) fn is_independent() -> Result<bool, StartError> {
    is_on(Options::INDEPENDENT_VARIABLE).map_err(|value| StartError::IndependentVariable { value })
}

/// Value of a switch that is off by default, or the text that is none.
fn is_on(variable: &str) -> Result<bool, String> {
    let Some(value) = std::env::var_os(variable) else { return Ok(false) };
    match value.to_string_lossy().to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "" | "0" | "false" => Ok(false),
        _ => Err(value.to_string_lossy().into_owned()),
    }
}
