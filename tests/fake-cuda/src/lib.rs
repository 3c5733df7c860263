//! A library that exports the C functions of the CUDA driver, on Linux, for a GPU of the [fake NVML](fake_nvml)'s
//! scenario. Memory is allocated and freed, and kernels are compiled and loaded, but never run. A program with
//! feature `cuda` thus runs completely on a machine without a GPU, except for results and durations of kernels.
//!
//! The crate builds two libraries from one source, like the fake NVML. `libfake_cuda.so` replaces `libcuda.so.1`; the
//! Rust library's [`Machine`] starts programs with it.
//!
//! - Device memory is host memory, mapped on first write. The size is the free memory of the scenario's first GPU;
//!   larger allocations fail like the driver's.
//! - Unwritten memory reads as 2.0, in fp32, and in bf16 or fp16 that is read alone: kernels would have written there.
//!   `gpu_tuned::burn::open` thus finds e^0 + e^0, and losses are finite.
//! - All launches take the same time by the GPU's clock, so autotune chooses the candidate with the fewest launches.
//!   A real GPU may choose another one, with other memory. Kernels that measure peaks take time of the host's clock.

mod clock;
mod exports;
mod gpu;
mod kernels;
mod machine;
mod memory;

pub use machine::{KERNELS_VARIABLE, Machine};
