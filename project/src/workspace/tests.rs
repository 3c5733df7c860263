use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpu_tuned_core::source::Source;

use super::{
    CargoLock, MANIFEST, PackageMetadata, cargo_lock, config_file, dependency_name, manifests_above, relative, root,
};

/// Folders of packages, with the rest of their manifests.
const PACKAGES: &[(&str, &str)] = &[
    ("", ROOT),
    // Listed, excluded, and listed below an excluded folder.
    ("crates/listed", ""),
    ("crates/left-out", ""),
    ("out", ""),
    ("out/in", ""),
    ("far/own", "workspace = '../..'"),
    ("far/unlisted", "workspace = '../..'"),
    // Path dependencies of every kind.
    ("by/root", "[dependencies]\nfourth = { path = '../fourth' }"),
    ("by/fourth", ""),
    ("by/tests", ""),
    ("by/target", ""),
    ("by/workspace", ""),
    ("by/nobody", ""),
    ("patched", ""),
    // Copies that cargo makes.
    ("vendor/copied", ""),
    ("home/registry/src/index/copied", ""),
    ("home/git/checkouts/repository/1a2b3c4", "[workspace]"),
    ("home/git/checkouts/repository/1a2b3c4/below", ""),
    // A workspace in the workspace, and one beside its package.
    ("inner", "[workspace]\nmembers = ['one']"),
    ("inner/one", ""),
    ("inner/two", ""),
    ("beside/workspace", "[workspace]\nmembers = ['../package']"),
    ("beside/package", "workspace = '../workspace'\n[dependencies]\ndeep = { path = 'deep' }"),
    ("beside/package/deep", "workspace = '../../workspace'"),
];

const ROOT: &str = "[workspace]
members = ['./crates/*', 'out/in', 'far/own']
exclude = ['crates/left-out', 'out', 'inner', 'beside']
[workspace.dependencies]
given = { path = 'by/workspace' }
[dependencies]
root = { path = 'by/root' }
given.workspace = true
[dev-dependencies]
tests = { path = 'by/tests' }
[target.'cfg(unix)'.build-dependencies]
target = { path = 'by/target' }
[patch.crates-io]
patched = { path = 'patched' }
";

fn write(path: &Path, text: &str) {
    let parent = path.parent().expect("it is below");
    fs::create_dir_all(parent).and_then(|()| fs::write(path, text)).expect("it is written");
}

/// Folders of the members, by cargo.
fn members(root: &Path) -> Vec<PathBuf> {
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"];
    let output = Command::new(env!("CARGO")).args(arguments).arg(root.join(MANIFEST)).output().expect("cargo starts");
    let error = String::from_utf8_lossy(&output.stderr);
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
    let packages = metadata["packages"].as_array().expect("packages").iter();
    let manifests = packages.map(|package| Path::new(package["manifest_path"].as_str().expect("a path")));
    manifests.map(|manifest| manifest.parent().expect("a folder").to_owned()).collect()
}

#[test]
fn packages_are_members_where_cargo_counts_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path).components().collect::<PathBuf>();
    for (number, (package, rest)) in PACKAGES.iter().enumerate() {
        let manifest = format!("[package]\nname = 'p{number}'\nversion = '0.1.0'\nedition = '2021'\n{rest}\n");
        write(&at(package).join(MANIFEST), &manifest);
        write(&at(package).join("src/lib.rs"), "");
    }
    let roots = ["", "inner", "beside/workspace", "home/git/checkouts/repository/1a2b3c4"].map(at);
    let members: Vec<(&PathBuf, Vec<PathBuf>)> = roots.iter().map(|root| (root, members(root))).collect();
    assert_eq!(members.iter().map(|(_, members)| members.len()).collect::<Vec<_>>(), [9, 2, 3, 1]);
    for (package, _) in PACKAGES {
        let by_cargo = members.iter().find(|(_, members)| members.contains(&at(package))).map(|(root, _)| *root);
        assert_eq!(root(&at(package)).as_ref(), by_cargo, "{package}");
    }
}

#[test]
fn a_dependency_has_the_name_in_the_manifest() {
    let folder = tempfile::tempdir().expect("a folder");
    let root =
        "[workspace]\nmembers = ['in']\n[workspace.dependencies]\nshared = { package = 'gpu-tuned', version = '1' }\n";
    write(&folder.path().join(MANIFEST), root);
    let package = folder.path().join("in");
    for (dependencies, name) in [
        ("", None),
        ("[dependencies]\ngpu-tuned = '1'\ntune = { package = 'gpu-tuned', version = '1' }", Some("gpu-tuned")),
        ("[dependencies]\ntune = { package = 'gpu-tuned', version = '1' }\nother = '1'", Some("tune")),
        ("[target.'cfg(unix)'.dev-dependencies.tune]\npackage = 'gpu-tuned'", Some("tune")),
        ("[dependencies]\nshared.workspace = true", Some("shared")),
        ("[dependencies]\nshared = '1'", None),
    ] {
        write(&package.join(MANIFEST), &format!("[package]\nname = 'in'\n{dependencies}\n"));
        assert_eq!(dependency_name(&package, "gpu-tuned").as_deref(), name, "{dependencies}");
    }
}

#[test]
fn files_are_those_of_the_workspace_of_which_the_package_is_a_member() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    write(&at(MANIFEST), "[workspace]\nmembers = ['in', 'vendor/*']\n");
    for package in ["in", "out", "vendor/copied"] {
        write(&at(package).join(MANIFEST), "[package]\n");
    }
    for file in ["Cargo.lock", "gpu-tuned.toml", "vendor/copied/Cargo.lock", "vendor/copied/.cargo-checksum.json"] {
        write(&at(file), "");
    }
    for (package, file) in [("in", "../gpu-tuned.toml"), ("out", "gpu-tuned.toml"), ("vendor/copied", "gpu-tuned.toml")]
    {
        assert_eq!(config_file(&at(package)), Path::new(file), "{package}");
        assert_eq!(cargo_lock(&at(package)), Some(at("Cargo.lock")), "{package}");
    }
    assert_eq!(manifests_above(&at("out")), [at(MANIFEST)]);
    assert!(manifests_above(&at("vendor/copied")).is_empty());
}

#[test]
fn manifests_that_may_appear_above_the_package_decide_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let package = folder.path().join("a/b");
    write(&package.join(MANIFEST), "[package]\n");
    let above = manifests_above(&package);
    for missing in [folder.path().join("a"), folder.path().to_owned()] {
        assert!(above.contains(&missing.join(MANIFEST)), "{above:?}");
    }
    assert!(!above.contains(&package.join(MANIFEST)));
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
    for other in ["[package.metadata.gpu_tuned]\nconfig-file = \"a\"", "[package.metadata]\ngpu-tuned = \"a.toml\""] {
        let found = parse(other).expect_err(other);
        assert!(found.contains("expected a table [package.metadata.gpu-tuned] with config-file"), "{found}");
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

#[cfg(unix)]
#[test]
fn a_path_from_a_linked_folder_leads_to_the_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    for real in ["project/package", "elsewhere/deep/target"] {
        fs::create_dir_all(at(real)).expect("a folder can be made");
    }
    std::os::unix::fs::symlink(at("elsewhere/deep/target"), at("project/target")).expect("a link");
    let file = at("project/package/gpu-tuned.toml");
    assert_eq!(relative(&file, &at("project/package/out")), Path::new("../gpu-tuned.toml"));
    for from in ["project/target", "project/target/new/out"] {
        // `..` of the link is the folder of its target.
        assert_eq!(relative(&file, &at(from)), file, "{from}");
    }
    fs::write(&file, "").expect("a file can be written");
    assert!(at("project/target").join(relative(&file, &at("project/target"))).exists());
}
