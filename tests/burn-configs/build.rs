//! Resolves the GPU that the enabled features name.

use std::path::Path;

fn main() {
    gpu_tuned_build::configure().emit();
    // The tests read the documentation that is generated.
    let directory = std::env::var_os("OUT_DIR").expect("cargo sets it");
    println!("cargo::rustc-env=GPU_TUNED_EXPAND_DIR={}", Path::new(&directory).join("expanded").display());
}
