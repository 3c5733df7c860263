//! The libraries of kernels that programs find on this machine.

use std::path::Path;

use gpu_tuned_kernels::find::{self, NotFound};
use serde::Serialize;

use crate::output::wrapped;

/// A library of this machine, or the reasons why there is none.
#[derive(Default, Serialize)]
pub(super) struct Library {
    #[serde(skip)]
    name: &'static str,
    /// What Burn computes without the library.
    #[serde(skip)]
    purpose: &'static str,
    #[serde(skip)]
    advice: &'static str,
    /// The file, or a bare name from the system's paths.
    file: Option<String>,
    version: Option<String>,
    /// Places without a library; none if there is one.
    searched: Vec<String>,
    /// Reasons why files that are there cannot be loaded.
    failures: Vec<String>,
}

impl Library {
    /// cuBLASLt, and the cuDNN for it.
    pub(super) fn both() -> [Self; 2] {
        let cublaslt = find::cublaslt();
        let cudnn = find::cudnn(cublaslt.as_ref().ok());
        [
            Self::new(["cuBLASLt", "programs"], cublaslt.as_ref().map(|library| (library.path(), library.version()))),
            Self::new(["cuDNN", "convolutions"], cudnn.as_ref().map(|library| (library.path(), library.version()))),
        ]
    }

    fn new([name, purpose]: [&'static str; 2], found: Result<(&Path, usize), &NotFound>) -> Self {
        let library = Self { name, purpose, ..Self::default() };
        match found {
            Ok((file, version)) => {
                let version = format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100);
                Self { file: Some(file.display().to_string()), version: Some(version), ..library }
            }
            Err(failure) => {
                let failures = failure.failures().map(ToString::to_string).collect();
                Self { advice: failure.advice(), searched: failure.searched().to_vec(), failures, ..library }
            }
        }
    }

    pub(super) fn text(&self) -> String {
        if let (Some(file), Some(version)) = (&self.file, &self.version) {
            let place = if file.contains('/') { "" } else { ", from the system's paths" };
            return format!("  {} {version}  {file}{place}\n", self.name);
        }
        let missing = format!("no {}: {} use Burn's kernels", self.name, self.purpose);
        let searched = format!("searched: {}", self.searched.join(", "));
        let failures = self.failures.iter().map(String::as_str);
        [&*missing, &searched]
            .into_iter()
            .chain(failures)
            .chain([self.advice])
            .map(|line| format!("  {}\n", wrapped(line, 2)))
            .collect()
    }
}
