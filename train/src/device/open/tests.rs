use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{FloatDType, Tensor};
use tempfile::TempDir;

use super::{DIRECTORY, FILE, cpu, cuda_devices, default_float, locate};

#[test]
fn looking_for_devices_fails_at_most_with_an_error() {
    for device in cuda_devices().unwrap_or_default() {
        assert!(device.pci_address.is_some(), "{device}");
    }
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_program_without_cuda_says_so() {
    use crate::device::{OpenError, Place, open};
    assert!(matches!(open(&Place::Only, None), Err(OpenError::WithoutCuda)));
}

#[test]
fn the_default_float_is_set_once_and_may_be_repeated() {
    default_float(&cpu(), FloatDType::F32).expect("the CPU's own default");
    let _first = Tensor::<1>::zeros([1], &cpu());
    default_float(&cpu(), FloatDType::F32).expect("the same again");
    default_float(&cpu().autodiff(), FloatDType::F32).expect("the same hardware");
    assert!(default_float(&cpu(), FloatDType::F64).is_err());
}

#[test]
fn a_batch_from_the_plain_device_trains_weights_of_the_autodiff_one() {
    let weights = Tensor::<2>::ones([3, 1], &cpu().autodiff()).require_grad();
    let batch = Tensor::<2>::from_floats([[1.0, 2.0, 3.0]], &cpu());
    let gradients = batch.matmul(weights.clone()).sum().backward();
    let gradient = weights.grad(&gradients).expect("a gradient");
    assert_eq!(gradient.try_into_vec_as::<f32>().expect("a value"), [1.0, 2.0, 3.0]);
}

fn toolkit(file: Option<&str>) -> TempDir {
    let root = tempfile::tempdir().expect("a temporary folder");
    let directory = root.path().join(DIRECTORY);
    fs::create_dir_all(&directory).expect("a directory");
    if let Some(file) = file {
        fs::write(directory.join(file), "").expect("a file");
    }
    root
}

fn file(root: &Path) -> PathBuf {
    root.join(DIRECTORY).join(FILE)
}

#[test]
fn the_first_root_that_has_the_directory_counts() {
    let (empty, whole) = (toolkit(None), toolkit(Some(FILE)));
    let (empty, whole, absent) = (empty.path(), whole.path(), Path::new("/nonexistent"));
    assert_eq!(locate(None, &[absent, whole, empty]), Ok(file(whole)));
    assert_eq!(locate(None, &[empty, whole]), Err(vec![file(empty)]));
    assert_eq!(locate(None, &[absent]), Err(vec![file(absent)]));
}

#[test]
fn cuda_path_excludes_every_other_place() {
    let (whole, other) = (toolkit(Some(FILE)), toolkit(Some("libdevice.9.bc")));
    let (whole, other) = (whole.path(), other.path());
    assert_eq!(locate(Some(whole), &[]), Ok(file(whole)));
    assert_eq!(locate(Some(other), &[whole]), Err(vec![file(other)]));
}
