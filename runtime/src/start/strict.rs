//! Strict mode by the environment.

use super::{Options, StartError};

/// Value of [`Options::STRICT_VARIABLE`].
pub(super) fn is_strict() -> Result<bool, StartError> {
    let Some(value) = std::env::var_os(Options::STRICT_VARIABLE) else { return Ok(false) };
    match value.to_string_lossy().to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "" | "0" | "false" => Ok(false),
        _ => Err(StartError::StrictVariable { value: value.to_string_lossy().into_owned() }),
    }
}
