//! A library that exports the C functions of the CUDA driver, on Linux, for a GPU of the [fake NVML](fake_nvml)'s scenario.
//! Memory is taken and given back, kernels are compiled and loaded, and none is run. So a program with feature `cuda` goes
//! all the way that it goes beside a GPU, on a machine without one: everything but what kernels compute, and how long they
//! take.
//!
//! It is built twice from one source, as the fake NVML is: as `libfake_cuda.so`, which stands for `libcuda.so.1`, and as a
//! Rust library, whose [`Machine`] starts programs beside it.
//!
//! * Device memory is memory of the host that nothing backs until it is written to. There is as much as the scenario's first
//!   GPU has free; beyond it allocations fail as the driver's do.
//! * Memory to which nothing was copied, or zeros, reads as 2.0, in f32, and in bf16 or f16 that is read by itself: kernels
//!   would have written there. So `gpu_tuned::burn::open` finds e^0 + e^0 there, and losses are finite.
//! * Every launch takes as long as every other by the GPU's clock, so that tuning decides for the candidate with the fewest:
//!   another than on a GPU, which may take other memory. Kernels by which CubeCL measures peaks take time of the host's
//!   clock.

mod clock;
mod exports;
mod gpu;
mod kernels;
mod machine;
mod memory;

pub use machine::{KERNELS_VARIABLE, Machine};
