//! The program's lines on the CPU and beside a fake CUDA driver.

#[cfg(not(feature = "cuda"))]
mod lines;
#[cfg(feature = "cuda")]
mod simulated;
