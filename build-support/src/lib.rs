//! The build-script half of `gpu-tuned`: Cargo features and tables in, one resolved table out.
//!
//! ```no_run
//! // build.rs, in `main`
//! gpu_tuned_build::configure().emit();
//! ```
//!
//! # Selecting GPUs
//!
//! A feature of your package that is named like a GPU profile (`rtx4090`, `h200`, or one of your `gpu-tuned.toml`)
//! selects that GPU.
//!
//! | enabled features | selection |
//! |---|---|
//! | none of a profile | the conservative `generic` profile, with more memory if the workload needs it |
//! | one | that GPU |
//! | several, `--all-features` | one plan that fits each of them, with what all can do |
//! | `native` | the GPU in the build machine; without one `generic`, with a warning |
//! | `native` and others | the others, with a warning: a named GPU has priority |
//! | `generic` and others | the others |
//!
//! The environment variable `GPU_TUNED_TARGET` overrides the features: `h200`, `h200,rtx4090`, `generic` or `native`.
//! By name, `generic` has its 8 GiB.
//! `GPU_TUNED_PRINT=1` stops the build and prints the resolved table.
//!
//! `native` needs this crate's feature `native`. Forward it:
//!
//! ```toml
//! [features]
//! native = ["gpu-tuned-build/native"]
//! ```
//!
//! The GPU is queried when the build script runs, which is not at every build. After a change of the GPU or of its driver,
//! run `touch Cargo.toml`.
//!
//! # The file
//!
//! Profiles, workloads and goals are those of `gpu-tuned.toml` in the package's folder. A member of a workspace without one has the
//! file in the workspace's folder. The package's `Cargo.toml` may name another. `cargo gpu-tuned` reads the same file.
//!
//! Members are those of cargo: the packages that `members` lists, and their path dependencies below the workspace's folder. A
//! package that cargo has downloaded or vendored has no file but its own, wherever cargo put it.
//!
//! ```toml
//! [package.metadata.gpu-tuned]
//! config-file = "../shared/tuning.toml"
//! ```
//!
//! # Measurements
//!
//! Measurements in `gpu-tuned.lock` replace declared and derived costs, in the constants and when the program runs. The script
//! ignores measurements of another release of Burn than the `Cargo.lock` of the package or workspace names, with a warning.
//!
//! # Running again
//!
//! The script runs again after a change of `Cargo.toml`, `gpu-tuned.toml`, `gpu-tuned.lock` or one of the variables. That
//! includes creating or deleting one of the two files of gpu-tuned. If there are measurements, a change of `Cargo.lock`
//! counts, too. Without a `gpu-tuned.toml` of the package, a change of a `Cargo.toml` above counts. Without symbolic links
//! (Windows, some network drives), creating `gpu-tuned.toml` is not noticed: save `Cargo.toml` once.
//!
//! Cargo compares times of files. A file that an older one replaced (`mv`, `cp -p`, a link that names another file) is not noticed
//! either: run `touch gpu-tuned.toml`.
//!
//! The attribute's code includes the resolved table. Caches of compilers, such as sccache, therefore compare the table.
//!
//! Two checkouts of a package need target folders of their own. With a shared one, cargo may take the program of the first for
//! both.

#![forbid(unsafe_code)]

mod config;
mod error;
mod package;
mod select;

pub use config::{Config, configure};
pub use error::BuildError;
pub use gpu_tuned_project::resolved::{Resolved, Selected};
pub use package::{Environment, Process};
