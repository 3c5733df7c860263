//! f32 products in f32.
//!
//! Burn 0.22 has no switch for TF32: its kernels use tensor cores for fp32 on every device that reports TF32. `CubeCL`
//! reads these properties once, when the device is opened. This module opens the device without TF32 in its properties,
//! so kernels that need tensor cores decline fp32. Kernels of other formats stay. Burn 0.23 will have a switch
//! (`allow_tf32` in `[cubek.matmul]`), which replaces this module.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "cuda")]
use gpu_tuned_core::device::ComputeCapability;

use super::{OpenError, Place};

/// The GPUs that this process has opened or tried to, by CUDA's index.
static OPENED: Mutex<Opened> = Mutex::new(Opened { with_tf32: BTreeSet::new(), without: BTreeSet::new() });

#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "no GPU is opened without CUDA"))]
struct Opened {
    with_tf32: BTreeSet<usize>,
    without: BTreeSet<usize>,
}

fn opened() -> MutexGuard<'static, Opened> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if this process has switched TF32 off on any GPU. It stays off.
pub fn tf32_is_off() -> bool {
    !opened().without.is_empty()
}

/// Returns true if this process has opened a GPU with TF32, which stays on.
#[cfg(feature = "cuda")]
pub fn tf32_is_on() -> bool {
    !opened().with_tf32.is_empty()
}

/// Records that a GPU is about to be opened, with TF32 or without. Returns true if TF32 must be switched off first,
/// because other GPUs have none.
#[cfg(feature = "cuda")]
pub(super) fn is_to_be_switched_off(gpu: &super::CudaDevice) -> bool {
    let mut opened = opened();
    if has_tf32(gpu) && opened.without.is_empty() {
        opened.with_tf32.insert(gpu.index);
    }
    has_tf32(gpu) && !opened.without.is_empty() && !opened.without.contains(&gpu.index)
}

/// Returns true if the GPU has TF32, or if that is unknown.
#[cfg(feature = "cuda")]
fn has_tf32(gpu: &super::CudaDevice) -> bool {
    gpu.compute_capability.is_none_or(ComputeCapability::has_tf32)
}

/// Switches TF32 off on the GPU at `place`, for the rest of the process: products and convolutions of f32 run without
/// tensor cores then. Other formats keep theirs. Where it is off, or the GPU has none, this does nothing.
///
/// Burn's `attention` function on tensors without autodiff is not affected: it multiplies fp32 in fp16 where tuning
/// finds that faster.
///
/// Call it before anything uses a GPU, [`open`](super::open) included. GPUs that are opened later with that follow; call it
/// for those that Burn is to open by itself. `start` does, where that is asked for.
///
/// Processes with TF32 need other tuning caches: Burn panics if a cached choice declines. With feature `warm`, begin
/// with a `Fingerprint` that has `full_f32`.
///
/// # Errors
///
/// [`OpenError::Tf32`] if the GPU was used before, if another one is open with TF32, or if `CubeCL` fails. The errors
/// of [`open`](super::open) for a missing GPU or a missing context.
pub fn switch_tf32_off(place: &Place) -> Result<(), OpenError> {
    #[cfg(feature = "cuda")]
    return cuda::switch_off(place);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = place;
        Err(OpenError::WithoutCuda)
    }
}

/// Removes all properties by which fp32 products could use TF32.
#[cfg(any(feature = "cuda", all(test, feature = "cubecl")))]
fn strip(properties: &mut cubecl::ir::DeviceProperties) {
    use cubecl::ir::{ElemType, FloatKind};

    const TF32: ElemType = ElemType::Float(FloatKind::TF32);
    let features = &mut properties.features;
    features.types.elem.remove(&TF32);
    features.matmul.cmma.retain(|config| ![config.a_type, config.b_type].contains(&TF32));
    features.matmul.cube_mma.retain(|config| ![config.a_type, config.b_type].contains(&TF32));
    features.matmul.mma.retain(|config| ![config.a_type, config.b_type].contains(&TF32));
}

#[cfg(feature = "cuda")]
mod cuda {
    #![allow(unsafe_code)]

    use std::convert::identity;
    use std::sync::Arc;
    use std::sync::atomic::{Ordering, fence};

    use burn::backend::DeviceService;
    use cubecl::client::Client;
    use cubecl::cuda::CudaRuntime;
    use cubecl::device::DeviceId;
    use cubecl::server::Server;
    use cubecl_runtime::runtime::Runtime;
    use gpu_tuned_nvml::cuda_devices;

    use super::{OpenError, Place, has_tf32, opened, strip};
    use crate::device::driver;
    use crate::device::guard::catching_on_thread;

    pub(super) fn switch_off(place: &Place) -> Result<(), OpenError> {
        let gpu = place.find(&cuda_devices()?)?.clone();
        if !has_tf32(&gpu) {
            return Ok(());
        }
        // Locked to the end, so that the second of two concurrent calls finds TF32 switched off.
        let mut opened = opened();
        if opened.without.contains(&gpu.index) {
            return Ok(());
        }
        let refused = |message: String| OpenError::Tf32 { device: Box::new(gpu.clone()), message };
        if !opened.with_tf32.is_empty() {
            return Err(refused("this process has opened GPUs with it".to_owned()));
        }
        // The driver reports errors for which CubeCL would panic.
        let (context, _) = driver::retain(&gpu)?;
        let id = DeviceId::new(0, gpu.index as u16);
        // On a thread of its own, because it makes the context current.
        catching_on_thread(|| serve(id)).and_then(identity).map_err(refused)?;
        drop(context);
        opened.without.insert(gpu.index);
        Ok(())
    }

    type CudaServer = <CudaRuntime as Runtime>::Server;

    /// Opens a device as `CubeCL` does when it is first used, but for TF32.
    fn serve(device: DeviceId) -> Result<(), String> {
        let mut server = CudaServer::init(device);
        forget_tf32(&mut server)?;
        Client::try_init(device, server).map(drop).map_err(|error| format!("it was used before ({error:?})"))
    }

    fn forget_tf32(server: &mut CudaServer) -> Result<(), String> {
        let shared = Server::utilities(server);
        if (Arc::strong_count(&shared), Arc::weak_count(&shared)) != (2, 0) {
            return Err("CubeCL knows the device already".to_owned());
        }
        // Whoever has let go of it before has done so before what follows.
        fence(Ordering::Acquire);
        // SAFETY: one of the two counts is `shared`. The other is the server's, which hands out clones of its own and
        // is borrowed mutably here. No other code reads or clones the value until this function returns, and this
        // reference, the only one, ends before.
        let utilities = unsafe { &mut *Arc::as_ptr(&shared).cast_mut() };
        strip(Arc::make_mut(&mut utilities.properties));
        utilities.properties_hash = utilities.properties.checksum();
        Ok(())
    }
}

#[cfg(test)]
#[path = "full_f32_tests.rs"]
mod tests;
