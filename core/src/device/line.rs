use serde::Deserialize;

use super::ComputeCapability;

/// Product line of a GPU. Within one compute capability, lines differ in units, clocks and bandwidth for equal memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProductLine {
    /// Workstation and data center.
    Professional,
    /// GeForce and TITAN for desktops.
    GeForce,
    /// Laptops.
    Laptop,
    /// A GPU that shares the host's memory.
    Integrated,
}

impl ProductLine {
    /// The line of the GPU with this product name; professional for an unrecognised name.
    pub(crate) fn new(name: Option<&str>, capability: ComputeCapability) -> Self {
        let contains = |parts: &[&str]| name.is_some_and(|name| parts.iter().any(|part| name.contains(part)));
        if capability.is_integrated() {
            Self::Integrated
        } else if contains(&["Laptop", "Mobile", "with Max-Q"]) {
            Self::Laptop
        } else if contains(&["GeForce", "TITAN"]) {
            Self::GeForce
        } else {
            Self::Professional
        }
    }
}
