//! Identity of this host.

use std::fs;

use serde::{Deserialize, Serialize};

/// Name of a host, and what distinguishes it from others of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Host {
    pub(crate) name: String,
    /// Linux's identifier of the boot; empty elsewhere.
    boot: String,
}

impl Host {
    /// Returns the host of this process.
    pub(crate) fn current() -> Self {
        let name = gethostname::gethostname().to_string_lossy().into_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { name, boot: boot.trim().to_owned() }
    }
}
