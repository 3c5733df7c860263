use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::{Build, sources};

/// A package in a temporary folder, with the environment of its builds.
#[derive(Debug)]
pub struct Fixture {
    folder: PathBuf,
    target: PathBuf,
    variables: Vec<(OsString, OsString)>,
}

impl Fixture {
    /// A package `name` without sources. `temporary` is the `CARGO_TARGET_TMPDIR` of the test.
    ///
    /// # Panics
    ///
    /// When the folder cannot be written.
    pub fn empty(temporary: &str, name: &str) -> Self {
        let matrix = Path::new(temporary).join("matrix");
        let folder = matrix.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("the folder of an earlier run can be removed");
        }
        fs::create_dir_all(&folder).expect("the temporary folder can be written");
        // Tests of the command build packages there, too.
        let target = Path::new(temporary).join("packages");
        let fixture = Self { folder, target, variables: Vec::new() };
        let lock = fs::read_to_string(sources::workspace().join("Cargo.lock")).expect("the workspace has a lock file");
        fixture.with("Cargo.lock", &lock)
    }

    /// A package `name` with a build script and a tuned struct, without `gpu-tuned.toml`.
    ///
    /// # Panics
    ///
    /// When the folder cannot be written.
    pub fn new(temporary: &str, name: &str) -> Self {
        Self::empty(temporary, name)
            .with("Cargo.toml", &sources::manifest(name))
            .with("build.rs", sources::BUILD_SCRIPT)
            .with("src/main.rs", &sources::program("", sources::DIMENSIONS))
    }

    /// Writes a file of the package.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    #[must_use]
    pub fn with(self, file: &str, text: &str) -> Self {
        self.write(file, text);
        self
    }

    /// Sets a variable for every build.
    #[must_use]
    pub fn set(mut self, variable: &str, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((variable.into(), value.as_ref().to_owned()));
        self
    }

    /// Writes a file of the package.
    ///
    /// # Panics
    ///
    /// When it cannot be written.
    pub fn write(&self, file: &str, text: &str) {
        let path = self.folder.join(file);
        let parent = path.parent().expect("a file is in a folder");
        fs::create_dir_all(parent).and_then(|()| fs::write(&path, text)).expect("the temporary folder can be written");
    }

    /// Removes a file of the package.
    ///
    /// # Panics
    ///
    /// When it is not there.
    pub fn remove(&self, file: &str) {
        fs::remove_file(self.folder.join(file)).expect("the file is there");
    }

    /// Returns the inputs of the last compilation of this package, in the form of the compiler: paths of files, and variables.
    ///
    /// # Panics
    ///
    /// Before a build.
    pub fn inputs(&self) -> String {
        let name = self.folder.file_name().expect("the folder has a name").to_string_lossy().replace('-', "_") + "-";
        let files = fs::read_dir(self.target.join("debug/deps")).expect("there was a build").flatten();
        let paths = files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|ending| ending == "d"));
        let own = paths.filter(|path| path.file_name().is_some_and(|it| it.to_string_lossy().starts_with(&name)));
        let last = own.max_by_key(|path| path.metadata().and_then(|facts| facts.modified()).ok());
        fs::read_to_string(last.expect("there was a build")).expect("it can be read")
    }

    /// Runs `cargo build` with these arguments.
    ///
    /// # Panics
    ///
    /// When cargo cannot be started.
    pub fn build(&self, arguments: &[&str]) -> Build {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--offline", "--message-format", "json-render-diagnostics"]).args(arguments);
        command.current_dir(&self.folder).env("CARGO_TARGET_DIR", &self.target);
        for (variable, _) in env::vars_os().filter(|(variable, _)| is_foreign(variable)) {
            command.env_remove(variable);
        }
        command.envs(self.variables.iter().map(|(variable, value)| (variable, value)));
        Build::from_output(&command.output().expect("cargo starts"))
    }
}

/// Returns true for a variable that would make a build depend on the environment of the tests.
fn is_foreign(variable: &OsStr) -> bool {
    let text = variable.to_string_lossy();
    text.starts_with("GPU_TUNED_") || text.starts_with("FAKE_NVML_")
}
