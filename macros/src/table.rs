//! The table that the user's build script resolved.

use gpu_tuned_project::resolved::Resolved;

/// What the build script left for the attribute.
pub(crate) enum Table {
    /// The package has no build script for it.
    Absent,
    /// What it wrote.
    Resolved(Box<Resolved>),
    /// Why that cannot be read.
    Broken(String),
}

impl Table {
    /// Reads the table whose path the build script put into the compiler's environment.
    pub(crate) fn from_env() -> Self {
        let Some(path) = std::env::var_os(Resolved::VARIABLE) else { return Self::Absent };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                return Self::Broken(format!("the build script's table `{}`: {error}", path.display()));
            }
        };
        match Resolved::from_toml(&text) {
            Ok(resolved) => Self::Resolved(Box::new(resolved)),
            Err(error) => Self::Broken(error.to_string()),
        }
    }
}
