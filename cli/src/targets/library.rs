//! The library of kernels that programs find on this machine.

use gpu_tuned_kernels::find;
use serde::Serialize;

use crate::output::wrapped;

/// cuBLASLt of this machine, or the reasons why there is none.
#[derive(Serialize)]
pub(super) struct Library {
    /// The file, or a bare name from the system's paths.
    file: Option<String>,
    version: Option<String>,
    /// Places without a library; none if there is one.
    searched: Vec<String>,
    /// Reasons why files that are there cannot be loaded.
    failures: Vec<String>,
}

impl Library {
    pub(super) fn find() -> Self {
        match find::cublaslt() {
            Ok(library) => {
                let version = library.version();
                Self {
                    file: Some(library.path().display().to_string()),
                    version: Some(format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)),
                    searched: Vec::new(),
                    failures: Vec::new(),
                }
            }
            Err(failure) => Self {
                file: None,
                version: None,
                searched: failure.searched().to_vec(),
                failures: failure.failures().map(ToString::to_string).collect(),
            },
        }
    }

    pub(super) fn text(&self) -> String {
        if let (Some(file), Some(version)) = (&self.file, &self.version) {
            let place = if file.contains('/') { "" } else { ", from the system's paths" };
            return format!("  cuBLASLt {version}  {file}{place}\n");
        }
        let searched = format!("searched: {}", self.searched.join(", "));
        let failures = self.failures.iter().map(String::as_str);
        ["no cuBLASLt: programs use Burn's kernels", &searched]
            .into_iter()
            .chain(failures)
            .chain(["install the CUDA toolkit, or `pip install nvidia-cublas`"])
            .map(|line| format!("  {}\n", wrapped(line, 2)))
            .collect()
    }
}
