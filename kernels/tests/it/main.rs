//! Functions of the libraries beside fakes on the CPU; modules on the CPU: outputs, gradients, configs and records are
//! Burn's.

#[cfg(feature = "nn")]
mod attention;
#[cfg(feature = "nn")]
mod conv_modules;
#[cfg(feature = "nn")]
mod convolutions;
mod faults;
mod memory;
#[cfg(feature = "nn")]
mod modules;
#[cfg(feature = "nn")]
mod optimizers;
mod products;
#[cfg(feature = "nn")]
mod recurrent;
#[cfg(feature = "nn")]
mod recurrent_modules;
mod sums;
