//! The table of files and expected values.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Table {
    #[serde(rename = "config")]
    pub(crate) configs: Vec<Expected>,
    pub(crate) refused: Vec<Refused>,
    /// Keys that the programs of a dialect read, and that may be added.
    pub(crate) add: BTreeMap<String, Vec<String>>,
}

/// A file that can be read, with the expected values.
#[derive(Deserialize)]
pub(crate) struct Expected {
    pub(crate) file: String,
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) options: Options,
    pub(crate) want: toml::Table,
    #[serde(rename = "doc")]
    _doc: Option<String>,
}

/// A file that cannot be planned.
#[derive(Deserialize)]
pub(crate) struct Refused {
    pub(crate) file: String,
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) options: Options,
    /// Keys that the error names.
    pub(crate) names: Vec<String>,
    /// Line that the error names.
    pub(crate) line: Option<u64>,
    pub(crate) why: String,
}

/// Options of the command.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    pub(crate) global_batch: Option<u64>,
    pub(crate) world_size: Option<u64>,
    #[serde(default)]
    pub(crate) dims: Vec<(String, String)>,
}

/// Expectations of `want`; others are a mistake in the table.
const WANTED: &str = "batch accumulation global ranks precision workers optimizer kind may_refuse seq lora_rank \
                      packed_bits parameters trained gtx1080 bf16";

impl Table {
    pub(crate) fn read() -> Self {
        let table: Self = toml::from_str(include_str!("../configs.toml")).expect("a valid table");
        for expected in &table.configs {
            let unknown = expected.want.keys().find(|key| WANTED.split_whitespace().all(|name| name != key.as_str()));
            assert_eq!(unknown, None, "{}", expected.file);
            assert!(table.add.contains_key(expected.dialect()), "{}: no list of keys to add", expected.file);
        }
        table
    }
}

impl Expected {
    pub(crate) fn dialect(&self) -> &str {
        self.file.split('/').next().unwrap_or_default()
    }

    /// The expected value as a text.
    pub(crate) fn want(&self, name: &str) -> Option<String> {
        self.want.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// True if the model is not to be read.
    pub(crate) fn refuses_model(&self) -> bool {
        self.want("kind").as_deref() == Some("refused")
    }

    pub(crate) fn may_refuse_model(&self) -> bool {
        self.refuses_model() || self.want("may_refuse").as_deref() == Some("true")
    }
}

/// Path below the folder of tests.
pub(crate) fn path(folder: &str, file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", folder, file].iter().collect()
}
