use serde::{Deserialize, Serialize};

use crate::{Pins, Provenance, Setting};

/// Reason for the value of a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The setting.
    pub setting: Setting,
    /// Provenance of the value.
    pub provenance: Provenance,
    /// The reason in words.
    pub why: String,
}

impl Reason {
    /// The pin of a setting, the planner's reason, or the reason for the default value.
    pub(super) fn new(setting: Setting, pins: &Pins, planned: &[Self]) -> Self {
        let found = planned.iter().find(|reason| reason.setting == setting);
        match (found, setting.row().unplanned) {
            _ if pins.has(setting) => Self::pinned(setting, "set in the config"),
            (Some(reason), _) => reason.clone(),
            (None, note) => {
                Self { setting, provenance: Provenance::Derived, why: note.unwrap_or("the default").to_owned() }
            }
        }
    }

    /// The reason for a value that the user pinned in `source`.
    pub fn pinned(setting: Setting, source: &str) -> Self {
        Self { setting, provenance: Provenance::Declared, why: setting.pinned_by(source) }
    }
}
