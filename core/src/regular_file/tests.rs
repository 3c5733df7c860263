use std::os::unix::fs::symlink;

use super::*;

#[test]
fn devices_folders_kernel_files_and_large_files_are_refused() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let link = |name: &str, target: &str| {
        symlink(target, folder.join(name)).expect("a link");
        read_text(&folder.join(name), 4).map_err(|error| error.to_string())
    };
    assert_eq!(link("zero", "/dev/zero").unwrap_err(), "it is not a regular file");
    assert_eq!(link("folder", "/").unwrap_err(), "it is a directory");
    if cfg!(target_os = "linux") {
        let own = fs::read("/proc/self/environ").expect("the environment");
        assert!(own.is_empty() || link("environment", "/proc/self/environ").is_err());
        let of_kernel = read(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"), LARGEST);
        assert!(
            of_kernel.is_err_and(|error| error.kind() == ErrorKind::NotFound || error.to_string().contains("disk"))
        );
    }
    let file = folder.join("file");
    for (text, is_read) in [("", true), ("four", true), ("fives", false), ("\u{fffd}", true)] {
        fs::write(&file, text).expect("written");
        assert_eq!(read_text(&file, 4).ok().as_deref(), Some(text).filter(|_| is_read), "{text}");
    }
    fs::write(&file, [0xff]).expect("written");
    assert_eq!(read_text(&file, 4).unwrap_err().kind(), ErrorKind::InvalidData);
}
