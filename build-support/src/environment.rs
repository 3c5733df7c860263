use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use crate::BuildError;
use crate::directives::Directives;

/// The variable that overrides the features.
pub(crate) const TARGET: &str = "GPU_TUNED_TARGET";
/// The variable that prints the resolved table.
pub(crate) const PRINT: &str = "GPU_TUNED_PRINT";

/// The environment of a build script, or a test's replacement.
pub trait Environment {
    /// The value of a variable, if it is set.
    fn variable(&self, name: &str) -> Option<OsString>;
}

/// The environment of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process;

impl Environment for Process {
    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
}

/// Returns a folder that cargo passes to every build script.
pub(crate) fn folder(environment: &impl Environment, name: &'static str) -> Result<PathBuf, BuildError> {
    environment.variable(name).map(PathBuf::from).ok_or(BuildError::OutsideCargo { variable: name })
}

/// Returns a user's variable; empty counts as unset. Cargo runs the script again when the variable changes.
pub(crate) fn setting(
    environment: &impl Environment,
    name: &'static str,
    directives: &mut Directives<impl Write>,
) -> Result<Option<String>, BuildError> {
    directives.rerun_if_env_changed(name)?;
    let Some(value) = environment.variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|_| BuildError::NotUnicode { variable: name })
}
