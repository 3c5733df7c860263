//! A change of a setting.

use gpu_tuned_core::Provenance;
use serde::Serialize;

/// A setting in the file and in the plan.
#[derive(Clone, Debug, Serialize)]
pub struct Change {
    /// Name of the setting.
    pub setting: &'static str,
    /// Path of the key; for a key that the file lacks, its proposed name.
    pub key: String,
    /// Value in the file.
    pub before: Option<String>,
    /// Planned value in the spelling of the file.
    pub after: String,
    /// Reason for the value.
    pub why: String,
    /// Provenance of the reason.
    pub provenance: Provenance,
    /// Effect on the file.
    pub state: ChangeState,
}

/// Effect of a plan on a setting in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeState {
    /// The value stays.
    Same,
    /// The value changes.
    Changed,
    /// A key is added.
    Added,
    /// The file lacks the key, and the user has to add it: its program may not read one, or the table for it is missing.
    ByHand,
    /// The file lacks the key; other keys imply the value.
    Implied,
}

impl ChangeState {
    /// Returns true if the text of the file changes.
    pub(crate) const fn is_edit(self) -> bool {
        matches!(self, Self::Changed | Self::Added)
    }
}
