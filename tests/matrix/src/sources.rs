//! The files of the packages.

use std::path::{Path, PathBuf};

/// A build script.
pub const BUILD_SCRIPT: &str = "fn main() {\n    gpu_tuned_build::configure().emit();\n}\n";

/// A workload by its dimensions, for packages without `gpu-tuned.toml`.
pub const DIMENSIONS: &str = "transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512";

/// The workload of [`config`] by its name.
pub const NAMED: &str = "workload = \"tiny\"";

/// The features of a package: two GPUs, and the one in the machine.
pub const FEATURES: &str = "h200 = []\nrtx4090 = []\nnative = [\"gpu-tuned-build/native\"]\n";

/// The folder of the workspace that the tests belong to.
pub fn workspace() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    folder.expect("this package lies two folders below the workspace").to_owned()
}

/// `crate = { path = …, default-features = false }`
pub fn dependency(name: &str, folder: &str) -> String {
    format!("{name} = {{ path = '{}', default-features = false }}\n", workspace().join(folder).display())
}

/// The manifest of a package with a build script.
pub fn manifest(name: &str) -> String {
    let (runtime, build) = (dependency("gpu-tuned", "runtime"), dependency("gpu-tuned-build", "build-support"));
    package(name, &format!("[features]\n{FEATURES}\n[dependencies]\n{runtime}\n[build-dependencies]\n{build}"))
}

/// A manifest with these further sections.
pub fn package(name: &str, sections: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n{sections}\n{ALONE}")
}

/// A workspace of its own, although it lies below another; and nothing that only costs time.
const ALONE: &str = "[workspace]\nmembers = []\n\n[profile.dev]\ndebug = 0\nincremental = false\n";

/// `gpu-tuned.toml` with one workload, whose samples are so large that memory limits the micro-batch.
pub fn config(activation_bytes_per_sample: u64) -> String {
    format!(
        "[goal]\nglobal_batch = 512\n\n[workload.tiny]\nparameters = 1000000\n\
         activation_bytes_per_sample = {activation_bytes_per_sample}\nflops_per_sample = 1e9\n"
    )
}

/// `gpu-tuned.lock` with the memory that the workload of [`config`] took on an RTX 4090 with 8 samples; 16 samples took twice as much.
pub fn lock(activation_bytes_per_sample: u64, reserved_bytes: u64) -> String {
    format!(
        "format = 2\n\n[workload.tiny]\nparameters = 1000000\nshape = \"00ff\"\n\n[workload.tiny.described]\n\
         parameters = 1000000\nactivation_bytes_per_sample = {activation_bytes_per_sample}\nflops_per_sample = 1e9\n\n\
         [workload.tiny.on.rtx4090]\nburn = \"0.22.1\"\ndevice = \"NVIDIA GeForce RTX 4090\"\nkind = \"gpu\"\n\
         memory_bytes = 25757220864\nsm_count = 128\n\n[workload.tiny.on.rtx4090.mode.f32]\nmethod = \"dry-run\"\n\n\
         [workload.tiny.on.rtx4090.mode.f32.batch]\n8 = {{ reserved_bytes = {reserved_bytes} }}\n16 = {{ reserved_bytes = {} }}\n\n\
         # end of gpu-tuned.lock\n",
        2 * reserved_bytes
    )
}

/// A program that prints the constants of `Config`; `extra` and `workload` go into the attribute.
pub fn program(extra: &str, workload: &str) -> String {
    format!("{}\n{}", tuned_struct(extra, workload), PRINTING)
}

/// The tuned struct.
pub fn tuned_struct(extra: &str, workload: &str) -> String {
    format!(
        "#[gpu_tuned::gpu_tuned({extra}{workload})]\n#[derive(Clone, Debug)]\npub struct Config {{\n    \
         #[tuned]\n    pub batch_size: usize,\n    #[tuned]\n    pub gradient_accumulation: usize,\n}}\n"
    )
}

/// The program that prints the constants of a `Config` in scope.
pub const PRINTING: &str = r#"
const BUILT: gpu_tuned::Built = <Config as gpu_tuned::Tuned>::BUILT;

fn main() {
    let config = Config::default();
    println!("target={}", BUILT.target);
    println!("targets={}", BUILT.targets.join(" "));
    println!("misfits={}", BUILT.misfits.join(" "));
    println!("batch_size={}", BUILT.settings.batch_size);
    println!("global_batch={}", BUILT.global_batch);
    println!("default_batch_size={}", config.batch_size);
    println!("default_gradient_accumulation={}", config.gradient_accumulation);
    println!("has_table={}", BUILT.table.is_some());
}
"#;
