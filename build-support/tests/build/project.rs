//! A package in a temporary folder, and an environment as cargo would set it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use gpu_tuned_build::{BuildError, Config, Environment, Resolved, configure};
use tempfile::TempDir;

pub(crate) struct Project {
    folder: TempDir,
    variables: BTreeMap<&'static str, OsString>,
}

impl Environment for Project {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).cloned()
    }
}

impl Project {
    /// A package that declares these features.
    pub(crate) fn declaring(features: &[&str]) -> Self {
        Self::within(tempfile::tempdir().unwrap(), features)
    }

    /// A package in a folder below this one.
    pub(crate) fn below(folder: &Path) -> Self {
        Self::within(tempfile::tempdir_in(folder).unwrap(), &[])
    }

    fn within(folder: TempDir, features: &[&str]) -> Self {
        let project = Self { folder, variables: BTreeMap::new() };
        let lines: Vec<String> = features.iter().map(|feature| format!("{feature} = []")).collect();
        project.file("Cargo.toml", &format!("[package]\nname = \"user\"\n\n[features]\n{}\n", lines.join("\n")));
        fs::create_dir(project.path("out")).unwrap();
        let (root, out) = (project.path(""), project.path("out"));
        project.set("CARGO_MANIFEST_DIR", root).set("OUT_DIR", out).set("CARGO_CFG_FEATURE", "")
    }

    /// A package with the features that most tests need, some of them enabled.
    pub(crate) fn enabling(features: &[&str]) -> Self {
        Self::declaring(&["default", "h200", "rtx4090", "native"]).set("CARGO_CFG_FEATURE", features.join(","))
    }

    pub(crate) fn set(mut self, variable: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.insert(variable, value.into());
        self
    }

    pub(crate) fn unset(mut self, variable: &'static str) -> Self {
        self.variables.remove(variable);
        self
    }

    pub(crate) fn with(self, name: &str, text: &str) -> Self {
        self.file(name, text);
        self
    }

    /// Adds a line of `[package.metadata.gpu-tuned]`.
    pub(crate) fn with_metadata(self, line: &str) -> Self {
        let manifest = fs::read_to_string(self.path("Cargo.toml")).unwrap();
        self.with("Cargo.toml", &format!("{manifest}\n[package.metadata.gpu-tuned]\n{line}\n"))
    }

    pub(crate) fn file(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn resolve(&self) -> Result<Resolved, BuildError> {
        configure().run(self, &mut Vec::new())
    }

    /// The directives, with the temporary folder written as `ROOT`.
    pub(crate) fn directives(&self) -> Vec<String> {
        let mut out = Vec::new();
        configure().run(self, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap().replace(self.folder.path().to_str().unwrap(), "ROOT");
        text.lines().map(|line| line.strip_prefix("cargo::").unwrap().to_owned()).collect()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let lines = self.directives();
        lines.iter().filter_map(|line| line.strip_prefix("warning=")).map(str::to_owned).collect()
    }

    /// Output of the build script before it ends with status 1.
    pub(crate) fn report(&self, config: &Config) -> String {
        let mut report = Vec::new();
        config.run(self, &mut Vec::new()).unwrap_err().report(&mut report).unwrap();
        String::from_utf8(report).unwrap()
    }
}
