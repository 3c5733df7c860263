//! Features of packages that use `gpu-tuned`, and rebuilds of such packages.

mod naming;
mod packages;
mod rebuilding;
