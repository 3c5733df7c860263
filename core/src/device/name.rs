use super::ComputeCapability;

/// A driver's product name in its parts: `NVIDIA A40-12Q` is a virtual share of an `A40`.
///
/// The maker comes first since about driver release 465 (GeForce, RTX), or never (`Tesla T4`). The part of the GPU
/// comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductName<'a> {
    /// The name without the maker; for a virtual share, NVIDIA's code for the board.
    gpu: &'a str,
    /// True for the name of a MIG slice (`… MIG 1g.10gb`).
    pub is_mig_slice: bool,
    /// True for the name of a virtual share (`GRID V100D-8Q`, `NVIDIA A40-12Q`, `… vGPU`).
    pub is_vgpu: bool,
}

/// Boards with a vGPU code that differs from the product name (NVIDIA's vGPU types reference and its peer-to-peer
/// tables). Codes can mislead: `H200` is the NVL board, not the SXM one.
const VGPU_BOARDS: [(&str, &str); 29] = [
    ("A100", "A100-PCIE-40GB"),
    ("A100D", "A100 80GB PCIe"),
    ("A100DX", "A100-SXM4-80GB"),
    ("A100X", "A100-SXM4-40GB"),
    ("H100", "H100 PCIe"),
    ("H100L", "H100 NVL"),
    ("H100XM", "H100 80GB HBM3"),
    ("H200", "H200 NVL"),
    ("H200X", "H200"),
    ("M60", "Tesla M60"),
    ("P100", "Tesla P100-PCIE-16GB"),
    ("P100C", "Tesla P100-PCIE-12GB"),
    ("P100X", "Tesla P100-SXM2-16GB"),
    ("P4", "Tesla P4"),
    ("P40", "Tesla P40"),
    ("RTX5000-Ada", "RTX 5000 Ada Generation"),
    ("RTX5880-Ada", "RTX 5880 Ada Generation"),
    ("RTX6000", "Quadro RTX 6000"),
    ("RTX6000-Ada", "RTX 6000 Ada Generation"),
    ("RTX8000", "Quadro RTX 8000"),
    ("RTXA5000", "RTX A5000"),
    ("RTXA5500", "RTX A5500"),
    ("RTXA6000", "RTX A6000"),
    ("T4", "Tesla T4"),
    ("V100", "Tesla V100-PCIE-16GB"),
    ("V100D", "Tesla V100-PCIE-32GB"),
    ("V100DX", "Tesla V100-SXM2-32GB"),
    ("V100S", "Tesla V100S-PCIE-32GB"),
    ("V100X", "Tesla V100-SXM2-16GB"),
];

/// Product lines that Burn cannot train on, with their compute capabilities (NVIDIA's lists of CUDA GPUs and legacy GPUs).
const OLD_LINES: [(&str, ComputeCapability); 8] = [
    ("GeForce GTX 9", ComputeCapability::new(5, 2)),
    ("GeForce GTX 75", ComputeCapability::new(5, 0)),
    ("GeForce GTX 7", ComputeCapability::new(3, 5)),
    ("GeForce GTX TITAN X", ComputeCapability::new(5, 2)),
    ("GeForce GTX TITAN", ComputeCapability::new(3, 5)),
    ("Tesla K", ComputeCapability::new(3, 5)),
    ("Tesla M", ComputeCapability::new(5, 2)),
    ("Quadro M", ComputeCapability::new(5, 2)),
];

impl<'a> ProductName<'a> {
    /// Splits a driver's name into its parts. Any text is valid; unrecognised parts stay in the name.
    pub fn parse(name: &'a str) -> Self {
        let name = name.trim();
        let (whole, is_mig_slice) = name.split_once(" MIG ").map_or((name, false), |(whole, _)| (whole, true));
        let (whole, is_marked) = whole.strip_suffix(" vGPU").map_or((whole, false), |whole| (whole, true));
        let gpu = without_maker(whole);
        let (gpu, is_grid) = gpu.strip_prefix("GRID ").map_or((gpu, false), |gpu| (gpu, true));
        let board = board_of_type(gpu);
        Self { gpu: board.unwrap_or(gpu), is_mig_slice, is_vgpu: is_marked || is_grid || board.is_some() }
    }

    /// Compute capability of a product line that Burn cannot train on, for drivers that report none; `None` for other lines.
    pub(crate) fn old_capability(self) -> Option<ComputeCapability> {
        OLD_LINES.into_iter().find(|(line, _)| self.gpu.starts_with(line)).map(|(_, capability)| capability)
    }

    /// Returns true if this names `product`, or a part of it.
    pub fn is_of(&self, product: &str) -> bool {
        let product = without_maker(product.trim());
        let code = VGPU_BOARDS.iter().find(|(code, _)| self.is_vgpu && *code == self.gpu);
        code.map_or(self.gpu, |(_, whole)| whole) == product
    }
}

fn without_maker(name: &str) -> &str {
    name.strip_prefix("NVIDIA ").unwrap_or(name)
}

/// Extracts the board from a vGPU type: `BOARD-[SLICES-]GIBSERIES`, with series Q, C, B or A (NVIDIA's vGPU user
/// guide). Examples: `V100D-8Q`, `A100DX-1-10C`, `A100-1-5CME`.
fn board_of_type(name: &str) -> Option<&str> {
    let (rest, size) = name.rsplit_once('-')?;
    let series = size.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_type = series.len() < size.len() && matches!(series, "Q" | "C" | "B" | "A" | "B4" | "CME");
    let board = match rest.rsplit_once('-') {
        Some((board, "1" | "2" | "3" | "4" | "7")) => board,
        _ => rest,
    };
    (is_type && !board.is_empty()).then_some(board)
}

#[cfg(test)]
mod tests {
    use super::{OLD_LINES, ProductName};

    #[test]
    fn old_product_lines_have_a_compute_capability_that_is_refused() {
        assert!(OLD_LINES.iter().all(|(_, capability)| capability.refusal().is_some()));
        for (name, expected) in [
            ("NVIDIA GeForce GTX 980", Some("5.2")),
            ("GeForce GTX 750 Ti", Some("5.0")),
            ("GeForce GTX TITAN Black", Some("3.5")),
            ("Tesla K40c", Some("3.5")),
            ("NVIDIA GeForce GTX 1080", None),
            ("NVIDIA TITAN X (Pascal)", None),
            ("Tesla T4", None),
            ("", None),
        ] {
            let capability = ProductName::parse(name).old_capability().map(|it| it.to_string());
            assert_eq!(capability.as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_name_is_of_its_product_with_and_without_the_maker() {
        for (name, product) in [
            ("GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
            ("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
            ("Tesla T4", "Tesla T4"),
            ("NVIDIA Tesla T4", "Tesla T4"),
        ] {
            let name = ProductName::parse(name);
            assert!(name.is_of(product) && !name.is_vgpu && !name.is_mig_slice, "{name:?}");
        }
    }

    #[test]
    fn the_names_of_virtual_shares_are_of_their_boards() {
        // Names that nvidia-smi prints in guests, with the boards of NVIDIA's vGPU types reference.
        for (name, product) in [
            ("GRID V100D-8Q", "Tesla V100-PCIE-32GB"),
            ("GRID V100DX-32C", "Tesla V100-SXM2-32GB"),
            ("GRID T4-16Q", "Tesla T4"),
            ("GRID A100DX-80C", "NVIDIA A100-SXM4-80GB"),
            ("GRID A100DX-1-10C", "NVIDIA A100-SXM4-80GB"),
            ("GRID A100-1-5CME", "NVIDIA A100-PCIE-40GB"),
            ("GRID A100-1-5C MIG 1g.5gb", "NVIDIA A100-PCIE-40GB"),
            ("NVIDIA A40-12Q", "NVIDIA A40"),
            ("NVIDIA A40-1B4", "NVIDIA A40"),
            ("NVIDIA A40 vGPU", "NVIDIA A40"),
            ("NVIDIA L40S-48Q", "NVIDIA L40S"),
            ("NVIDIA H100XM-80C", "NVIDIA H100 80GB HBM3"),
            ("NVIDIA H100L-94C", "NVIDIA H100 NVL"),
            ("NVIDIA H200-141C", "NVIDIA H200 NVL"),
            ("NVIDIA H200X-1-18C", "NVIDIA H200"),
            ("NVIDIA RTX6000-Ada-48Q", "NVIDIA RTX 6000 Ada Generation"),
        ] {
            let name = ProductName::parse(name);
            assert!(name.is_vgpu && name.is_of(product), "{name:?} against {product}");
        }
        assert!(!ProductName::parse("NVIDIA H200-141C").is_of("NVIDIA H200"));
    }

    #[test]
    fn names_that_only_look_like_shares_are_whole() {
        for name in
            ["A100-SXM4-80GB", "Tesla V100-PCIE-16GB", "NVIDIA GeForce RTX 4090 D", "-8Q", "8Q", "A40-Q", "", "-"]
        {
            let parsed = ProductName::parse(name);
            assert!(!parsed.is_vgpu && parsed.is_of(name), "{name}");
        }
    }
}
