//! The user's own configuration of `CubeCL`'s caches.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// The files that `CubeCL` 0.11 reads, and the section of them; in each folder in this order.
const FILES: [(&str, Option<&str>); 4] =
    [("cubecl.toml", None), ("CubeCL.toml", None), ("burn.toml", Some("cubecl")), ("Burn.toml", Some("cubecl"))];

/// Keys of `CubeCL`'s files that configure caches.
const KEYS: [&[&str]; 4] =
    [&["compilation", "cache"], &["environment", "name"], &["environment", "path"], &["autotune", "disable_cache"]];

/// Environment variables that configure caches.
const VARIABLES: [&str; 2] = ["CUBECL_ENVIRONMENT", "CUBECL_AUTOTUNE_CACHE"];

/// Source of the user's cache configuration, if any. `CubeCL` searches its files from `folder` upwards.
pub(super) fn by_user(folder: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    if let Some(name) = VARIABLES.iter().find(|name| variable(name).is_some()) {
        return Some((*name).to_owned());
    }
    // The first file that configures CubeCL is the only one.
    let (file, table) = folder?.ancestors().find_map(|folder| FILES.iter().find_map(|file| read(folder, *file)))?;
    let key = KEYS.iter().find(|key| has(&table, key))?;
    Some(format!("`{}` in {file}", key.join(".")))
}

/// The configuration in a file; `None` for one that `CubeCL` passes by.
fn read(folder: &Path, (name, section): (&str, Option<&str>)) -> Option<(String, Table)> {
    let path = folder.join(name);
    let mut table: Table = fs::read_to_string(&path).ok()?.parse().ok()?;
    if let Some(section) = section {
        let Some(Value::Table(inner)) = table.remove(section) else { return None };
        table = inner;
    }
    Some((path.display().to_string(), table))
}

fn has(table: &Table, key: &[&str]) -> bool {
    let [first, rest @ ..] = key else { return true };
    match table.get(*first) {
        Some(Value::Table(inner)) => has(inner, rest),
        Some(_) => rest.is_empty(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::path::Path;

    use super::by_user;

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
}
