//! Integration tests of the whole crate in one program, so that Burn is linked once.

#[cfg(feature = "burn")]
mod bench;
mod copies;
#[cfg(feature = "counting-allocator")]
mod counting;
#[cfg(feature = "nvml")]
mod decisions;
#[cfg(feature = "nvml")]
mod decisions_generated;
#[cfg(feature = "nvml")]
mod faulty;
#[cfg(feature = "nvml")]
mod fuzz;
#[cfg(feature = "nvml")]
mod generated;
#[cfg(feature = "counting-allocator")]
mod group_bytes;
#[cfg(feature = "distributed")]
mod launched;
#[cfg(feature = "nvml")]
mod limits;
#[cfg(feature = "burn")]
mod loader;
mod lock;
#[cfg(feature = "burn")]
mod measure;
#[cfg(feature = "nvml")]
mod measured;
#[cfg(feature = "burn")]
mod measured_mixed;
#[cfg(feature = "train")]
mod metrics;
#[cfg(feature = "burn")]
mod mixed;
#[cfg(feature = "counting-allocator")]
mod mixed_bytes;
#[cfg(feature = "nvml")]
mod one_gpu;
#[cfg(feature = "nvml")]
mod played;
#[cfg(feature = "nvml")]
mod precision;
#[cfg(feature = "distributed")]
mod processes;
#[cfg(feature = "distributed")]
mod ranks;
#[cfg(feature = "burn")]
mod recording;
#[cfg(feature = "nvml")]
mod report;
#[cfg(feature = "nvml")]
mod resume;
mod set;
#[cfg(all(feature = "distributed", feature = "nvml"))]
mod several;
#[cfg(feature = "train")]
mod strategy;
#[cfg(feature = "warm")]
mod warm;
#[cfg(all(feature = "distributed", feature = "nvml"))]
mod whole_batch_loss;
#[cfg(feature = "train")]
mod whole_steps;
