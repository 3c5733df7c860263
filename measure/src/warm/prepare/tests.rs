use std::{fs, io};

use super::{Access, NETWORK, is_full, network_file_system, network_name, prepare_on, try_writing};

#[test]
fn hosts_share_no_database_on_a_network_file_system() {
    let folder = tempfile::tempdir().expect("a folder");
    let [mut shared, mut local] =
        [Some("NFS"), None].map(|network| prepare_on(network, folder.path(), "gpu".to_owned(), Ok(())));
    assert_eq!((&shared.access, &local.access), (&Access::Full, &Access::Full));
    let host = sysinfo::System::host_name().expect("a name");
    assert_eq!(shared.name, format!("gpu-on-{host}"));
    assert_eq!(local.path, folder.path().join("gpu.db"));
    let [event] = &shared.finish()[..] else { panic!("one event") };
    assert!(!event.is_slow() && event.to_string().ends_with("is on a network file system (NFS)"), "{event}");
    assert_eq!(local.finish(), []);
}

#[test]
fn network_file_systems_have_the_magic_numbers_of_the_manual() {
    // statfs(2).
    for (magic, expected) in [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x6573_5546, "FUSE"), (0x00c3_6400, "Ceph")] {
        assert_eq!(network_name(magic), Some(expected));
    }
    // ext4, tmpfs, XFS, Btrfs, overlayfs.
    for magic in [0xef53, 0x0102_1994, 0x5846_5342, 0x9123_683e, 0x794c_7630] {
        assert_eq!(network_name(magic), None);
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
