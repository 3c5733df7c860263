use serde::{Deserialize, Serialize};

/// Expected result of reading the scenario's machine: the section `[expect]` of its file.
///
/// The section describes the GPU chosen by a program built for an RTX 4090: the first matching one, else the first
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// How closely the GPU matches.
    #[serde(rename = "match")]
    pub matched: MatchKind,
    /// The matched profile, for `exact` and `variant`.
    pub profile: Option<String>,
    /// Differences from the profile, by kind (`memory`, `vgpu`).
    #[serde(default)]
    pub differences: Vec<String>,
    /// Reasons against the compiled constants, by kind (`other_gpu`, `memory`); empty if the constants are confirmed.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// True if no plan fits, not even the smallest.
    #[serde(default)]
    pub refused: bool,
    /// Memory of the host in MiB, all of it free, for a GPU that shares it. The result depends on it.
    pub host_memory_mib: Option<u64>,
    /// Number of readable GPUs and slices.
    #[serde(default = "one")]
    pub gpus: usize,
    /// Number of errors: one for each unusable GPU, one for an unusable driver.
    #[serde(default)]
    pub trouble: usize,
}

fn one() -> usize {
    1
}

/// How closely a GPU matches a profile, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchKind {
    /// Everything that the driver reports matches the profile.
    Exact,
    /// Nearly the profile's GPU.
    Variant,
    /// Only the compute capability is available.
    Class,
    /// Nothing identifies the GPU.
    Unknown,
    /// No GPU can be used.
    Cpu,
}
