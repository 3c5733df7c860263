use std::ffi::OsString;
use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{BundleError, Bundled, Found, Header, file_name, find_in, for_gpus};
#[cfg(unix)]
use super::{keep_others_out, others_can_write};
use crate::warm::fingerprint::tests::h200;

#[cfg(unix)]
#[test]
fn a_path_that_is_no_utf_8_is_shown_in_json() {
    use std::os::unix::ffi::OsStrExt;

    let path = std::ffi::OsStr::from_bytes(b"na\xefve").into();
    let saved = serde_json::to_value(super::Saved { path, bytes: 1, entries: 1, sha256: String::new() }).expect("JSON");
    assert_eq!(saved["path"], "na\u{fffd}ve");
}

/// A file with this first line, before whatever follows.
fn file(folder: &Path, line: &str, contents: &[u8]) -> Result<(), String> {
    let path = folder.join("one.bundle");
    fs::write(&path, [line.as_bytes(), b"\n", contents].concat()).expect("it is written");
    let read = |found: Found| {
        found.header.check(&h200())?;
        found.read(None).map(drop)
    };
    Found::open(&path).and_then(read).map_err(|error| error.to_string())
}

fn header(contents: &[u8]) -> serde_json::Value {
    let header = Header {
        gpu_tuned_warm: super::FORMAT,
        made_on: h200(),
        build: None,
        bytes: contents.len() as u64,
        crc32: crc32fast::hash(contents),
    };
    serde_json::to_value(header).expect("JSON")
}

#[test]
fn what_is_no_bundle_for_here_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let contents = b"what CubeCL wrote";
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut header = header(contents);
        change(&mut header);
        header.to_string()
    };
    let other_driver = with(&|header| header["made_on"]["driver"] = "550.1".into());
    for (line, reason) in [
        (String::new(), "it is no kernel cache archive of gpu-tuned"),
        ("SQLite format 3\0".to_owned(), "it is no kernel cache archive of gpu-tuned"),
        ("{\"format\":1}".to_owned(), "it is no kernel cache archive of gpu-tuned"),
        (with(&|header| header["gpu_tuned_warm"] = 2.into()), "it has format 2, and this release reads format 1"),
        (with(&|header| header["made_on"] = 1.into()), "it is damaged: invalid type"),
        (with(&|header| header["bytes"] = 99.into()), "it is damaged: 17 bytes follow its first line, not 99"),
        (other_driver, "made with driver 550.1, here it is 580.95.05"),
        (with(&|header| header["crc32"] = 7.into()), "it is damaged: its checksum does not match"),
        (with(&|_| ()), "it is damaged: not a cubecl flat bundle"),
    ] {
        let refused = file(folder.path(), &line, contents).expect_err(reason);
        assert!(refused.starts_with(reason), "{refused}, not {reason}");
    }
    assert!(matches!(Found::open(&folder.path().join("none")), Err(BundleError::Read(_))));
}

#[test]
fn a_first_line_without_an_end_is_not_read_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = file(folder.path(), &"x".repeat(1 << 20), b"").expect_err("no header is so long");
    assert_eq!(refused, "it is no kernel cache archive of gpu-tuned");
}

#[test]
fn another_build_or_other_contents_are_another_bundle() {
    let of = |contents: &[u8]| serde_json::from_value::<Header>(header(contents)).expect("a header");
    let (a, b) = (of(b"a"), of(b"b"));
    assert_ne!(a.key(), b.key());
    assert_ne!(a.key(), Header { build: Some("ab".to_owned()), ..a.clone() }.key());
    assert_eq!(a.key(), of(b"a").key());
}

#[test]
fn tuned_choices_are_for_every_gpu_of_the_session() {
    let namespace = "autotune/0.11.3/device-0-0-cuda/burn-cubecl/matmul";
    assert_eq!(for_gpus(namespace, &[0]), [namespace]);
    let targets = for_gpus(namespace, &[1, 3]);
    let expected = [1, 3].map(|gpu| format!("autotune/0.11.3/device-0-{gpu}-cuda/burn-cubecl/matmul"));
    assert_eq!(targets, expected);
    for all in ["cuda/0.11.3/ptx_sm90-llvm-86", "autotune/0.11.3/device-0-0-cuda", "autotune/0.11.3/other/x"] {
        assert_eq!(for_gpus(all, &[1, 3]), [all]);
    }
}

#[test]
fn the_bundle_of_the_fingerprint_is_found_in_the_first_folder_that_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
    for folder in [&a, &b, &c] {
        fs::create_dir(folder).expect("a folder");
    }
    let find = |named: Option<&PathBuf>| {
        let all = [folder.path().join("missing"), a.clone(), b.clone(), c.clone()];
        find_in(named.map(OsString::from), all.into_iter(), &h200())
    };
    assert_eq!(find(None), None);
    fs::write(a.join("other.bundle"), "").expect("it is written");
    let Some(Err(Bundled::Ignored { path, because })) = find(None) else { panic!("there is another one") };
    assert_eq!((path, because.ends_with("but other.bundle")), (a.clone(), true));
    for folder in [&b, &c] {
        fs::write(folder.join(file_name(&h200())), "").expect("it is written");
    }
    assert_eq!(find(None), Some(Ok(b.join(file_name(&h200())))));
    assert_eq!(find(Some(&c)), Some(Ok(c.join(file_name(&h200())))));
    // A file that is named is the one, whatever its name, and is there or not.
    let named = folder.path().join("mine");
    assert_eq!(find(Some(&named)), Some(Ok(named.clone())));
}

#[cfg(unix)]
#[test]
fn only_files_of_this_user_in_folders_of_this_user_are_loaded_unasked() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("gpu-tuned.warm");
    fs::create_dir(&folder).expect("a folder");
    let file = folder.join("one.bundle");
    fs::write(&file, "x").expect("it is written");
    let modes = |of_folder: u32, of_file: u32| {
        for (path, mode) in [(&folder, of_folder), (&file, of_file)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the mode is set");
        }
        others_can_write(&file).unwrap_or_default()
    };
    assert_eq!(modes(0o755, 0o644), "");
    assert_eq!(modes(0o700, 0o600), "");
    for (of_folder, of_file) in [(0o775, 0o644), (0o1777, 0o644), (0o755, 0o664), (0o755, 0o646)] {
        assert!(modes(of_folder, of_file).starts_with("others can write "), "{of_folder:o} {of_file:o}");
    }
    modes(0o775, 0o666);
    [&folder, &file].into_iter().try_for_each(|path| keep_others_out(path)).expect("the modes are set");
    assert_eq!(others_can_write(&file), None);
    let link = folder.join("two.bundle");
    symlink(&file, &link).expect("a link");
    assert!(others_can_write(&link).expect("a reason").contains("is a symbolic link"));
}
