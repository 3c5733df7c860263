//! `cargo gpu-tuned`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    cargo_gpu_tuned::main()
}
