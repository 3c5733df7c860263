use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use super::{Draft, check, replace, replace_with, sweep};

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn a_failed_write_leaves_the_file_as_it_was() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let path = folder.join("file");
    replace(&path, "before").expect("written");
    let failed = replace_with(&path, |file| {
        file.write_all(b"half")?;
        Err(io::Error::other("full"))
    });
    assert_eq!(failed.expect_err("failed").to_string(), "full");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "before");
    assert_eq!(names(folder), ["file"]);
    replace(&path, "after").expect("written");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "after");
}

#[cfg(unix)]
#[test]
fn a_draft_is_as_private_as_its_file_and_a_link_to_nothing_stays() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let path = folder.join("file");
    fs::write(&path, "secret").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    let draft = Draft::new(&path).expect("a draft");
    assert_eq!(fs::metadata(&draft.path).expect("a file").permissions().mode() & 0o777, 0o600);
    drop(draft);
    let link = folder.join("link");
    symlink(folder.join("nowhere"), &link).expect("a link");
    let refused = replace(&link, "text").expect_err("a link to nothing").to_string();
    assert_eq!(refused, "it is a link to a file that is not there");
    assert!(link.is_symlink() && !folder.join("nowhere").exists());
    assert_eq!(names(folder), ["file", "link"]);
}

#[cfg(unix)]
#[test]
fn drafts_of_dead_writers_are_removed_and_of_living_ones_stay() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let path = folder.join("file");
    let mut living = Draft::new(&path).expect("a draft");
    // An editor's file, and another file's draft.
    assert!([".file.old.tmp", ".file.2.1-0.tmp"].iter().all(|kept| fs::write(folder.join(kept), "").is_ok()));
    for clean in [sweep, |path: &Path| replace(path, "first").expect("written")] {
        fs::write(folder.join(".file.1-0.tmp"), "half").expect("written");
        clean(&path);
        assert!(!folder.join(".file.1-0.tmp").exists());
    }
    living.file().write_all(b"last").expect("written");
    living.commit().expect("its draft is still there");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "last");
    assert_eq!(names(folder), [".file.2.1-0.tmp", ".file.old.tmp", "file"]);
}

#[cfg(unix)]
#[test]
fn writers_that_sweep_each_other_all_write() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let path = &folder.join("file");
    std::thread::scope(|scope| {
        for text in ["one", "two", "three", "four"] {
            scope.spawn(move || (0..50).for_each(|_| replace(path, text).expect("written")));
        }
    });
    assert_eq!(names(folder), ["file"]);
}

#[cfg(unix)]
#[test]
fn links_and_sockets_with_names_of_drafts_stay() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let target = folder.join("target");
    fs::write(&target, "kept").expect("written");
    std::os::unix::fs::symlink(&target, folder.join(".file.7.tmp")).expect("a link");
    let _socket = std::os::unix::net::UnixListener::bind(folder.join(".file.8.tmp")).expect("a socket");
    replace(&folder.join("file"), "text").expect("written");
    assert_eq!(names(folder), [".file.7.tmp", ".file.8.tmp", "file", "target"]);
}

#[test]
fn read_only_files_are_not_replaced() {
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let path = folder.join("file");
    fs::write(&path, "old").expect("written");
    let mut permissions = fs::metadata(&path).expect("a file").permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).expect("set");
    assert_eq!(replace(&path, "new").expect_err("read-only").to_string(), "the file is read-only");
    assert_eq!(fs::read_to_string(&path).expect("a file"), "old");
}

#[cfg(unix)]
#[test]
fn only_files_are_replaced() {
    use std::os::unix::fs::FileTypeExt as _;
    use std::os::unix::net::UnixListener;
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let path = folder.join("socket");
    let _socket = UnixListener::bind(&path).expect("a socket");
    // A socket cannot be opened, unlike a pipe.
    replace(&path, "text").expect_err("no file");
    assert!(fs::metadata(&path).expect("a socket").file_type().is_socket());
    assert_eq!(replace(folder, "text").expect_err("a folder").kind(), io::ErrorKind::IsADirectory);
    assert_eq!(check(folder).expect_err("a folder").kind(), io::ErrorKind::IsADirectory);
}

#[cfg(unix)]
#[test]
fn links_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = temporary.path();
    let (path, link) = (folder.join("file"), folder.join("link"));
    fs::write(&path, "before").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a mode");
    symlink(&path, &link).expect("a link");
    replace(&link, "after").expect("written");
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    assert_eq!(fs::read_to_string(&path).expect("a file"), "after");
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o640);
}
