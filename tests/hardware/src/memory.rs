//! Memory usage of a device's pools.

use burn::tensor::Device;
use serde::Serialize;

/// A reading of the pools; zeros for a device without pools.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    /// Bytes taken from the device.
    pub reserved_bytes: u64,
    /// Bytes of live allocations.
    pub in_use_bytes: u64,
}

impl Usage {
    /// Memory usage of `device` after all launched work.
    pub fn read(device: &Device) -> Self {
        device.memory_pool_usage().map_or_else(Self::default, |usage| Self {
            reserved_bytes: usage.bytes_reserved,
            in_use_bytes: usage.bytes_in_use,
        })
    }
}

/// A pool of pages of one size.
#[cfg(feature = "cuda")]
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pool {
    /// Bytes of a page.
    page_size: u64,
    /// Present number of pages.
    pages: u64,
    /// Maximum number of pages in the process.
    pages_peak: u64,
    /// Largest allocation served, in bytes.
    largest_alloc: u64,
}

/// Every pool of `device`.
#[cfg(feature = "cuda")]
pub(crate) fn pools(device: &Device) -> Vec<Pool> {
    let report = device.memory_pool_report().unwrap_or_default();
    let pools = report.into_iter().map(|pool| Pool {
        page_size: pool.page_size,
        pages: pool.pages,
        pages_peak: pool.pages_peak,
        largest_alloc: pool.largest_alloc,
    });
    pools.collect()
}
