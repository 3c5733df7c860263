//! GPU profiles: published, derived and observed figures of GPU models.

mod detected;
mod facts;
mod figures;
mod names;
mod table;
mod validate;

use serde::{Deserialize, Serialize};

use crate::device::{ComputeCapability, EstimatedFigure, PciId};
pub use detected::{DetectedProfile, NoDescription};
pub use figures::{Basis, Board, Compute, Memory, Peak, Peaks, PrintedFigure};
pub use names::{ProfileId, ProfileNames, did_you_mean, names_left_out, refuse};
pub use table::ProfileTable;
pub use validate::{Fault, Strictness, faults};

crate::sparse! {
    /// Figures of one GPU model. An unavailable figure is absent, never guessed.
    ///
    /// `SOURCES.md`, in the folder of the profile files, explains the source codes.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Profile {
        /// The profile's name, which is also the name of the Cargo feature.
        pub id: ProfileId,
        /// The whole product names under which drivers report this GPU.
        pub names: Vec<String>,
        /// Source of the names.
        pub names_source: Option<String>,
        /// The PCI ids of the boards sold under this name.
        pub pci_ids: Vec<PciId>,
        /// Source of the PCI ids.
        pub pci_ids_source: Option<String>,
        /// Other profiles that have one of these PCI ids.
        pub pci_ids_shared_with: Vec<ProfileId>,
        /// The marketing name of the architecture.
        pub architecture: String,
        /// The chip, such as `AD102`.
        pub chip: Option<String>,
        /// The CUDA compute capability.
        pub compute_capability: ComputeCapability,
        /// True for a laptop part.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        pub mobile: bool,
        /// True for a board that somebody changed: it has the name and PCI id of the product, and only its memory differs.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        pub modified: bool,
        /// Sources of the figures without a source of their own.
        pub sources: Vec<String>,
        /// Properties without a reliable source, in words.
        pub unknown: Vec<String>,
        /// Figures that are estimates, beside peaks with that basis.
        pub estimated: Vec<EstimatedFigure>,
        /// Notes for readers.
        pub notes: Option<String>,
        /// Memory sizes and bandwidth.
        pub memory: Memory,
        /// Multiprocessors and clocks.
        #[serde(default)]
        pub compute: Compute,
        /// Peak arithmetic rates.
        #[serde(default)]
        pub peaks: Peaks,
        /// The board around the chip.
        #[serde(default)]
        pub board: Board,
    }
}

/// Table of the source codes.
const SOURCES: &str = include_str!("../../profiles/SOURCES.md");

/// Explains a source code, such as `okm`; `None` for an unlisted code.
pub fn describe_source(code: &str) -> Option<&'static str> {
    let rows = SOURCES.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once(" | "));
    let names = |codes: &str| codes.split(", ").any(|named| named.trim_matches('`') == code);
    rows.into_iter().find_map(|(codes, words)| names(codes).then_some(words))
}

/// Returns true for a source that a profile may name: a code of the table, or the address of a page.
pub(super) fn is_source(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://") || describe_source(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::describe_source;

    #[test]
    fn a_code_is_explained_alone_and_beside_another() {
        assert!(
            describe_source("okm").is_some_and(|words| words.starts_with("NVIDIA/open-gpu-kernel-modules, README"))
        );
        assert_eq!(describe_source("github-a10"), describe_source("github-pro6000"));
        assert_eq!(
            describe_source("least"),
            Some("the least figure among the boards that have at least 8 GiB and 200 GB/s")
        );
        for stranger in ["", "code", "---", "ok", "github"] {
            assert_eq!(describe_source(stranger), None, "{stranger}");
        }
    }
}
