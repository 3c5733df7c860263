use std::fs;

use fake_cublaslt::{Behaviour, Fake};
use fake_cudnn::Fake as FakeCudnn;

use super::*;

fn file(root: &Path, path: &str) -> PathBuf {
    let file = root.join(path);
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    fs::write(&file, "no library").expect("a file");
    file
}

#[test]
fn wheels_of_the_newest_python_come_after_toolkits() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    let old = file(root, "env/lib/python3.9/site-packages/nvidia/cublas/lib/libcublasLt.so.12");
    let new = file(root, "env/lib/python3.13/site-packages/nvidia/cu13/lib/libcublasLt.so.13");
    let toolkit = file(root, "cuda/lib64/libcublasLt.so.12");
    let places = Places { folders: None, toolkits: vec![root.join("cuda")], pythons: vec![root.join("env")] };
    let found = candidates(&CUBLASLT, &places);
    assert_eq!(found[..2], ["libcublasLt.so.13", "libcublasLt.so.12"].map(PathBuf::from));
    assert_eq!(found[2..], [toolkit, new, old]);
}

#[test]
fn named_folders_replace_all_places() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    file(root, "cuda/lib64/libcublasLt.so.13");
    let named = file(root, "mine/libcublasLt.so.12");
    let places =
        Places { folders: Some(vec![root.join("mine")]), toolkits: vec![root.join("cuda")], ..Places::default() };
    assert_eq!(candidates(&CUBLASLT, &places), [named]);
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let root = tempfile::tempdir().expect("a folder");
    let named = file(root.path(), "libcublasLt.so.13");
    let places = Places { folders: Some(vec![root.path().to_owned()]), ..Places::default() };
    let failure = first(&CUBLASLT, &places, CublasLt::load).expect_err("no library");
    let message = failure.to_string();
    assert_eq!((failure.searched(), failure.failures().count()), (&[root.path().display().to_string()][..], 1));
    assert!(message.contains(&named.display().to_string()), "{message}");
    assert!(message.contains("GPU_TUNED_LIBRARIES"), "{message}");
}

#[test]
fn nothing_found_has_advice() {
    let places = Places { folders: Some(Vec::new()), ..Places::default() };
    let message = first(&CUBLASLT, &places, CublasLt::load).expect_err("no library").to_string();
    assert!(message.contains("pip install nvidia-cublas"), "{message}");
}

#[test]
fn places_are_named_in_the_order_of_the_search() {
    let places = Places { folders: None, toolkits: vec!["/usr/local/cuda".into()], pythons: vec!["/usr".into()] };
    assert_eq!(places.names(), ["the system's paths", "/usr/local/cuda", "/usr/lib/python3*"]);
}

#[test]
fn a_library_that_is_too_old_is_passed_over() {
    let [old, new] = [Fake::new(), Fake::new()];
    let _loaded = CublasLt::load(&old.path()).expect("a library");
    old.behave(&Behaviour { version: 110_000, ..Behaviour::default() });
    let folders = |folders: &[&Fake]| Places {
        folders: Some(folders.iter().map(|fake| fake.folder().to_owned()).collect()),
        ..Places::default()
    };
    assert_eq!(first(&CUBLASLT, &folders(&[&old, &new]), CublasLt::load).expect("a library").path(), new.path());
    let failure = first(&CUBLASLT, &folders(&[&old]), CublasLt::load).expect_err("no library");
    let failures: Vec<_> = failure.failures().collect();
    let expected = LoadError::Version { library: "cuBLASLt", path: old.path(), found: 110_000, oldest: 120_000 };
    assert_eq!(failures, [&expected]);
}

#[test]
fn cudnn_is_searched_in_its_own_wheel_and_beside_the_toolkit() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    let wheel = file(root, "env/lib/python3.12/site-packages/nvidia/cudnn/lib/libcudnn.so.9");
    let toolkit = file(root, "cuda/lib64/libcudnn.so.9");
    // Version 8 has other functions.
    file(root, "cuda/lib64/libcudnn.so.8");
    let places = Places { folders: None, toolkits: vec![root.join("cuda")], pythons: vec![root.join("env")] };
    assert_eq!(candidates(&CUDNN, &places), ["libcudnn.so.9".into(), toolkit, wheel]);
}

#[test]
fn nccl_is_searched_by_both_of_its_names_and_in_its_wheel() {
    let root = tempfile::tempdir().expect("a folder");
    let wheel = file(root.path(), "env/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2");
    let places = Places { pythons: vec![root.path().join("env")], ..Places::default() };
    assert_eq!(candidates(&NCCL, &places), ["libnccl.so.2".into(), "libnccl.so".into(), wheel]);
}

#[test]
fn each_library_is_found_by_its_name_in_one_folder() {
    let (cublaslt, cudnn) = (Fake::new(), FakeCudnn::new());
    let folders = vec![cublaslt.folder().to_owned(), cudnn.folder().to_owned()];
    let places = Places { folders: Some(folders), ..Places::default() };
    assert_eq!(first(&CUDNN, &places, Cudnn::load).expect("cuDNN").path(), cudnn.path());
    assert_eq!(first(&CUBLASLT, &places, CublasLt::load).expect("cuBLASLt").path(), cublaslt.path());
}

#[test]
fn a_missing_cudnn_has_its_own_advice() {
    let places = Places { folders: Some(Vec::new()), ..Places::default() };
    let failure = first(&CUDNN, &places, Cudnn::load).expect_err("no library");
    let message = failure.to_string();
    assert!(message.starts_with("cuDNN was not found (no file of its name); "), "{message}");
    assert!(message.contains("pip install nvidia-cudnn-cu13") && !message.contains("cublas"), "{message}");
}

#[test]
fn a_cudnn_for_another_cuda_than_cublaslts_is_passed_over() {
    let fake = FakeCudnn::new();
    let places = Places { folders: Some(vec![fake.folder().to_owned()]), ..Places::default() };
    let found = |loaded| first(&CUDNN, &places, |path| for_cuda(Cudnn::load(path)?, loaded));
    assert_eq!(found(Some(13)).expect("the same").cuda(), 13);
    assert!(found(None).is_ok());
    let failure = found(Some(12)).expect_err("another version");
    let message = format!("{} is for CUDA 13, and the loaded cuBLASLt for CUDA 12", fake.path().display());
    assert_eq!(failure.failures().map(ToString::to_string).collect::<Vec<_>>(), [message]);
}
