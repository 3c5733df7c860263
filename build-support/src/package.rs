use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gpu_tuned_core::source::Source;
use toml::{Table, Value};

use crate::environment::{Environment, folder};
use crate::error::BuildError;

/// The package whose build script runs.
pub(crate) struct Package {
    /// The folder of its `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Where its build script may write.
    pub(crate) out: PathBuf,
    /// Its enabled features, as they are spelled.
    pub(crate) enabled: BTreeSet<String>,
    /// Its features, and what each of them enables.
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

impl Package {
    pub(crate) const MANIFEST: &'static str = "Cargo.toml";

    pub(crate) fn read(environment: &impl Environment) -> Result<Self, BuildError> {
        let root = folder(environment, "CARGO_MANIFEST_DIR")?;
        let out = folder(environment, "OUT_DIR")?;
        // CARGO_FEATURE_* would be the usual way, but it loses the spelling: `-` becomes `_`.
        let enabled = environment.variable("CARGO_CFG_FEATURE").unwrap_or_default();
        let enabled = enabled.into_string().map_err(|_| BuildError::NotUnicode { variable: "CARGO_CFG_FEATURE" })?;
        let enabled = enabled.split(',').filter(|feature| !feature.is_empty()).map(str::to_owned).collect();
        let path = root.join(Self::MANIFEST);
        let text = std::fs::read_to_string(&path).map_err(|source| BuildError::Read { path, source })?;
        Ok(Self { root, out, enabled, features: features(text)? })
    }
}

fn features(text: String) -> Result<BTreeMap<String, Vec<String>>, BuildError> {
    let manifest: Table = match toml::from_str(&text) {
        Ok(manifest) => manifest,
        Err(error) => {
            let mistake = Source { file: Package::MANIFEST, text: &text }.toml_error(&error);
            return Err(BuildError::File { text, mistakes: vec![mistake] });
        }
    };
    let features = manifest.get("features").and_then(Value::as_table).into_iter().flatten();
    let enables = |value: &Value| {
        let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    Ok(features.map(|(feature, value)| (feature.clone(), enables(value))).collect())
}
