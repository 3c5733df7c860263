//! Identity of a GPU: product name, product line, compute capability and PCI id.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;
use crate::text::through_text;

/// A CUDA compute capability, such as 8.9.
///
/// Values order by age only: a larger one does not have every feature of a smaller one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// The generation, such as 8 for Ampere and Ada.
    pub major: u8,
    /// The revision within the generation.
    pub minor: u8,
}

impl ComputeCapability {
    /// The oldest compute capability that Burn is known to train on. PTX that Burn emits loads on Pascal and Volta up to
    /// driver branch 580 (tracel-ai/cubecl issue 1311: a Tesla P100), although toolkits of CUDA 13 begin at 7.5.
    pub const OLDEST: Self = Self::new(6, 0);

    /// Oldest and newest capability of a CUDA GPU, with a margin for later generations.
    pub(crate) const PLAUSIBLE: [Self; 2] = [Self::new(2, 0), Self::new(15, 9)];

    /// FP32 lanes per SM of every GPU since 8.6, and of unlisted ones.
    pub(crate) const USUAL_CORES_PER_SM: u32 = 128;

    /// The capability `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }

    /// The marketing name of the architecture (NVIDIA's CUDA GPU list).
    pub fn architecture(self) -> Option<&'static str> {
        self.row().map(|row| row.architecture)
    }

    /// Returns true if a GPU may have this capability.
    pub(crate) fn is_plausible(self) -> bool {
        let [oldest, newest] = Self::PLAUSIBLE;
        (oldest..=newest).contains(&self)
    }

    /// Returns true for the name of a listed architecture.
    pub(crate) fn is_architecture(name: &str) -> bool {
        ROWS.iter().any(|row| row.architecture == name)
    }

    /// Returns true if fp32 products may run on TF32 tensor cores (8.0 and later; A100 whitepaper).
    pub const fn has_tf32(self) -> bool {
        self.major >= 8
    }

    /// Returns true if tensor cores support bf16 (8.0 and later; A100 whitepaper).
    pub const fn has_tensor_bf16(self) -> bool {
        self.major >= 8
    }

    /// Returns true if tensor cores support fp16 (7.0 and later; V100 whitepaper).
    pub const fn has_tensor_f16(self) -> bool {
        self.major >= 7
    }

    /// Returns true if every GPU of this capability shares the host's memory (Jetson modules, GB10).
    pub const fn is_integrated(self) -> bool {
        matches!((self.major, self.minor), (5, 3) | (6 | 7, 2) | (8, 7) | (11, _) | (12, 1))
    }

    /// Distance between two capabilities: generations count ten revisions.
    pub(crate) const fn distance(self, other: Self) -> u32 {
        (self.major as u32 * 10 + self.minor as u32).abs_diff(other.major as u32 * 10 + other.minor as u32)
    }

    /// FP32 lanes per streaming multiprocessor (CUDA programming guide, arithmetic throughput); those of recent GPUs for a
    /// capability newer than the list, `None` for another unlisted one.
    pub fn cores_per_sm(self) -> Option<u32> {
        let is_newer = ROWS.iter().all(|row| row.major < self.major);
        self.row().map(|row| row.cores_per_sm).or(is_newer.then_some(Self::USUAL_CORES_PER_SM))
    }

    /// Dense fp16 operations per clock and multiprocessor of the tensor cores, accumulated in fp32 at full rate; `None`
    /// without tensor cores or for an unlisted capability.
    pub fn tensor_f16_per_sm(self) -> Option<u32> {
        self.row().map(|row| row.tensor_f16_per_sm).filter(|operations| *operations > 0)
    }

    /// The reason why Burn cannot train on such a GPU, for a message; `None` if it can.
    pub fn refusal(self) -> Option<String> {
        if self >= Self::OLDEST || self == Self::default() {
            return None;
        }
        let family = self.architecture().map_or_else(String::new, |family| format!(" ({family})"));
        let oldest = Self::OLDEST;
        Some(format!("CUDA 13 has dropped compute capability {self}{family}, and Burn needs {oldest} or later"))
    }

    /// The last driver branch and the last CUDA toolkit for such a GPU; `None` while current releases support it. The
    /// driver compiles the PTX of Burn's default backend, so the toolkit's limit applies to NVRTC only.
    pub fn last_cuda(self) -> Option<&'static str> {
        self.row().and_then(|row| row.last_cuda)
    }

    fn row(self) -> Option<&'static Row> {
        let exact = ROWS.iter().find(|row| row.major == self.major && row.minor == Some(self.minor));
        exact.or_else(|| ROWS.iter().find(|row| row.major == self.major && row.minor.is_none()))
    }
}

/// A row of the table of compute capabilities.
struct Row {
    major: u8,
    /// `None` for all other revisions of the generation.
    minor: Option<u8>,
    architecture: &'static str,
    cores_per_sm: u32,
    /// 0 without tensor cores.
    tensor_f16_per_sm: u32,
    last_cuda: Option<&'static str>,
}

const fn row(
    major: u8,
    minor: Option<u8>,
    architecture: &'static str,
    cores_per_sm: u32,
    tensor_f16_per_sm: u32,
    last_cuda: Option<&'static str>,
) -> Row {
    Row { major, minor, architecture, cores_per_sm, tensor_f16_per_sm, last_cuda }
}

const KEPLER: Option<&str> = Some("driver 470, toolkit 11");
const SINCE_MAXWELL: Option<&str> = Some("driver 580, toolkit 12");

/// Compute capabilities: architecture, fp32 lanes and tensor operations per SM (CUDA programming guide; openxla/xprof,
/// `utils/cuda_type_utils.cc`), and the last driver and toolkit (CUDA release notes).
const ROWS: [Row; 14] = [
    row(3, None, "Kepler", 192, 0, KEPLER),
    row(5, None, "Maxwell", 128, 0, SINCE_MAXWELL),
    row(6, Some(0), "Pascal", 64, 0, SINCE_MAXWELL),
    row(6, None, "Pascal", 128, 0, SINCE_MAXWELL),
    row(7, Some(5), "Turing", 64, 1024, None),
    row(7, None, "Volta", 64, 1024, SINCE_MAXWELL),
    row(8, Some(0), "Ampere", 64, 2048, None),
    row(8, Some(6), "Ampere", 128, 1024, None),
    row(8, Some(7), "Ampere", 128, 2048, None),
    row(8, Some(9), "Ada", 128, 1024, None),
    row(9, None, "Hopper", 128, 4096, None),
    row(10, None, "Blackwell", 128, 8192, None),
    row(11, None, "Blackwell", 128, 8192, None),
    row(12, None, "Blackwell", 128, 1024, None),
];

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

impl FromStr for ComputeCapability {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match parts {
            Some((major, minor)) => Ok(Self { major, minor }),
            None => {
                Err(ParseError(format!("`{text}` is not a compute capability: expected MAJOR.MINOR, such as \"8.9\"")))
            }
        }
    }
}

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

/// Product lines that Burn cannot train on, as beginnings of [`unbranded`] names, with their compute capabilities (NVIDIA's
/// lists of CUDA GPUs and legacy GPUs). The first that matches decides.
const OLD_LINES: [(&str, ComputeCapability); 20] = [
    ("gtx9##", ComputeCapability::new(5, 2)),
    ("gtx8##", ComputeCapability::new(5, 0)),
    ("gtx75", ComputeCapability::new(5, 0)),
    ("gtx7##", ComputeCapability::new(3, 5)),
    ("gtx6##", ComputeCapability::new(3, 0)),
    ("gtx5##", ComputeCapability::new(2, 0)),
    ("gtx4##", ComputeCapability::new(2, 0)),
    ("gt7##", ComputeCapability::new(3, 5)),
    ("gtxtitanx", ComputeCapability::new(5, 2)),
    ("gtxtitan", ComputeCapability::new(3, 5)),
    ("titanblack", ComputeCapability::new(3, 5)),
    ("k#", ComputeCapability::new(3, 5)),
    ("m20#0", ComputeCapability::new(2, 0)),
    ("m#0", ComputeCapability::new(5, 2)),
    ("m4", ComputeCapability::new(5, 2)),
    ("m6", ComputeCapability::new(5, 2)),
    ("quadrok", ComputeCapability::new(3, 5)),
    ("quadrom", ComputeCapability::new(5, 2)),
    ("gridk", ComputeCapability::new(3, 0)),
    ("nano", ComputeCapability::new(5, 3)),
];

/// Beginnings of names without profile, `#` being a digit: GPUs of other makers.
const OTHER_MAKERS: &str = "amd radeon instinct firepro vega gfx mi1 mi2 mi3 rx4 rx5 rx6 rx7 rx9 intel gaudi habana iris \
                            arca arcb apple m#pro m#max m#ultra tpu trainium inferentia";

/// Letters and digits of a name of a GPU, in small letters, without maker and brand.
pub fn unbranded(name: &str) -> String {
    let bare: String = name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let brands = ["nvidia", "geforce", "tesla", "jetson"].into_iter();
    brands.fold(bare.as_str(), |name, brand| name.strip_prefix(brand).unwrap_or(name)).to_owned()
}

/// Returns true if a name begins with a pattern, in which `#` is a digit.
pub fn begins_like(name: &str, pattern: &str) -> bool {
    let is_like = |(found, wanted): (u8, u8)| found == wanted || (wanted == b'#' && found.is_ascii_digit());
    name.len() >= pattern.len() && name.bytes().zip(pattern.bytes()).all(is_like)
}

/// Reason why a GPU with this name, in any spelling, has no profile; `None` if the name does not show a reason.
pub(crate) fn refusal_of_name(name: &str) -> Option<String> {
    let name = unbranded(name);
    if OTHER_MAKERS.split_whitespace().any(|maker| begins_like(&name, maker)) {
        return Some("it is no NVIDIA GPU: plans are for CUDA or the CPU".to_owned());
    }
    old_capability(&name).and_then(ComputeCapability::refusal)
}

fn old_capability(unbranded: &str) -> Option<ComputeCapability> {
    OLD_LINES.into_iter().find(|(line, _)| begins_like(unbranded, line)).map(|(_, capability)| capability)
}

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
        old_capability(&unbranded(self.gpu))
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

/// Size of a MIG slice, as in the names of its types: `1g.10gb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigSize {
    /// Compute slices.
    pub compute: u32,
    /// Memory in GB, rounded.
    pub memory_gb: u32,
}

impl MigSize {
    const SEPARATORS: [char; 6] = [' ', '-', '_', ':', '/', '.'];

    /// Splits the size from the end of a name: `a100-sxm4-40gb:1g.5gb`, `NVIDIA H100 PCIe MIG 1g.10gb+me`.
    pub fn split_from(name: &str) -> Option<(&str, Self)> {
        let whole = name.strip_suffix("+me").unwrap_or(name);
        let (rest, memory) = whole.strip_suffix("gb")?.rsplit_once("g.")?;
        let at = rest.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |last| last + 1);
        let size = Self { compute: rest[at..].parse().ok()?, memory_gb: memory.parse().ok()? };
        let gpu = rest[..at].trim_end_matches(Self::SEPARATORS);
        Some((gpu.strip_suffix("mig").unwrap_or(gpu).trim_end_matches(Self::SEPARATORS), size))
    }
}

impl fmt::Display for MigSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}g.{}gb", self.compute, self.memory_gb)
    }
}

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

/// A PCI vendor and device id (or their subsystem counterparts), written `10de:2684`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciId {
    /// The maker of the chip; NVIDIA is 0x10de.
    pub vendor: u16,
    /// The maker's number for the product.
    pub device: u16,
}

impl PciId {
    /// NVIDIA's vendor id.
    const NVIDIA: u16 = 0x10de;

    /// Returns true for a product of NVIDIA.
    pub(crate) const fn is_nvidia(self) -> bool {
        self.vendor == Self::NVIDIA
    }

    /// Unpacks NVML's format: device in the upper half, vendor in the lower.
    pub const fn from_nvml(packed: u32) -> Self {
        Self { vendor: (packed & 0xffff) as u16, device: (packed >> 16) as u16 }
    }
}

impl fmt::Display for PciId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:04x}", self.vendor, self.device)
    }
}

impl FromStr for PciId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = |part: &str| u16::from_str_radix(part, 16).ok();
        text.split_once(':')
            .and_then(|(vendor, device)| Some(Self { vendor: hex(vendor)?, device: hex(device)? }))
            .ok_or_else(|| {
                ParseError(format!(
                    "`{text}` is not a PCI id: expected VENDOR:DEVICE in hexadecimal, such as \"10de:2684\""
                ))
            })
    }
}

/// Address of a device on the PCI bus, written `00000000:01:00.0`. Joins a CUDA device to its NVML one.
///
/// The function number is omitted: NVIDIA's GPUs use function 0, and CUDA does not report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    /// The PCI segment.
    pub domain: u32,
    /// The bus within the segment.
    pub bus: u8,
    /// The slot on the bus.
    pub device: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl FromStr for PciAddress {
    type Err = ParseError;

    /// Reads `DOMAIN:BUS:DEVICE[.FUNCTION]` with a domain of any width; a missing domain is 0.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (path, _function) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
            let mut parts = path.rsplit(':');
            let device = u8::from_str_radix(parts.next()?, 16).ok()?;
            let bus = u8::from_str_radix(parts.next()?, 16).ok()?;
            let domain = parts.next().map_or(Some(0), |part| u32::from_str_radix(part, 16).ok())?;
            parts.next().is_none().then_some(Self { domain, bus, device })
        };
        parse().ok_or_else(|| ParseError(format!("`{text}` is not a PCI address: expected DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal, such as \"0000:01:00.0\"")))
    }
}

through_text!(ComputeCapability, PciId, PciAddress);

#[cfg(test)]
mod tests;
