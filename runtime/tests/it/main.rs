//! Integration tests of the whole crate in one program, so that Burn is linked once.

/// A config with a field for the micro-batch, or with these fields; the rest are arguments of the attribute.
macro_rules! config {
    ($visibility:vis $name:ident, $($arguments:tt)*) => {
        config! { $visibility $name { #[tuned] batch_size: usize }, $($arguments)* }
    };
    ($visibility:vis $name:ident { $($fields:tt)* }, $($arguments:tt)*) => {
        #[gpu_tuned::gpu_tuned($($arguments)*)]
        #[derive(Clone, Debug)]
        $visibility struct $name { $($fields)* }
    };
}

/// A config around another one, in a build with other constants.
#[cfg(feature = "nvml")]
macro_rules! rebuilt {
    ($name:ident $(<const $flag:ident: bool>)?, $inner:ty, $built:expr) => {
        #[derive(Clone, Debug, Default)]
        struct $name $(<const $flag: bool>)? ($inner);

        impl $(<const $flag: bool>)? gpu_tuned::Tuned for $name $(<$flag>)? {
            const BUILT: gpu_tuned::Built = $built;

            fn goal() -> gpu_tuned::Goal {
                <$inner as gpu_tuned::Tuned>::goal()
            }

            fn workload(&self) -> gpu_tuned::WorkloadSpec {
                self.0.workload()
            }

            fn tuned(&self) -> gpu_tuned::Pins {
                self.0.tuned()
            }

            fn apply(&mut self, settings: &gpu_tuned::Settings) {
                self.0.apply(settings);
            }
        }
    };
}

#[cfg(all(feature = "distributed", unix))]
mod checkpoints;
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
#[cfg(feature = "nvml")]
mod kernels;
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
#[cfg(all(feature = "burn", target_os = "linux"))]
mod progress;
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
