//! The performance counters (GPM).

use std::ffi::{c_char, c_uint};
use std::ptr;
use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering::Relaxed;

use super::{Handle, Return, ask};
use crate::Code;
use crate::phase::Counted;
use crate::scenario::Call;
use crate::state;

/// Samples that are allocated and not freed yet.
static SAMPLES: AtomicIsize = AtomicIsize::new(0);

/// The target of an `nvmlGpmSample_t`.
#[derive(Default)]
struct Sample {
    counted: Option<Counted>,
}

/// `nvmlGpmSupport_t`.
#[repr(C)]
struct Support {
    version: c_uint,
    is_supported: c_uint,
}

/// `nvmlGpmMetric_t`.
#[repr(C)]
struct Metric {
    id: c_uint,
    code: Return,
    value: f64,
    short_name: *mut c_char,
    long_name: *mut c_char,
    unit: *mut c_char,
}

/// `nvmlGpmMetricsGet_t`, without its room for 210 metrics.
#[repr(C)]
struct Request {
    version: c_uint,
    count: c_uint,
    older: *mut Sample,
    newer: *mut Sample,
}

/// Number of samples that are allocated and not freed.
#[unsafe(no_mangle)]
extern "C" fn fake_nvml_samples() -> isize {
    SAMPLES.load(Relaxed)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: Handle, out: *mut Support) -> Return {
    let answer = ask(device, Call::CounterSupport, |unit| {
        Ok(unit.counters.is_some() || unit.mig.iter().any(|slice| slice.counters.is_some()))
    });
    match answer {
        // SAFETY: by NVML's contract.
        Ok(is_supported) => unsafe { (*out).is_supported = is_supported.into() },
        Err(code) => return code as Return,
    }
    Code::Success as Return
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut *mut Sample) -> Return {
    SAMPLES.fetch_add(1, Relaxed);
    // SAFETY: by NVML's contract.
    unsafe { out.write(Box::into_raw(Box::default())) };
    Code::Success as Return
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleFree(sample: *mut Sample) -> Return {
    SAMPLES.fetch_sub(1, Relaxed);
    // SAFETY: by NVML's contract it comes from `nvmlGpmSampleAlloc` and is freed once.
    drop(unsafe { Box::from_raw(sample) });
    Code::Success as Return
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmSampleGet(device: Handle, sample: *mut Sample) -> Return {
    // SAFETY: as this function's.
    unsafe { take(device, sample) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMigSampleGet(device: Handle, instance: c_uint, sample: *mut Sample) -> Return {
    let slice = ask(device, Call::Counters, |unit| {
        let place = unit.mig.iter().position(|slice| slice.gpu_instance == Some(instance));
        place.map(|place| super::handle((device.addr() & 0xffff) - 1, Some(place))).ok_or(Code::InvalidArgument)
    });
    match slice {
        // SAFETY: as this function's.
        Ok(slice) => unsafe { take(slice, sample) },
        Err(code) => code as Return,
    }
}

/// # Safety
/// `sample` comes from `nvmlGpmSampleAlloc`.
unsafe fn take(device: Handle, sample: *mut Sample) -> Return {
    match ask(device, Call::Counters, |unit| unit.counters.ok_or(Code::NotSupported)) {
        // SAFETY: by this function's contract.
        Ok(counted) => unsafe { (*sample).counted = Some(counted) },
        Err(code) => return code as Return,
    }
    Code::Success as Return
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut Request) -> Return {
    if let Err(code) = state::query_system(|_| Ok(())) {
        return code as Return;
    }
    // SAFETY: by NVML's contract, which has the samples come from `nvmlGpmSampleAlloc`.
    let (version, count, older, newer) =
        unsafe { ((*request).version, (*request).count, (*(*request).older).counted, (*(*request).newer).counted) };
    let (1, Some(_), Some(counted)) = (version, older, newer) else { return Code::InvalidArgument as Return };
    // SAFETY: the metrics follow the head, aligned as it is.
    let metrics = unsafe { request.add(1).cast::<Metric>() };
    for place in 0..count as usize {
        // SAFETY: the caller provides the array of metrics, each with its id.
        let metric = unsafe { &mut *metrics.add(place) };
        let figure = figure(counted, metric.id);
        metric.value = figure.unwrap_or(0.0);
        metric.code = if figure.is_some() { Code::Success } else { Code::NotSupported } as Return;
        (metric.short_name, metric.long_name, metric.unit) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    }
    Code::Success as Return
}

/// By `nvmlGpmMetricId_t`.
fn figure(counted: Counted, id: c_uint) -> Option<f64> {
    match id {
        2 => counted.sm,
        3 => counted.occupancy,
        5 => counted.tensor,
        10 => counted.dram,
        20 => counted.from_gpu_mib_s,
        21 => counted.to_gpu_mib_s,
        _ => None,
    }
}
