//! Mixed precision. A process has one default float type for each device, so that what is compared runs in processes of
//! its own: this program, started again.

mod gradients;
mod losses;
mod models;
mod norms;
mod positions;
mod process;
#[cfg(feature = "distributed")]
mod ranks;
mod saving;
mod steps;
mod trainer;
mod training;
