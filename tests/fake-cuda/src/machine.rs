//! A folder with all files that a program needs on a machine with a GPU.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Environment variable with the folder for the text (PTX) of every loaded kernel.
pub const KERNELS_VARIABLE: &str = "FAKE_CUDA_KERNELS";

/// LLVM bitcode of an empty module: the magic number, and an empty module block of version 0. Replaces libdevice,
/// which only running kernels need.
const EMPTY_MODULE: [u8; 16] = *b"BC\xc0\xde\x21\x0c\0\0\x01\0\0\0\0\0\0\0";

/// A machine with the GPU of a scenario, no toolkit and empty caches.
pub struct Machine {
    folder: TempDir,
    scenario: PathBuf,
}

impl Machine {
    /// A machine of the fake NVML's scenario `name`, such as `h200`.
    ///
    /// # Panics
    ///
    /// If the libraries are not next to the running test, or the temporary folder cannot be written.
    pub fn new(name: &str) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let machine = Self { folder, scenario: fake_nvml::scenario(name) };
        let toolkit = machine.path("toolkit/nvvm/libdevice");
        for folder in [&toolkit, &machine.path("lib"), &machine.path("home"), &machine.path("kernels")] {
            fs::create_dir_all(folder).expect("the temporary folder can be written");
        }
        fs::write(toolkit.join("libdevice.10.bc"), EMPTY_MODULE).expect("the temporary folder can be written");
        let nvml = fake_nvml::library();
        let cuda = nvml.with_file_name("libfake_cuda.so");
        assert!(cuda.exists(), "no {}", cuda.display());
        // All names that programs search for, so that no real driver is found first.
        for (library, name) in [(&nvml, "libnvidia-ml.so.1"), (&cuda, "libcuda.so"), (&cuda, "libcuda.so.1")] {
            fs::copy(library, machine.path("lib").join(name)).expect("the temporary folder can be written");
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder in which programs are started, empty at first.
    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    /// The program, to be started on this machine, in its [home](Self::home).
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let of = |prefix: &&str| name.to_string_lossy().starts_with(*prefix);
            if ["BURN_", "CUBECL_", "CUDA_", "GPU_TUNED_"].iter().any(of) {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.home())
            .env("HOME", self.home())
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .env("CUDA_PATH", self.path("toolkit"))
            .env(fake_nvml::SCENARIO_VARIABLE, &self.scenario)
            .env(KERNELS_VARIABLE, self.path("kernels"))
            .env_remove("XDG_CACHE_HOME");
        command
    }

    /// The text of every kernel that was loaded.
    ///
    /// # Panics
    /// When they cannot be read.
    pub fn kernels(&self) -> Vec<String> {
        let read = |folder: &Path| {
            let files = fs::read_dir(folder)?;
            files.map(|file| fs::read_to_string(file?.path())).collect::<Result<_, _>>()
        };
        read(&self.path("kernels")).expect("kernels are text")
    }
}
