use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_project::file::{self, ReadError};
use gpu_tuned_project::workspace::MANIFEST;
use toml::{Table, Value};

use crate::environment::{Environment, folder};
use crate::error::BuildError;

/// The package whose build script runs.
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The folder of its `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// The build script's output folder.
    pub(crate) out: PathBuf,
    /// Its enabled features, as they are spelled.
    pub(crate) enabled: BTreeSet<String>,
    /// Its features, each with the features that it enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

impl Package {
    pub(crate) fn read(environment: &impl Environment) -> Result<Self, BuildError> {
        let root = folder(environment, "CARGO_MANIFEST_DIR")?;
        let out = folder(environment, "OUT_DIR")?;
        // CARGO_FEATURE_* loses the spelling: `-` becomes `_`.
        let enabled = environment.variable("CARGO_CFG_FEATURE").unwrap_or_default();
        let enabled = enabled.into_string().map_err(|_| BuildError::NotUnicode { variable: "CARGO_CFG_FEATURE" })?;
        let enabled = enabled.split(',').filter(|feature| !feature.is_empty()).map(str::to_owned).collect();
        let path = root.join(MANIFEST);
        let text =
            regular_file::read_text(&path, regular_file::LARGEST).map_err(|cause| BuildError::Read { path, cause })?;
        let manifest = manifest(text)?;
        let name = manifest.get("package").and_then(|package| package.get("name")?.as_str()).unwrap_or_default();
        Ok(Self { name: name.to_owned(), root, out, enabled, features: features(&manifest) })
    }

    /// Reads a file that is named from the package's root; `None` if there is no such file. `remedy` is the advice for a
    /// file that is not UTF-8.
    pub(crate) fn file<T>(
        &self,
        path: &Path,
        remedy: &str,
        parse: impl FnOnce(Source<'_>) -> Result<T, Vec<FileError>>,
    ) -> Result<Option<T>, BuildError> {
        file::read(&self.root, path, remedy, parse).map_err(|error| match error {
            ReadError::Io { cause, .. } => BuildError::Read { path: path.to_owned(), cause },
            ReadError::Mistakes { text, mistakes } => BuildError::File { text, mistakes },
        })
    }
}

fn manifest(text: String) -> Result<Table, BuildError> {
    toml::from_str(&text).map_err(|error| {
        let mistake = Source { file: MANIFEST, text: &text }.toml_error(&error);
        BuildError::File { text, mistakes: vec![mistake] }
    })
}

fn features(manifest: &Table) -> BTreeMap<String, Vec<String>> {
    let features = manifest.get("features").and_then(Value::as_table).into_iter().flatten();
    let enables = |value: &Value| {
        let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    features.map(|(feature, value)| (feature.clone(), enables(value))).collect()
}
