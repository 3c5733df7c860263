use core::fmt;

use serde::{Deserialize, Serialize};

/// Where a figure comes from; ordered from the firmest to the weakest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Read off the device or the program itself.
    Measured,
    /// Between what was measured.
    Estimated,
    /// Measured on another GPU and carried over.
    Transferred,
    /// Stated by the user.
    Declared,
    /// Computed from data sheets and dimensions.
    #[default]
    Derived,
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Measured => "measured",
            Self::Estimated => "estimated",
            Self::Transferred => "transferred",
            Self::Declared => "declared",
            Self::Derived => "derived",
        })
    }
}
