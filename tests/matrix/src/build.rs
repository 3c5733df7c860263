use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// Result of a build.
#[derive(Debug)]
pub struct Build {
    /// True if cargo succeeded.
    pub succeeded: bool,
    /// Output of cargo, the compiler and the build script.
    pub stderr: String,
    /// The compiled packages.
    pub compiled: BTreeSet<String>,
    program: Option<PathBuf>,
}

impl Build {
    /// Reads cargo's messages.
    pub(crate) fn from_output(output: &Output) -> Self {
        let mut build = Self {
            succeeded: output.status.success(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            compiled: BTreeSet::new(),
            program: None,
        };
        let stdout = String::from_utf8_lossy(&output.stdout);
        let messages = stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for message in messages.filter(|message| message["reason"] == "compiler-artifact") {
            if message["fresh"] == false {
                build.compiled.insert(message["target"]["name"].as_str().unwrap_or_default().to_owned());
            }
            build.program = message["executable"].as_str().map(PathBuf::from).or(build.program);
        }
        build
    }

    /// Constants of the tuned struct, as printed by the program.
    ///
    /// # Panics
    ///
    /// When the build failed, or the program does.
    pub fn constants(&self) -> BTreeMap<String, String> {
        assert!(self.succeeded, "{}", self.stderr);
        let program = self.program.as_ref().expect("the package has a program");
        let output = Command::new(program).output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let constants = text.lines().filter_map(|line| line.split_once('='));
        constants.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// One of the [`constants`](Self::constants).
    ///
    /// # Panics
    ///
    /// If there is none of this name, or if [`constants`](Self::constants) panics.
    pub fn constant(&self, name: &str) -> String {
        self.constants().remove(name).unwrap_or_else(|| panic!("the program prints no {name}"))
    }

    /// The error output of a failed build.
    ///
    /// # Panics
    ///
    /// When nothing did.
    pub fn error(&self) -> &str {
        assert!(!self.succeeded, "the build was to fail: {self:?}");
        &self.stderr
    }
}
