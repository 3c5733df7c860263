//! Files of results.

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Bytes, Precision};
use serde::{Deserialize, Serialize};

use super::{Outcome, Setup};

/// A line of a file of results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Header of all lines up to the next header.
    Header(Box<Header>),
    /// A process starts.
    Begin(Begin),
    /// A setup starts.
    Started(Setup),
    /// A setup ended.
    Ended {
        /// The setup.
        #[serde(flatten)]
        setup: Setup,
        /// Its outcome.
        outcome: Box<Outcome>,
    },
}

/// Most sections of a file that are kept, so that reading takes linear time.
const MAX_SECTIONS: usize = 1000;

/// The newest results of a file, at most those of the last thousand sections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Sections by header, that of the last line last.
    sections: Vec<Section>,
}

/// Results below a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The header.
    pub header: Header,
    /// Start of the last process.
    pub begin: Option<Begin>,
    /// Last outcome of each setup.
    pub outcomes: BTreeMap<Setup, Outcome>,
    /// Setup that started last and has not ended.
    pub open: Option<Setup>,
}

impl Record {
    /// Collects lines. Lines before the first header are ignored.
    pub fn from_lines(lines: impl IntoIterator<Item = Line>) -> Self {
        let mut record = Self::default();
        lines.into_iter().for_each(|line| record.add(line));
        record
    }

    fn add(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.select(*header),
            line => self.sections.last_mut().into_iter().for_each(|section| section.add(line.clone())),
        }
    }

    fn select(&mut self, header: Header) {
        let known = self.sections.iter().position(|section| section.header == header);
        let section = known.map(|at| self.sections.remove(at));
        let new = || Section { header, begin: None, outcomes: BTreeMap::new(), open: None };
        self.sections.push(section.unwrap_or_else(new));
        if self.sections.len() > MAX_SECTIONS {
            self.sections.remove(0);
        }
    }

    /// Returns the section of the last line.
    pub fn last(&self) -> Option<&Section> {
        self.sections.last()
    }

    /// Returns the section below a header.
    pub fn section(&self, header: &Header) -> Option<&Section> {
        self.sections.iter().find(|section| section.header == *header)
    }
}

impl Section {
    fn add(&mut self, line: Line) {
        match line {
            Line::Header(_) => {}
            Line::Begin(begin) => (self.begin, self.open) = (Some(begin), None),
            Line::Started(setup) => self.open = Some(setup),
            Line::Ended { setup, outcome } => {
                self.open = None;
                self.outcomes.insert(setup, *outcome);
            }
        }
    }
}

/// Program, device and versions that results belong to. Results below different headers are not comparable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format: [`FORMAT`](Self::FORMAT).
    pub format: u32,
    /// Name of the workload.
    pub workload: String,
    /// The driver's name of the device.
    pub device: String,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// Memory of the device.
    pub memory_bytes: Bytes,
    /// Streaming multiprocessors; 0 for a CPU.
    pub sm_count: u32,
    /// Training threads; `None` for a GPU.
    pub cpu_threads: Option<u64>,
    /// Version of the driver; `None` for a CPU.
    pub driver: Option<String>,
    /// Version of Burn.
    pub burn: String,
    /// Version of `CubeCL`; `None` for a CPU.
    pub cubecl: Option<String>,
    /// Trainable parameters.
    pub parameters: u64,
    /// Hash of the names and shapes of the model's parameters.
    pub shape: String,
    /// The model's description, with dimensions that no parameter has, such as the sequence length.
    pub described: WorkloadSpec,
    /// The build checks its arithmetic, as the profile `dev` does.
    pub debug: bool,
    /// Memory is counted, which takes another allocator on a CPU.
    pub counts_memory: bool,
    /// Steps in fp32 ran without TF32 on a device that has TF32.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full_f32: bool,
}

impl Header {
    /// The present version of the format.
    pub const FORMAT: u32 = 1;
}

/// The start of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Planned settings of the program.
    pub planned: Planned,
    /// Requested setups in their order, recorded ones included.
    pub setups: Vec<Setup>,
}

/// Planned settings of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Precision.
    pub precision: Precision,
    /// Activation checkpointing is on.
    pub checkpointing: bool,
    /// Samples of a micro-batch.
    pub batch: u64,
    /// Loader workers.
    pub workers: u64,
    /// Prefetched batches.
    pub prefetch: u64,
    /// Micro-batches of a step.
    pub accumulation: u64,
}

impl Planned {
    /// Returns whether the setup has the plan's steps, however its batches are prepared.
    pub fn matches(&self, setup: &Setup) -> bool {
        (self.precision, self.checkpointing, self.batch) == (setup.precision, setup.checkpointing, setup.batch)
    }
}
