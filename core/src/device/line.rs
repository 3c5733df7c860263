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
    /// The line of the GPU with this product name, which counts before the capability; `None` for an unrecognised name.
    pub(crate) fn new(name: Option<&str>, capability: ComputeCapability) -> Option<Self> {
        let name = name.unwrap_or_default();
        let contains = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        if contains(&["Laptop", "Mobile", "with Max-Q"]) {
            Some(Self::Laptop)
        } else if contains(&["GeForce", "TITAN"]) {
            Some(Self::GeForce)
        } else if contains(&["RTX", "Quadro", "Tesla"]) {
            Some(Self::Professional)
        } else if capability.is_integrated() {
            Some(Self::Integrated)
        } else if name.split_whitespace().any(is_board) {
            Some(Self::Professional)
        } else {
            None
        }
    }
}

/// Returns true for the name of a board for data centers: one or two letters and a number, such as `L40S` or `GB200`.
fn is_board(word: &str) -> bool {
    let number = word.trim_start_matches(|letter: char| letter.is_ascii_uppercase());
    (1..=2).contains(&(word.len() - number.len())) && number.starts_with(|digit: char| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::ProductLine;
    use crate::device::ComputeCapability;

    #[test]
    fn names_have_the_line_of_their_product() {
        let of = |name| ProductLine::new(Some(name), ComputeCapability::new(8, 6));
        for name in ["NVIDIA GeForce RTX 3090", "NVIDIA TITAN RTX"] {
            assert_eq!(of(name), Some(ProductLine::GeForce), "{name}");
        }
        for name in ["NVIDIA GeForce RTX 3080 Laptop GPU", "GeForce GTX 1070 with Max-Q Design"] {
            assert_eq!(of(name), Some(ProductLine::Laptop), "{name}");
        }
        for name in ["NVIDIA A10G", "NVIDIA L40S", "Tesla T4", "NVIDIA GB200", "NVIDIA H100 PCIe", "NVIDIA RTX A4000"] {
            assert_eq!(of(name), Some(ProductLine::Professional), "{name}");
        }
        for name in ["", "NVIDIA Graphics Device", "GPU 0", "a new one"] {
            assert_eq!(of(name), None, "{name}");
        }
        let with_orins = |name| ProductLine::new(Some(name), ComputeCapability::new(8, 7));
        for name in ["Orin (nvgpu)", "NVIDIA GB10", ""] {
            assert_eq!(with_orins(name), Some(ProductLine::Integrated), "{name}");
        }
        // A driver that reports the capability of a Jetson for a board is wrong.
        assert_eq!(with_orins("NVIDIA GeForce RTX 4090"), Some(ProductLine::GeForce));
    }
}
