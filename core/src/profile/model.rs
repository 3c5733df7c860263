use serde::{Deserialize, Serialize};

use super::ProfileId;
use crate::Bytes;
use crate::device::{ComputeCapability, EstimatedFigure, PciId};

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

    /// A GPU's memory.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Memory {
        /// The advertised size in MiB.
        pub nominal_mib: u64,
        /// The kind of memory, such as `GDDR6X`.
        pub kind: Option<String>,
        /// Total sizes in MiB that NVML was seen to report.
        pub nvml_total_mib: Vec<u64>,
        /// Total sizes in MiB that CUDA was seen to report on Linux.
        pub cuda_total_mib: Vec<u64>,
        /// Width of the memory bus in bits.
        pub bus_bits: Option<u32>,
        /// Peak bandwidth in GB/s (10^9 bytes per second).
        pub bandwidth_gb_s: Option<f64>,
        /// Source of the bandwidth, if it is not bus width x memory clock.
        pub bandwidth_source: Option<String>,
        /// True if error correction is enabled by default.
        pub ecc_default_on: Option<bool>,
    }
}

impl Memory {
    /// The memory that a program can count on at most: the smallest total seen, else the advertised size.
    pub fn usable(&self) -> Bytes {
        let seen = self.cuda_total_mib.iter().chain(&self.nvml_total_mib).min();
        Bytes::from_mib(*seen.unwrap_or(&self.nominal_mib))
    }
}

crate::sparse! {
    /// A GPU's arithmetic units.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Compute {
        /// Streaming multiprocessors.
        pub sm_count: Option<u32>,
        /// FP32 lanes in all.
        pub cuda_cores: Option<u32>,
        /// Boost clock of the data sheet in MHz.
        pub boost_mhz: Option<f64>,
        /// Clock in MHz of the published tensor peaks, if it differs from the boost clock.
        pub tensor_clock_mhz: Option<f64>,
        /// L2 cache in MiB.
        pub l2_mib: Option<f64>,
        /// Source of the L2 size.
        pub l2_source: Option<String>,
        /// True if the product halves tensor rates with fp32 accumulation (a property of the product, not of the chip).
        #[serde(default)]
        pub half_rate_fp32_accumulate: bool,
    }

    /// Peak rates, dense, in 10^12 floating-point operations per second; tensor rates accumulate in f32.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Peaks {
        /// f32 on the ordinary units.
        pub fp32: Option<Peak>,
        /// f32 through TF32 tensor cores.
        pub tf32: Option<Peak>,
        /// bf16 tensor cores.
        pub bf16: Option<Peak>,
        /// f16 tensor cores.
        pub fp16: Option<Peak>,
        /// f16 on the ordinary units, for GPUs without tensor cores.
        pub fp16_native: Option<Peak>,
        /// fp8 tensor cores.
        pub fp8: Option<Peak>,
    }
}

/// A peak rate with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peak {
    /// 10^12 floating-point operations per second.
    pub tflops: f64,
    /// Published by the maker, or derived from units and clocks.
    pub basis: Basis,
    /// The code of the source; several are separated by spaces.
    pub source: String,
    /// Fraction of the peak that large matrix products reach in published tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<f64>,
    /// The codes of the tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached_source: Option<String>,
}

/// Basis of a peak rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// A dense figure published for this product and seen in one of the profile's sources.
    Published,
    /// Multiprocessors x operations per clock and multiprocessor x clock.
    Derived,
    /// Published for another product with the same chip; the profile's notes name it.
    Borrowed,
    /// The fp32 peak x the ratio of other GPUs of the compute capability, or as the profile's notes say.
    Estimated,
}

crate::sparse! {
    /// The board around the chip.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Board {
        /// PCI Express generation.
        pub pcie_gen: Option<u32>,
        /// PCI Express lanes.
        pub pcie_lanes: Option<u32>,
        /// NVLink bandwidth in GB/s, both directions together; 0 without NVLink.
        pub nvlink_gb_s: Option<f64>,
        /// Source of the NVLink figure.
        pub nvlink_source: Option<String>,
        /// Board power in watts.
        pub tdp_w: Option<f64>,
    }
}
