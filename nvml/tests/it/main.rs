//! Integration tests of the whole crate in one program.

mod cuda;
mod driver_trouble;
mod gauging;
mod mig_slices;
mod shown;
mod telemetry;
mod visible;
mod whole_gpus;
