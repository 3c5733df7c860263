//! Output lines of the program, on the CPU and with a fake CUDA driver.

#[cfg(not(feature = "cuda"))]
mod lines;
#[cfg(feature = "cuda")]
mod simulated;
