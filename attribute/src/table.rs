use std::path::Path;

use gpu_tuned_project::resolved::Resolved;

/// The resolved table of the user's build script, as the attribute finds it.
pub enum Table {
    /// The package has no build script.
    Absent,
    /// The table that the build script wrote.
    Resolved(Box<Resolved>),
    /// The reason why the table cannot be read.
    Broken(String),
}

impl Table {
    /// Reads the table at this path; `None` for a package without a build script.
    pub fn read(path: Option<&Path>) -> Self {
        let Some(path) = path else { return Self::Absent };
        let text = match std::fs::read_to_string(path) {
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
