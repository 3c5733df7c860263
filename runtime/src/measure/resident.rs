//! What the process holds of the host's memory.

pub(super) use imp::{before, counted, peak, restart_peak};

/// As the program's allocator counts it.
#[cfg(feature = "counting-allocator")]
mod imp {
    use crate::allocation;
    use crate::measure::MeasureError;

    /// What to count from.
    #[expect(clippy::unnecessary_wraps, reason = "without the allocator it can fail")]
    pub(in crate::measure) fn before() -> Result<u64, MeasureError> {
        Ok(allocation::live_bytes() as u64)
    }

    /// The most since [`restart_peak`].
    #[expect(clippy::unnecessary_wraps, reason = "without the allocator it can fail")]
    pub(in crate::measure) fn peak() -> Result<u64, MeasureError> {
        Ok(allocation::peak_bytes() as u64)
    }

    pub(in crate::measure) fn restart_peak() {
        allocation::restart_peak();
    }

    /// What is live, where that is counted.
    #[expect(clippy::unnecessary_wraps, reason = "without the allocator it is not counted")]
    pub(in crate::measure) fn counted() -> Option<u64> {
        Some(allocation::live_bytes() as u64)
    }
}

/// As Linux counts the pages of the process.
#[cfg(not(feature = "counting-allocator"))]
mod imp {
    use std::fs;
    use std::sync::OnceLock;

    use crate::measure::MeasureError;

    /// What to count from: the process at the first call, since the allocator keeps what later ones free.
    pub(in crate::measure) fn before() -> Result<u64, MeasureError> {
        static FIRST: OnceLock<Option<u64>> = OnceLock::new();
        FIRST.get_or_init(|| status("VmRSS:")).ok_or(MeasureError::HostMemory)
    }

    /// The most since [`restart_peak`].
    pub(in crate::measure) fn peak() -> Result<u64, MeasureError> {
        status("VmHWM:").ok_or(MeasureError::HostMemory)
    }

    pub(in crate::measure) fn restart_peak() {
        // Where it may not be written the peak is that of the process's whole life: still nothing that would not do.
        if let Err(error) = fs::write("/proc/self/clear_refs", "5") {
            tracing::debug!("the peak of resident memory cannot be restarted: {error}");
        }
    }

    /// What is live, where that is counted.
    pub(in crate::measure) fn counted() -> Option<u64> {
        None
    }

    fn status(key: &str) -> Option<u64> {
        parse(&fs::read_to_string("/proc/self/status").ok()?, key)
    }

    fn parse(status: &str, key: &str) -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    #[cfg(test)]
    mod tests {
        use super::parse;

        #[test]
        fn a_line_of_the_kernels_is_in_kibibytes() {
            let status = "VmPeak:\t    9000 kB\nVmHWM:\t    2004 kB\nVmRSS:\t  bad kB\n";
            assert_eq!(parse(status, "VmHWM:"), Some(2004 * 1024));
            assert_eq!((parse(status, "VmRSS:"), parse(status, "VmSwap:")), (None, None));
        }
    }
}
