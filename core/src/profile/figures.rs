//! The table of figures. A new figure of a profile is a row of this table and the code that plans with it.

use serde::{Deserialize, Serialize};

use super::Profile;
use super::facts::{Estimate, PLAUSIBLE, PLAUSIBLE_MEMORY, SIMILAR};
use crate::Bytes;
use crate::device::EstimatedFigure;

/// Columns of a row in the table of figures.
pub(super) struct Figure {
    /// Key in files, with dots between tables.
    pub key: &'static str,
    /// Name in reports, indented by two spaces for a variant of the figure before. Empty for a figure that is printed apart.
    pub name: &'static str,
    /// Documentation, a sentence.
    meaning: &'static str,
    /// Unit in reports and messages.
    pub unit: &'static str,
    value: fn(&Profile) -> &dyn Value,
    /// Text in reports, where it is not the value with its unit.
    text: Option<fn(&Profile) -> Option<String>>,
    /// Plausible values.
    pub range: Range,
    /// Name of the figure in the list of a profile's estimates.
    estimate: Option<EstimatedFigure>,
    /// Key and text of the figure's own source.
    source: Option<(&'static str, SourceField)>,
    /// A value, as TOML, for messages on missing keys; empty for figures that such messages leave out.
    pub example: &'static str,
    /// Effect of a missing key; empty for a required one.
    pub absence: &'static str,
    /// Keys of the same table that follow from this figure: a user's figure replaces them in the base.
    pub followers: &'static [&'static str],
}

type SourceField = fn(&Profile) -> &Option<String>;

/// Plausible values of a figure.
pub(super) enum Range {
    /// Checked elsewhere, or not at all.
    Any,
    /// Wide enough for all known GPUs and the next generations.
    Known([f64; 2]),
    /// Around the figures of similar GPUs, by this factor.
    Similar(f64, fn(&Estimate) -> [f64; 2]),
}

/// Widths of a memory bus in bits: one chip of GDDR, up to twelve stacks of HBM.
pub(super) const BUS_BITS: [f64; 2] = [32.0, 12_288.0];
/// L2 caches in MiB.
pub(super) const L2_MIB: [f64; 2] = [0.1, 1024.0];
/// Board power in watts.
pub(super) const TDP_W: [f64; 2] = [4.0, 5000.0];

const CLOCK: Range = Range::Similar(PLAUSIBLE, |similar| SIMILAR.map(|ratio| ratio * similar.clock_mhz));
const ESTIMATED: &str = "estimated if absent";

impl Figure {
    const DEFAULT: Self = Self {
        key: "",
        name: "",
        meaning: "",
        unit: "",
        value: |_| &(),
        text: None,
        range: Range::Any,
        estimate: None,
        source: None,
        example: "",
        absence: "",
        followers: &[],
    };

    /// The figures that are a product's identity, then those of the tables.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        IDENTITY.iter().chain(FIGURES)
    }

    /// Meaning and unit, to follow a colon.
    pub(super) fn meaning(&self) -> String {
        let meaning = self.meaning.trim().trim_end_matches('.');
        let (first, rest) = meaning.split_at(1);
        if rest.starts_with(char::is_lowercase) { first.to_lowercase() + rest } else { meaning.to_owned() }
    }

    /// The figure as a number, in its unit.
    pub(super) fn number(&self, profile: &Profile) -> Option<f64> {
        (self.value)(profile).number()
    }

    /// The figure as a peak rate.
    pub(super) fn peak<'p>(&self, profile: &'p Profile) -> Option<&'p Peak> {
        (self.value)(profile).peak()
    }

    /// Key and text of the figure's own source.
    pub(super) fn source<'p>(&self, profile: &'p Profile) -> Option<(&'static str, &'p String)> {
        let (key, field) = self.source?;
        Some((key, field(profile).as_ref()?))
    }

    fn print(&self, profile: &Profile) -> Option<PrintedFigure> {
        let value = match self.text {
            Some(text) => text(profile)?,
            // Some have no unit, and the name of a count ends with its unit.
            None if self.name.ends_with(self.unit) => (self.value)(profile).text()?,
            None => format!("{} {}", (self.value)(profile).text()?, self.unit),
        };
        let is_estimate = self.estimate.is_some_and(|figure| profile.estimated.contains(&figure));
        let source = match (self.peak(profile), self.source(profile)) {
            (Some(Peak { source, reached_source: Some(tests), .. }), _) => format!("{source} {tests}"),
            (Some(Peak { source, .. }), _) | (None, Some((_, source))) => source.clone(),
            (None, None) => profile.sources.join(" "),
        };
        Some(PrintedFigure { name: self.name, value: value + if is_estimate { ", estimated" } else { "" }, source })
    }
}

/// A figure of a profile as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintedFigure {
    /// The name, indented by two spaces for a variant of the figure before.
    pub name: &'static str,
    /// The value with its unit.
    pub value: String,
    /// Codes of the sources.
    pub source: String,
}

impl Profile {
    /// Returns all known figures as text, with their units and sources.
    pub fn print_figures(&self) -> Vec<PrintedFigure> {
        Figure::all().filter(|figure| !figure.name.is_empty()).filter_map(|figure| figure.print(self)).collect()
    }

    /// Returns the profile as the table of a file.
    pub fn to_table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("BUG: a profile is TOML")
    }
}

/// Type of a field with a figure.
trait Value {
    fn number(&self) -> Option<f64> {
        None
    }

    fn peak(&self) -> Option<&Peak> {
        None
    }

    /// The text without the unit.
    fn text(&self) -> Option<String> {
        self.number().map(|number| number.to_string())
    }
}

impl Value for () {}

impl Value for u64 {
    fn number(&self) -> Option<f64> {
        Some(*self as f64)
    }
}

impl Value for Vec<u64> {
    fn text(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
    }
}

impl<T: Copy + Into<f64>> Value for Option<T> {
    fn number(&self) -> Option<f64> {
        self.map(Into::into)
    }
}

impl Value for Option<Peak> {
    fn peak(&self) -> Option<&Peak> {
        self.as_ref()
    }

    fn text(&self) -> Option<String> {
        let Peak { tflops, basis, reached, .. } = self.as_ref()?;
        let basis = match basis {
            Basis::Published => "published",
            Basis::Derived => "units x clock",
            Basis::Borrowed => "borrowed",
            Basis::Estimated => "estimated",
        };
        let reached = reached.map_or_else(String::new, |reached| format!(", {:.0}% reached", reached * 100.0));
        Some(format!("{tflops} TFLOP/s, {basis}{reached}"))
    }
}

/// Declares the tables of a profile. A key is `/// documentation`, then `name: type;`. A figure is a key with columns:
/// `name: type, "name in reports" { column: value, … } from key_of_its_source;`.
macro_rules! tables {
    ($(
        $(#[$meta:meta])*
        $table:ident in $path:ident {$(
            #[doc = $doc:literal]
            $key:ident: $type:ident $(<$inner:ident>)?
                $(, $name:literal { $($column:ident: $value:expr),* } $(from $source:ident)?)?;
        )+}
    )+) => {
        $(
            $(#[$meta])*
            #[serde(deny_unknown_fields)]
            pub struct $table {$(
                #[doc = $doc]
                $(
                    #[cfg_attr(any(), doc = stringify!($inner))]
                    #[serde(default, skip_serializing_if = "gpu_tuned_core::sparse::Sparse::is_absent")]
                )?
                pub $key: $type $(<$inner>)?,
                $($(
                    #[doc = concat!("Source of `", stringify!($key), "`, if it is none of the profile's.")]
                    #[serde(default, skip_serializing_if = "Option::is_none")]
                    pub $source: Option<String>,
                )?)?
            )+}
        )+

        const FIGURES: &[Figure] = &[$($($(Figure {
            key: concat!(stringify!($path), ".", stringify!($key)),
            name: $name,
            meaning: $doc,
            value: |profile| &profile.$path.$key,
            $($column: $value,)*
            $(source: Some((concat!(stringify!($path), ".", stringify!($source)), |profile| &profile.$path.$source)),)?
            ..Figure::DEFAULT
        },)?)+)+];

        impl Profile {
            /// The tables of a profile, each with its keys in the order of files.
            pub const TABLES: &[(&str, &[&str])] =
                &[$((stringify!($path), &[$(stringify!($key), $($(stringify!($source),)?)?)+])),+];
        }
    };
}

const IDENTITY: &[Figure] = &[
    Figure {
        key: "names",
        meaning: "whole product names that nvidia-smi prints",
        source: Some(("names_source", |profile| &profile.names_source)),
        example: "[\"NVIDIA GeForce RTX 4090\"]",
        absence: "without names and pci_ids the profile matches no GPU",
        ..Figure::DEFAULT
    },
    Figure { key: "pci_ids", source: Some(("pci_ids_source", |profile| &profile.pci_ids_source)), ..Figure::DEFAULT },
    Figure {
        key: "architecture",
        name: "family",
        meaning: "marketing name of the architecture",
        text: Some(|profile| {
            let chip = profile.chip.as_ref().map_or_else(String::new, |chip| format!(", {chip}"));
            Some(format!("{}{chip}{}", profile.architecture, if profile.mobile { ", for laptops" } else { "" }))
        }),
        example: "\"Ada\"",
        ..Figure::DEFAULT
    },
    Figure {
        key: "compute_capability",
        name: "capability",
        meaning: "CUDA compute capability",
        text: Some(|profile| Some(profile.compute_capability.to_string())),
        example: "\"8.9\"",
        ..Figure::DEFAULT
    },
    Figure {
        name: "last CUDA",
        text: Some(|profile| profile.compute_capability.last_cuda().map(str::to_owned)),
        ..Figure::DEFAULT
    },
    Figure {
        name: "unsupported",
        text: Some(|profile| profile.compute_capability.refusal().map(|_| "by Burn and by CUDA 13".to_owned())),
        ..Figure::DEFAULT
    },
];

tables! {
    /// A GPU's memory.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    Memory in memory {
        /// Advertised memory in MiB.
        nominal_mib: u64, "memory" {
            unit: "MiB",
            text: Some(|profile| {
                let kind = profile.memory.kind.as_ref().map_or_else(String::new, |kind| format!(" {kind}"));
                Some(format!("{} MiB{kind}", profile.memory.nominal_mib))
            }),
            range: Range::Similar(PLAUSIBLE_MEMORY, Estimate::memory_mib),
            example: "24576",
            followers: &["nvml_total_mib", "cuda_total_mib"]
        };
        /// Kind of memory, such as `GDDR6X`.
        kind: Option<String>;
        /// Totals in MiB that nvidia-smi prints.
        nvml_total_mib: Vec<u64>, "  by NVML" { unit: "MiB", example: "[24564]", absence: "nominal_mib if absent" };
        /// Totals in MiB that CUDA was seen to report on Linux.
        cuda_total_mib: Vec<u64>, "  by CUDA" { unit: "MiB" };
        /// True if error correction is enabled by default.
        ecc_default_on: Option<bool>, "  as shipped" {
            text: Some(|profile| {
                profile.memory.ecc_default_on.map(|on| format!("ECC {}", if on { "on" } else { "off" }))
            })
        };
        /// Peak bandwidth in GB/s (10^9 bytes per second).
        bandwidth_gb_s: Option<f64>, "bandwidth" {
            unit: "GB/s", estimate: Some(EstimatedFigure::Bandwidth), example: "1008.0", absence: ESTIMATED
        } from bandwidth_source;
        /// Width of the memory bus in bits.
        bus_bits: Option<u32>, "bus" { unit: "bit", range: Range::Known(BUS_BITS) };
    }

    /// A GPU's arithmetic units.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    Compute in compute {
        /// Number of streaming multiprocessors.
        sm_count: Option<u32>, "SMs" {
            unit: "SMs", range: Range::Similar(PLAUSIBLE, Estimate::sm_counts), estimate: Some(EstimatedFigure::SmCount),
            example: "128", absence: ESTIMATED, followers: &["cuda_cores"]
        };
        /// FP32 lanes in all.
        cuda_cores: Option<u32>, "f32 lanes" { unit: "lanes", followers: &["sm_count"] };
        /// Boost clock in MHz.
        boost_mhz: Option<f64>, "boost clock" { unit: "MHz", range: CLOCK, example: "2520.0", absence: ESTIMATED };
        /// Clock in MHz of the published tensor peaks, if it differs from the boost clock.
        tensor_clock_mhz: Option<f64>, "tensor clock" { unit: "MHz", range: CLOCK };
        /// L2 cache in MiB.
        l2_mib: Option<f64>, "L2 cache" { unit: "MiB", range: Range::Known(L2_MIB) } from l2_source;
        /// True if the product halves tensor rates with fp32 accumulation (a property of the product, not of the chip).
        half_rate_fp32_accumulate: bool;
    }

    /// Peak rates, dense, in 10^12 floating-point operations per second; tensor rates accumulate in f32.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    Peaks in peaks {
        /// Peak of the ordinary units in 10^12 operations per second.
        fp32: Option<Peak>, "peak f32" {
            example: "{ tflops = 82.6, basis = \"published\", source = \"data-sheet\" }", absence: ESTIMATED
        };
        /// f32 through TF32 tensor cores.
        tf32: Option<Peak>, "peak TF32" {};
        /// Dense peak of the tensor cores, as are tf32 and fp16.
        bf16: Option<Peak>, "peak bf16" {
            example: "{ tflops = 165.2, basis = \"published\", source = \"data-sheet\" }", absence: ESTIMATED
        };
        /// f16 tensor cores.
        fp16: Option<Peak>, "peak f16" {};
        /// f16 on the ordinary units, for GPUs without tensor cores.
        fp16_native: Option<Peak>, "f16, no tensor" {};
        /// fp8 tensor cores.
        fp8: Option<Peak>, "peak fp8" {};
    }

    /// The board around the chip.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    Board in board {
        /// Board power in watts.
        tdp_w: Option<f64>, "power" { unit: "W", range: Range::Known(TDP_W) };
        /// PCI Express generation.
        pcie_gen: Option<u32>, "PCI Express" {
            text: Some(|profile| {
                let lanes = profile.board.pcie_lanes.map_or_else(String::new, |lanes| format!(" x{lanes}"));
                profile.board.pcie_gen.map(|generation| format!("{generation}.0{lanes}"))
            }),
            range: Range::Known([1.0, 9.0])
        };
        /// PCI Express lanes.
        pcie_lanes: Option<u32>, "" { unit: "lanes", range: Range::Known([1.0, 32.0]) };
        /// NVLink bandwidth in GB/s, both directions together; 0 without NVLink.
        nvlink_gb_s: Option<f64>, "NVLink" {
            unit: "GB/s",
            text: Some(|profile| {
                let rate = profile.board.nvlink_gb_s?;
                Some(if rate > 0.0 { format!("{rate} GB/s") } else { "none".to_owned() })
            }),
            range: Range::Known([0.0, 20_000.0])
        } from nvlink_source;
        /// GPUs that a bridge joins by NVLink; absent where NVLink joins all GPUs of a host.
        nvlink_gpus: Option<u32>, "" { unit: "GPUs", range: Range::Known([2.0, 8.0]) };
        /// Equal parts of the memory that MIG gives to slices; absent without MIG.
        mig_slices: Option<u32>, "" { unit: "slices", range: Range::Known([4.0, 8.0]) };
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

impl Memory {
    /// The memory that a program can count on at most: the smallest total seen, else the advertised size.
    pub fn usable(&self) -> Bytes {
        let seen = self.cuda_total_mib.iter().chain(&self.nvml_total_mib).min();
        Bytes::from_mib(*seen.unwrap_or(&self.nominal_mib))
    }
}
