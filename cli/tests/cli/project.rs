//! A package on the disk, and the command run on it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A copy of a fixture, to be changed at will.
pub(crate) struct Project {
    folder: TempDir,
    name: String,
}

/// Output and exit status of a command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Project {
    pub(crate) fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        copy(&fixtures().join(name), &folder.path().join(name));
        Self { folder, name: name.to_owned() }
    }

    /// With another fixture beside it.
    pub(crate) fn beside(self, other: &str) -> Self {
        copy(&fixtures().join(other), &self.folder.path().join(other));
        self
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(&self.name).join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::write(path, text).expect("a file of the copy can be written");
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).expect("a file of the copy can be read")
    }

    /// Turns the measurements on an H200 into those that a simulation makes for another GPU: without times, context and kernels.
    pub(crate) fn simulate_for(&self, gpu: &str) {
        let gone = ["context", "kernels", "driver", "fp32", "bandwidth"];
        let lock = self.read("gpu-tuned.lock");
        let kept = lock.lines().filter(|line| !gone.iter().any(|name| line.starts_with(name)));
        let text: String = kept.map(|line| without_times(line) + "\n").collect();
        let name = format!(".on.simulated-{gpu}");
        self.write("gpu-tuned.lock", &text.replace(".on.h200", &name).replace("\"dry-run\"", "\"simulated\""));
    }

    /// Writes the file anew with this in place of that.
    pub(crate) fn replace(&self, file: &str, from: &str, to: &str) {
        let text = self.read(file);
        assert!(text.contains(from), "{file} has no `{from}`");
        self.write(file, &text.replace(from, to));
    }

    /// The command in the package's folder, on a machine without a GPU.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        #[cfg(target_os = "linux")]
        heed_signals();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cargo-gpu-tuned"));
        command.args(args).current_dir(self.path(""));
        command.env("GPU_TUNED_NVML_PATH", "/nonexistent/libnvidia-ml.so.1");
        command.env("GPU_TUNED_LIBRARIES", "/nonexistent");
        command.env("CARGO_TARGET_DIR", self.folder.path().join("target"));
        for variable in ["CLICOLOR", "CLICOLOR_FORCE", "NO_COLOR", "RUSTFLAGS", "GPU_TUNED_TARGET"] {
            command.env_remove(variable);
        }
        for (variable, _) in std::env::vars_os().filter(|(variable, _)| bounds_a_process(variable)) {
            command.env_remove(variable);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&mut self.command(args))
    }

    /// Runs the command on a machine with the GPUs of a scenario.
    pub(crate) fn on(&self, machine: &str, args: &[&str]) -> Ran {
        Ran::of(with_gpus(&mut self.command(args), &fake_nvml::scenario(machine)))
    }
}

/// Gives a command the GPUs of a scenario's file.
pub(crate) fn with_gpus<'a>(command: &'a mut Command, scenario: &Path) -> &'a mut Command {
    command.env("GPU_TUNED_NVML_PATH", fake_nvml::library()).env(fake_nvml::SCENARIO_VARIABLE, scenario)
}

/// Returns true for variables that bound the GPUs, the cores and the memory of a process.
fn bounds_a_process(variable: &OsStr) -> bool {
    let prefixes = ["CUDA_VISIBLE", "CUDA_DEVICE_ORDER", "CUDA_MPS", "NVIDIA_VISIBLE", "SLURM_"];
    variable.to_str().is_some_and(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
}

/// What `nohup`, or a script that has the tests in the background, wants ignored, programs of the tests would ignore too. What is
/// caught here is not: they begin without these handlers.
#[cfg(target_os = "linux")]
fn heed_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let status = fs::read_to_string("/proc/self/status").expect("this process");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("what it ignores");
        let ignored = u64::from_str_radix(mask.trim(), 16).expect("a mask");
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 1) {
            signal_hook::flag::register(signal, std::sync::Arc::default()).expect("it can be caught");
        }
    });
}

impl Ran {
    pub(crate) fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("the command starts");
        let text = |bytes| String::from_utf8(bytes).expect("the command prints UTF-8");
        Self { code: status.code().expect("the command ends by itself"), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Its standard output, after a look at how it ended.
    pub(crate) fn ended(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Its standard error, when there was nothing to print.
    pub(crate) fn refused(self, code: i32) -> String {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{}", self.stderr);
        self.stderr
    }

    pub(crate) fn json(self, code: i32) -> Value {
        let text = self.ended(code);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Copies a folder. A `manifest.toml` becomes a `Cargo.toml`, which cargo would take for a package of this repository.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("a fixture can be read") {
        let entry = entry.expect("a fixture can be read");
        let name = entry.file_name();
        let (from, to) =
            (entry.path(), to.join(if name == "manifest.toml" { OsStr::new("Cargo.toml") } else { &name }));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).expect("a file can be copied");
        }
    }
}

/// Applies a diff of files below a folder.
pub(crate) fn apply(folder: &Path, diff: &str) {
    for part in diff.split("--- a/").skip(1) {
        let (name, hunks) = part.split_once('\n').expect("a name");
        let text = fs::read_to_string(folder.join(name)).expect("the file is there");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // From the last change to the first, so that places stay right.
        for hunk in hunks.split("\n@@ -").skip(1).collect::<Vec<_>>().into_iter().rev() {
            let mut old = hunk.split([',', ' ']).next().and_then(|line| line.parse::<usize>().ok()).expect("a line");
            for line in hunk.lines().skip(1) {
                match line.split_at_checked(1) {
                    Some(("-", gone)) => assert_eq!(lines.remove(old - 1), gone),
                    Some(("+", new)) => {
                        lines.insert(old - 1, new.to_owned());
                        old += 1;
                    }
                    _ => old += 1,
                }
            }
        }
        fs::write(folder.join(name), lines.join("\n") + "\n").expect("the file can be written");
    }
}

/// Removes the times from the line of a micro-batch.
fn without_times(line: &str) -> String {
    let is_kept = |figure: &&str| !figure.contains("_ms = ");
    match line.split_once("{ ") {
        Some((batch, figures)) => {
            format!("{batch}{{ {}", figures.split(", ").filter(is_kept).collect::<Vec<_>>().join(", "))
        }
        None => line.to_owned(),
    }
}
