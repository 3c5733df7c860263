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
    /// The pin of a setting, or the planner's reason.
    pub(super) fn new(setting: Setting, pins: &Pins, planned: &[Self]) -> Self {
        if pins.has(setting) {
            return Self::pinned(setting, "set in the config");
        }
        let planned = planned.iter().find(|reason| reason.setting == setting);
        planned.cloned().expect("BUG: the planner gives a reason for each setting")
    }

    /// The reason for a value that the user pinned in `source`.
    pub fn pinned(setting: Setting, source: &str) -> Self {
        Self { setting, provenance: Provenance::Declared, why: source.to_owned() }
    }
}
