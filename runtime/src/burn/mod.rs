//! What the runtime does with Burn: it finds the planned GPU among CUDA's, opens it without a panic, and asks it how
//! precise its f32 products are.
//!
//! Built without feature `cuda` there is the CPU only: [`cuda_devices`] is empty and [`open`] says why.

mod device;
#[cfg(feature = "cuda")]
mod driver;
mod error;
mod full_f32;
mod guard;
#[cfg(any(test, feature = "cuda"))]
mod libdevice;
mod place;
mod tf32;
mod threads;

pub use crate::detect::CudaDevice;
pub(crate) use device::has_collectives;
#[cfg(feature = "cuda")]
pub(crate) use device::has_driver;
pub use device::{OpenGpu, cpu, cuda_devices, default_float, device, open};
#[cfg(feature = "cuda")]
pub(crate) use driver::memory_free;
pub use error::OpenError;
pub use full_f32::switch_tf32_off;
pub(crate) use full_f32::tf32_is_off;
#[cfg(feature = "cuda")]
pub(crate) use full_f32::tf32_is_on;
pub(crate) use guard::catching;
pub use place::Place;
pub use tf32::{Gemm, MatmulMath, MatmulProbe, ProbeError, probe};
pub(crate) use threads::limit as limit_cpu_threads;
