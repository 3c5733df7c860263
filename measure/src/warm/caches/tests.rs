use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Caches, by_user};

#[test]
fn what_was_tuned_with_tf32_may_be_in_caches_of_others() {
    let path = PathBuf::from("cache.db");
    for ours in [
        Caches::On { path: path.clone(), kernels: true, dropped: 0 },
        Caches::NotWritable { path: path.clone(), because: "its disk is full".to_owned(), is_read: false },
        Caches::Throwaway { path },
    ] {
        assert_eq!(ours.tf32_in_them(), None);
    }
    let why = Caches::Configured { by: "cubecl.toml".to_owned() }.tf32_in_them().expect("a reason");
    assert_eq!(
        why,
        "caches are configured by cubecl.toml, and may contain kernels tuned with TF32; remove that setting, and \
         kernels without TF32 get their own caches"
    );
    let why = Caches::TooLate.tf32_in_them().expect("a reason");
    assert!(why.ends_with("start the session before anything uses the GPU"), "{why}");
}

fn message(folder: &Path) -> Option<String> {
    by_user(Some(folder), |_| None)
}

#[test]
fn a_key_about_caches_is_found_in_the_file_that_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("a/b");
    fs::create_dir_all(&inner).expect("folders");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("it is written");
    assert_eq!(message(&inner), None);

    for (name, text, key) in [
        ("burn.toml", "[cubecl.compilation]\ncache = false\n", "compilation.cache"),
        ("CubeCL.toml", "[environment]\npath = \"global\"\n", "environment.path"),
        ("cubecl.toml", "[environment]\nname = \"mine\"\n", "environment.name"),
        ("cubecl.toml", "[autotune]\ndisable_cache = true\n", "autotune.disable_cache"),
        // A key's table that is a value is CubeCL's to complain about: it is not for us to overrule.
        ("cubecl.toml", "[environment.path]\ndirectory = \"x\"\n", "environment.path"),
    ] {
        write(name, text);
        let message = message(&inner).unwrap_or_default();
        assert!(message.starts_with(&format!("`{key}` in ")) && message.ends_with(name), "{name}: {message}");
    }
}

#[test]
fn other_settings_say_nothing_of_caches_and_the_nearest_file_is_the_only_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = folder.path().join("a");
    fs::create_dir_all(&inner).expect("folders");
    fs::write(folder.path().join("cubecl.toml"), "[compilation]\ncache = true\n").expect("it is written");
    fs::write(inner.join("cubecl.toml"), "[autotune]\nlevel = \"full\"\n[environment.records]\nlevel = \"off\"\n")
        .expect("it is written");
    assert_eq!(message(&inner), None);
    assert!(message(folder.path()).is_some());
    // A `burn.toml` without a section for CubeCL, or no TOML at all, is passed by.
    fs::write(inner.join("cubecl.toml"), "[compilation\n").expect("it is written");
    fs::write(inner.join("burn.toml"), "[fusion]\n").expect("it is written");
    assert!(message(&inner).is_some());
}

#[test]
fn a_variable_about_caches_comes_before_files() {
    let set = |name: &str| (name == "CUBECL_ENVIRONMENT").then(|| OsString::from("mine"));
    assert_eq!(by_user(None, set).as_deref(), Some("CUBECL_ENVIRONMENT"));
    assert_eq!(by_user(None, |name| (name == "CUBECL_DEBUG_LOG").then(|| OsString::from("1"))), None);
}
