//! The library's functions beside a fake on the CPU; modules on the CPU: outputs, gradients, configs and records are
//! Burn's.

mod faults;
mod memory;
#[cfg(feature = "nn")]
mod modules;
mod products;
