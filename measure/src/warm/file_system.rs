//! File systems of kernel caches.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// File systems whose locks and shared memory do not reach other hosts, by their magic numbers in Linux's `statfs`.
#[cfg(any(target_os = "linux", test))]
const NETWORK: [(u64, &str); 17] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x0102_1997, "9P"),
    (0xaad7_aaea, "PanFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
];

/// Bytes that a folder must have free: the first kernels, and the database's shared memory. Without space for that
/// memory, the system ends the process (`SIGBUS`).
pub(super) const SPACE: usize = 1 << 20;

/// Name of the network file system that a folder is on; `None` for local folders and outside of Linux.
pub(super) fn network_file_system(folder: &Path) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    {
        // The field's type depends on the architecture.
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast)]
        name(u64::from(rustix::fs::statfs(folder).ok()?.f_type as u32))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = folder;
        None
    }
}

#[cfg(any(target_os = "linux", test))]
fn name(magic: u64) -> Option<&'static str> {
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Creates a folder, and writes a temporary file of [`SPACE`] into it.
pub(super) fn try_writing(folder: &Path, is_network: bool) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = tempfile::tempfile_in(folder)?;
    file.write_all(&vec![1; SPACE])?;
    // Servers report a full disk late.
    if is_network { file.sync_data() } else { Ok(()) }
}

/// Returns true for a full disk or an exhausted quota.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;

    use super::{NETWORK, is_full, name, network_file_system, try_writing};

    #[test]
    fn network_file_systems_have_the_magic_numbers_of_the_manual() {
        // statfs(2).
        for (magic, expected) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x6573_5546, "FUSE"), (0x00c3_6400, "Ceph")]
        {
            assert_eq!(name(magic), Some(expected));
        }
        // ext4, tmpfs, XFS, Btrfs, overlayfs.
        for magic in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
            assert_eq!(name(magic), None);
        }
        let numbers: std::collections::BTreeSet<_> = NETWORK.iter().map(|(magic, _)| magic).collect();
        assert_eq!(numbers.len(), NETWORK.len());
        assert_eq!(network_file_system(std::path::Path::new("/proc")), None);
    }

    #[test]
    fn a_folder_is_created_and_no_file_is_left_in_it() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("a/b");
        for is_network in [false, true] {
            try_writing(&folder, is_network).expect("it is writable");
            assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 0);
        }
        fs::write(home.path().join("file"), "").expect("it is written");
        assert!(try_writing(&home.path().join("file"), false).is_err());
    }

    #[test]
    fn a_full_disk_is_recognised() {
        assert!(is_full(&io::Error::from(io::ErrorKind::StorageFull)));
        assert!(!is_full(&io::Error::from(io::ErrorKind::PermissionDenied)));
        // A device that is always full.
        if cfg!(target_os = "linux") {
            let written = fs::write("/dev/full", "x");
            assert!(is_full(&written.expect_err("the device is full")));
        }
    }
}
