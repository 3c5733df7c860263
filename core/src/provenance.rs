use core::fmt;

use serde::{Deserialize, Serialize};

/// Source of a figure, ordered from the most to the least reliable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provenance {
    /// Measured on this device or this program.
    Measured,
    /// Interpolated between measurements.
    Estimated,
    /// Scaled from measurements on another GPU.
    Transferred,
    /// User-specified.
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
