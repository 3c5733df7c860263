use std::collections::BTreeSet;
use std::fmt;

use cubecl_environment::persistence::Namespace;
use gpu_tuned_core::device::{ComputeCapability, GpuReading};
use serde::{Deserialize, Serialize};

use crate::requests::{package, slug};
use crate::versions;

/// Key of compiled kernels and tuning: machines with equal fingerprints can share them.
///
/// Precision and shapes are no part of it: `CubeCL` keys by them. It keys by no GPU model, driver or release of Burn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fingerprint {
    /// The kinds of GPU that the process trains on, each once.
    pub gpus: BTreeSet<GpuKind>,
    /// The driver's version, such as `580.95.05`.
    pub driver: Option<String>,
    /// The release of Burn.
    pub burn: String,
    /// The release of `CubeCL`.
    pub cubecl: String,
    /// True if TF32 is switched off. Tuning with TF32 may need it. Older releases could not switch it off.
    #[serde(default)]
    pub full_f32: bool,
}

/// A kind of GPU: all of a kind run the same kernels at the same speed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GpuKind {
    /// Name in the driver.
    pub name: String,
    /// The compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Multiprocessors: fewer in a slice, and in some boards of the same name.
    pub sm_count: Option<u32>,
}

/// A file name may have 255 bytes, and what is beside a database adds some.
const LONGEST_NAME: usize = 180;

impl Fingerprint {
    /// The fingerprint of this program on these GPUs; `None` without any.
    ///
    /// `driver` is the driver's version.
    pub fn new<'a>(gpus: impl IntoIterator<Item = &'a GpuReading>, driver: Option<&str>) -> Option<Self> {
        let gpus: BTreeSet<GpuKind> = gpus.into_iter().map(GpuKind::new).collect();
        (!gpus.is_empty()).then(|| Self {
            gpus,
            driver: driver.map(str::to_owned),
            burn: versions::burn(package().as_deref()),
            cubecl: cubecl_release(),
            full_f32: false,
        })
    }

    /// The same with TF32 switched off, or not.
    #[must_use]
    pub fn full_f32(self, full_f32: bool) -> Self {
        Self { full_f32, ..self }
    }

    /// The name of `CubeCL`'s environment for it, and of archives: letters, digits, dots and hyphens.
    pub fn environment(&self) -> String {
        let mut words = vec!["gpu-tuned".to_owned()];
        for gpu in &self.gpus {
            words.push(slug(&gpu.name));
            words
                .extend(gpu.compute_capability.map(|capability| format!("sm{}{}", capability.major, capability.minor)));
            words.extend(gpu.sm_count.map(|count| format!("x{count}")));
        }
        words.extend(self.driver.as_deref().map(|driver| format!("driver-{}", release(driver))));
        words.push(format!("burn-{}", release(&self.burn)));
        words.push(format!("cubecl-{}", release(&self.cubecl)));
        words.extend(self.full_f32.then(|| "full-f32".to_owned()));
        let name = words.join("-");
        if name.len() <= LONGEST_NAME {
            return name;
        }
        // Cut where no letter ends: every character is one byte.
        format!("{}-{:08x}", &name[..LONGEST_NAME], crc32fast::hash(name.as_bytes()))
    }

    /// In what something made on `other` is not for this; empty if it is.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let or_unknown = |of: Option<&str>| of.unwrap_or("unknown").to_owned();
        let products = |of: &Self| if of.full_f32 { "f32" } else { "TF32" }.to_owned();
        let gpus = |of: &Self| of.gpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        [
            ("", gpus(other), gpus(self)),
            ("driver ", or_unknown(other.driver.as_deref()), or_unknown(self.driver.as_deref())),
            ("Burn ", other.burn.clone(), self.burn.clone()),
            ("CubeCL ", other.cubecl.clone(), self.cubecl.clone()),
            ("f32 products in ", products(other), products(self)),
        ]
        .into_iter()
        .filter(|(_, made, here)| made != here)
        .map(|(what, made, here)| format!("made with {what}{made}, here it is {here}"))
        .collect()
    }
}

impl GpuKind {
    fn new(gpu: &GpuReading) -> Self {
        Self {
            name: gpu.name.clone().unwrap_or_else(|| "unnamed GPU".to_owned()),
            compute_capability: gpu.compute_capability,
            sm_count: gpu.sm_count,
        }
    }
}

impl fmt::Display for GpuKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let capability = self.compute_capability.map(|capability| format!("compute capability {capability}"));
        let count = self.sm_count.map(|count| format!("{count} multiprocessors"));
        let more: Vec<_> = capability.into_iter().chain(count).collect();
        if more.is_empty() { Ok(()) } else { write!(f, " ({})", more.join(", ")) }
    }
}

/// The release of `CubeCL` in this program, which is the second part of every namespace of its caches.
fn cubecl_release() -> String {
    Namespace::new("").as_str().split('/').nth(1).unwrap_or_default().to_owned()
}

/// A version as part of a name.
fn release(version: &str) -> String {
    version.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect()
}

#[cfg(test)]
pub(super) mod tests;
