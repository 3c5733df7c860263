//! Modules on the CPU: outputs, gradients, configs and records are Burn's.

mod modules;
