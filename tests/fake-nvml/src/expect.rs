use serde::{Deserialize, Serialize};

/// What code that reads the machine of a scenario makes of it: the section `[expect]` of its file.
///
/// It is about the GPU that a program built for an RTX 4090 takes: the first that is one, else the first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// How sure the GPU is recognised.
    pub rung: Rung,
    /// As which profile, on the rungs that have one.
    pub profile: Option<String>,
    /// What differs from the profile, by kind (`memory`, `vgpu`).
    #[serde(default)]
    pub differences: Vec<String>,
    /// Why the constants of the program cannot be used as they are, by kind (`other_gpu`, `memory`); empty when they are
    /// confirmed.
    #[serde(default)]
    pub fallbacks: Vec<String>,
    /// Whether there is no plan, because not even the least of the program fits.
    #[serde(default)]
    pub refused: bool,
    /// How many GPUs and slices can be read.
    #[serde(default = "one")]
    pub gpus: usize,
    /// How many reasons there are for missing GPUs: one for each that cannot be used, one for a driver that does not work.
    #[serde(default)]
    pub trouble: usize,
}

fn one() -> usize {
    1
}

/// The rungs of the ladder, from sure to unsure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// All that the driver answers is as the profile says.
    Exact,
    /// Nearly the profile's GPU.
    Variant,
    /// Only the compute capability is known.
    Class,
    /// Nothing identifies the GPU.
    Unknown,
    /// No GPU can be used.
    Cpu,
}
