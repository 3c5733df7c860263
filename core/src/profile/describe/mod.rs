//! A detected GPU as a `[profile.NAME]` of `gpu-tuned.toml`.

mod figures;
mod memory;
mod name;
mod text;

use thiserror::Error;

use super::{Profile, ProfileId};
use crate::Bytes;
use crate::device::{ComputeCapability, GpuReading};
use figures::Figures;

/// A profile of a detected GPU, as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGpu {
    /// Name of the profile.
    pub id: ProfileId,
    /// The table `[profile.ID]`. Estimated figures have a comment with their source.
    pub text: String,
}

/// Reasons why a detected GPU gets no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoDescription {
    /// A MIG slice or a virtual share.
    #[error("a profile describes a whole GPU, and this is a part of one; build for this part with `native`")]
    Part,
    /// Neither name nor PCI id is known.
    #[error("the driver reports neither its name nor its PCI id, by which a profile is found")]
    Identity,
    /// The memory is unknown.
    #[error("the driver does not report its memory")]
    Memory,
    /// The memory is that of no GPU of the product line.
    #[error("the driver reports {reported} of memory, and GPUs of its compute capability have {smallest} to {largest}")]
    ImplausibleMemory {
        /// The driver's figure.
        reported: Bytes,
        /// Smallest memory of such GPUs, with a margin.
        smallest: Bytes,
        /// Largest memory of such GPUs, with a margin.
        largest: Bytes,
    },
    /// The compute capability is unknown.
    #[error("the driver does not report its compute capability")]
    ComputeCapability,
    /// The compute capability contradicts the name.
    #[error(
        "the driver reports compute capability {capability}, that of GPUs that share the host's memory, for a board with its \
         own"
    )]
    SharedMemory {
        /// The driver's figure.
        capability: ComputeCapability,
    },
}

/// Describes a GPU by its reading. `exact` is the profile that the GPU matches exactly; figures that the driver does not
/// report come from it. Without one, they are left out or estimated. `is_taken` is true for names of other profiles.
///
/// # Errors
///
/// [`NoDescription`] for a part of a GPU, or if a figure that every profile needs is unknown.
pub fn describe(
    reading: &GpuReading,
    exact: Option<&Profile>,
    is_taken: impl Fn(&str) -> bool,
) -> Result<DescribedGpu, NoDescription> {
    if reading.is_mig_slice() || reading.is_vgpu() {
        return Err(NoDescription::Part);
    }
    let figures = Figures::new(reading, exact)?;
    if figures.name.is_none() && figures.pci_id.is_none() {
        return Err(NoDescription::Identity);
    }
    let id = exact.map_or_else(|| name::profile_id(&figures, is_taken), |profile| profile.id.clone());
    let text = text::profile(&id, &figures);
    Ok(DescribedGpu { id, text })
}

#[cfg(test)]
mod tests;
