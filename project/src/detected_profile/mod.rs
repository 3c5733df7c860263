//! A detected GPU as a `[profile.NAME]` of `gpu-tuned.toml`.

mod name;
mod text;

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::profile::{DetectedProfile, NoDescription, Profile, ProfileId};

/// A profile of a detected GPU, as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGpu {
    /// Name of the profile.
    pub id: ProfileId,
    /// The table `[profile.ID]`. Estimated figures have a comment with their source.
    pub text: String,
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
    let mut detected = DetectedProfile::new(reading, exact)?;
    if exact.is_none() {
        detected.profile.id = name::profile_id(&detected.profile, is_taken);
    }
    Ok(DescribedGpu { text: text::print(&detected), id: detected.profile.id })
}

#[cfg(test)]
mod tests;
