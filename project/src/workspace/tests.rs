use std::fs;
use std::path::Path;

use gpu_tuned_core::source::Source;

use super::{CargoLock, MANIFEST, PackageMetadata, cargo_lock, config_file, root};

#[test]
fn packages_have_the_root_that_cargo_finds() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |file: &str, text: &str| {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().expect("it is below"))
            .and_then(|()| fs::write(path, text))
            .expect("it is written");
    };
    write(MANIFEST, "[workspace]\nmembers = ['in']\nexclude = ['out']\n");
    for (package, manifest) in
        [("in", "[package]\n"), ("out", "[package]\n"), ("far/own", "[package]\nworkspace = '../..'\n")]
    {
        write(&format!("{package}/{MANIFEST}"), manifest);
    }
    write("Cargo.lock", "");
    write("gpu-tuned.toml", "");
    let (inner, outer, far) = (folder.path().join("in"), folder.path().join("out"), folder.path().join("far/own"));
    assert_eq!(root(&inner).as_deref(), Some(folder.path()));
    assert_eq!(root(&outer), None);
    assert_eq!(root(&far), Some(far.join("../..")));
    assert_eq!(cargo_lock(&inner), Some(folder.path().join("Cargo.lock")));
    assert_eq!(config_file(&inner), Path::new("../gpu-tuned.toml"));
    assert_eq!(config_file(&outer), Path::new("gpu-tuned.toml"));
}

#[test]
fn the_file_is_named_in_the_metadata() {
    let parse = |text: &str| {
        let parsed = PackageMetadata::parse(Source { file: MANIFEST, text });
        parsed.map(|metadata| metadata.config_file).map_err(|mistakes| mistakes[0].to_string())
    };
    let with = |line: &str| format!("[package]\nname = \"a\"\n\n[package.metadata.gpu-tuned]\n{line}\n");
    assert_eq!(parse(&with("config-file = \"../my.toml\"")), Ok(Some("../my.toml".into())));
    assert_eq!(parse("[package]\nmetadata.docs.rs.all-features = true\n"), Ok(None));
    for (line, expected) in [
        ("config-file = 5", "Cargo.toml:5:15: config-file: expected a path in quotes"),
        ("config_file = \"a\"", "Cargo.toml:5:1: unknown key `config_file`; did you mean `config-file`?"),
    ] {
        let found = parse(&with(line)).expect_err(line);
        assert!(found.starts_with(expected), "{found}");
    }
}

#[test]
fn only_dependencies_of_the_package_count() {
    let text = r#"
        version = 4
        [[package]]
        name = "mine"
        version = "0.1.0"
        dependencies = ["between", "burn 0.22.1"]
        [[package]]
        name = "between"
        version = "1.0.0"
        dependencies = ["cubecl", "mine"]
        [[package]]
        name = "other"
        version = "0.1.0"
        dependencies = ["burn 0.21.0"]
        [[package]]
        name = "burn"
        version = "0.21.0"
        [[package]]
        name = "burn"
        version = "0.22.1"
        [[package]]
        name = "cubecl"
        version = "0.11.3"
    "#;
    let lock = CargoLock::parse(text).expect("it is TOML");
    let releases = |name: &str| lock.releases("mine", name).into_iter().collect::<Vec<_>>();
    assert_eq!(releases("burn"), ["0.22.1"]);
    assert_eq!(releases("cubecl"), ["0.11.3"]);
    assert!(releases("tch").is_empty());
    let other = |measured: &str, name: &str| lock.other_than(measured, "mine", name);
    assert_eq!(other("0.21.0", "burn").as_deref(), Some("0.22.1"));
    assert_eq!((other("0.22.1", "burn"), other("0.22.1", "tch")), (None, None));
}

#[test]
fn a_file_that_cargo_refuses_is_an_error_with_its_place() {
    for (text, place, words) in [
        ("version = 4\n<<<<<<< HEAD\n[[package]]\n", "2:1", "a merge left both sides here: keep either side whole"),
        ("[[package]]\nname = \"burn\n", "2:13", "delete it: cargo writes another"),
        ("[[package]]\nname = \"burn\"\n", "1:1", "missing field `version`"),
    ] {
        let mistake = CargoLock::read(Source { file: "Cargo.lock", text }).expect_err(words).to_string();
        assert!(mistake.starts_with(&format!("Cargo.lock:{place}: ")) && mistake.contains(words), "{mistake}");
        assert!(CargoLock::parse(text).is_none());
    }
}
