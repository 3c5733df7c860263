//! Archives of kernel caches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::{Value, json};

use super::Machine;

const BUNDLE: &str = "GPU_TUNED_WARM_BUNDLE";

#[test]
fn a_bundle_of_one_machine_fills_the_caches_of_another_once() {
    let (maker, machine) = (Machine::new(), Machine::new());
    let saved = maker.run("save", &[]);
    assert_eq!(saved["entries"], 3, "records stay at home: {saved:#}");
    let file = PathBuf::from(saved["path"].as_str().expect("a path"));
    let folder = file.parent().expect("a folder");
    assert_eq!(fs::read_dir(folder).expect("a folder").count(), 1, "drafts are removed");

    let first = machine.run("begin", &[(BUNDLE, folder)]);
    assert_eq!((&first["tuned"], &first["kernel"]), (&json!("the third is fastest"), &json!("PTX")), "{first:#}");
    assert_eq!(first["spoilt"], Value::Null, "it was chosen without memory");
    let bundle = &first["warm"]["bundle"];
    assert_eq!((&bundle["bundle"], &bundle["entries"], &bundle["kernels"]), (&json!("taken"), &json!(2), &json!(true)));
    let second = machine.run("begin", &[(BUNDLE, folder)]);
    assert_eq!(second["warm"]["bundle"]["entries"], 0);
    // On other GPUs of the machine it is taken for them.
    let others = machine.run("begin-on 1 2", &[(BUNDLE, folder)]);
    assert_eq!(others["tuned_on_the_third"], "the third is fastest", "{others:#}");

    // Beside Cargo.toml it is found without being named, and in the current folder alone it is not.
    let fresh = Machine::new();
    let found = fresh.work().join("gpu-tuned.warm");
    fs::create_dir(&found).expect("a folder");
    fs::copy(&file, found.join(file.file_name().expect("a name"))).expect("it is copied");
    assert_eq!(fresh.run("begin", &[])["warm"]["bundle"], Value::Null);
    let package = [("CARGO_MANIFEST_DIR", fresh.work())];
    let package = package.each_ref().map(|(name, path)| (*name, path.as_path()));
    assert_eq!(fresh.run("begin", &package)["kernel"], "PTX");
    let elsewhere = fresh.run("begin-elsewhere", &package);
    let because = elsewhere["warm"]["bundle"]["because"].as_str().expect("a reason");
    assert!(because.starts_with("none of its archives is gpu-tuned-nvidia-h200-sm90-driver-550.1-"), "{because}");
}

#[test]
fn only_the_pinned_archive_is_used() {
    let (maker, machine) = (Machine::new(), Machine::new());
    let saved = maker.run("save", &[]);
    let (file, digest) = (saved["path"].as_str().expect("a path"), saved["sha256"].as_str().expect("a digest"));
    let printed = Command::new("sha256sum").arg(file).output().expect("sha256sum is there");
    assert!(String::from_utf8_lossy(&printed.stdout).starts_with(digest), "{digest}");
    let other = digest.replace(|digit: char| digit.is_ascii_digit(), "0");
    let with =
        |digest: &str| machine.run("begin", &[(BUNDLE, Path::new(file)), ("GPU_TUNED_WARM_SHA256", Path::new(digest))]);
    let refused = with(&other);
    let because = refused["warm"]["bundle"]["because"].as_str().expect("a reason");
    assert_eq!(because, format!("its SHA-256 is {digest}, and GPU_TUNED_WARM_SHA256 is {other}"));
    assert_eq!(refused["kernel"], Value::Null);
    assert_eq!(with(digest)["kernel"], "PTX");
    // Also where it was taken before.
    assert_eq!(with(&other)["warm"]["bundle"]["bundle"], "ignored");
}

#[test]
fn processes_that_start_at_once_share_the_caches() {
    let (maker, machine) = (Machine::new(), Machine::new());
    let file = PathBuf::from(maker.run("save", &[])["path"].as_str().expect("a path"));
    let begun: Vec<_> = thread::scope(|scope| {
        let start = || machine.run("begin", &[(BUNDLE, file.as_path())]);
        let started: Vec<_> = (0..6).map(|_| scope.spawn(start)).collect();
        started.into_iter().map(|process| process.join().expect("it ends")).collect()
    });
    for begun in &begun {
        assert_eq!((&begun["warm"]["caches"], &begun["kernel"]), (&json!("on"), &json!("PTX")), "{begun:#}");
        assert_eq!(begun["warm"]["bundle"]["bundle"], "taken", "{begun:#}");
    }
    // Each entry was new to one of them.
    let new: u64 = begun.iter().filter_map(|begun| begun["warm"]["bundle"]["entries"].as_u64()).sum();
    assert_eq!(new, 2, "{begun:#?}");
}

#[test]
fn a_bundle_that_is_of_no_use_is_ignored_with_the_reason() {
    let (maker, machine) = (Machine::new(), Machine::new());
    let file = PathBuf::from(maker.run("save", &[])["path"].as_str().expect("a path"));
    let whole = fs::read(&file).expect("a bundle");
    let reason = |task: &str, contents: &[u8]| {
        let copy = machine.work().join("copy.bundle");
        fs::write(&copy, contents).expect("it is written");
        let begun = machine.run(task, &[(BUNDLE, copy.as_path())]);
        assert_eq!((&begun["warm"]["caches"], &begun["tuned"]), (&json!("on"), &Value::Null), "{begun:#}");
        begun["warm"]["bundle"]["because"].as_str().expect("a reason").to_owned()
    };
    assert_eq!(reason("begin-elsewhere", &whole), "made with driver 580.95.05, here it is 550.1");
    assert!(reason("begin", &whole[..whole.len() - 1]).starts_with("it is damaged: "));
    assert_eq!(reason("begin", &whole[..20]), "it is no kernel cache archive of gpu-tuned");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("bytes") ^= 1;
    assert_eq!(reason("begin", &flipped), "it is damaged: its checksum does not match");
    assert_eq!(reason("begin", b""), "it is no kernel cache archive of gpu-tuned");

    let missing = machine.run("begin", &[(BUNDLE, Path::new("/nowhere/one.bundle"))]);
    assert!(missing["warm"]["bundle"]["because"].as_str().expect("a reason").starts_with("it cannot be read: "));
}

#[test]
fn the_kernels_of_another_build_are_left_out_and_its_choices_are_taken() {
    let (maker, machine) = (Machine::new(), Machine::new());
    let file = PathBuf::from(maker.run("save", &[])["path"].as_str().expect("a path"));
    let bytes = fs::read(&file).expect("a bundle");
    let end = bytes.iter().position(|byte| *byte == b'\n').expect("a first line");
    let mut header: Value = serde_json::from_slice(&bytes[..end]).expect("JSON");
    header["build"] = json!("0123456789abcdef");
    fs::write(&file, [header.to_string().as_bytes(), &bytes[end..]].concat()).expect("it is written");
    let begun = machine.run("begin", &[(BUNDLE, file.as_path())]);
    assert_eq!((&begun["tuned"], &begun["kernel"]), (&json!("the third is fastest"), &Value::Null), "{begun:#}");
    assert!(begun["said"].as_str().expect("a report").ends_with("of another build, and left out"));
}

#[test]
fn no_bundle_is_made_without_a_gpu() {
    let machine = Machine::new();
    let bundles = machine.work().join("gpu-tuned.warm");
    let refused = machine.run("bundle-on-cpu", &[("GPU_TUNED_WARM", &bundles)]);
    assert!(
        refused.as_str().expect("a reason").starts_with("there is no GPU, so there are no kernels to archive"),
        "{refused}"
    );
    assert!(!bundles.exists());
}

#[test]
fn nothing_is_no_bundle() {
    assert_eq!(Machine::new().run("save-nothing", &[]), "nothing was compiled or tuned");
}
