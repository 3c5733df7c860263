//! Burn's devices: the planned GPU found among CUDA's, opened without a panic, and probed for the precision of its fp32
//! products.
//!
//! Without feature `cuda` only the CPU is available: [`cuda_devices`] is empty and [`open`] returns an error.

#[cfg(feature = "cuda")]
mod driver;
mod error;
mod full_f32;
mod guard;
#[cfg(any(test, feature = "cuda"))]
mod libdevice;
mod open;
mod place;
mod tf32;
mod threads;

#[cfg(feature = "cuda")]
pub use driver::memory_free;
pub use error::OpenError;
#[cfg(feature = "cuda")]
pub use full_f32::tf32_is_on;
pub use full_f32::{switch_tf32_off, tf32_is_off};
pub use gpu_tuned_core::device::CudaDevice;
pub(crate) use guard::panic_message;
pub use guard::{catching, catching_on_thread};
pub use open::{OpenGpu, cpu, cuda_devices, default_float, has_collectives, open};
pub use place::Place;
pub use tf32::{Gemm, MatmulMath, MatmulProbe, ProbeError, probe};
pub use threads::limit as limit_cpu_threads;
