use burn::tensor::{Bool, BoolStore, DType, Device, Int, Tensor};

use super::{MicroBatch, UnequalParts, is_upload, upload};

fn batch(device: &Device) -> (Tensor<2>, Tensor<1, Int>, Vec<String>) {
    let images = Tensor::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device);
    let labels = Tensor::from_ints([0, 1, 2], device);
    (images, labels, ["a", "b", "c"].map(str::to_owned).to_vec())
}

#[test]
fn every_part_of_a_tuple_is_narrowed_to_the_same_samples() {
    let (images, labels, names) = batch(&Device::flex()).narrow(1..3);
    assert_eq!(images.into_data().try_to_vec::<f32>().unwrap(), [3.0, 4.0, 5.0, 6.0]);
    assert_eq!(labels.into_data().iter::<i64>().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(names, ["b", "c"]);
}

/// Field, samples, first and expected of the error.
fn unequal(batch: &impl MicroBatch) -> Option<(String, usize, String, usize)> {
    batch.check().err().map(|UnequalParts { field, samples, first, expected }| (field, samples, first, expected))
}

#[test]
fn parts_of_unequal_length_are_named_with_both_lengths() {
    let rows = |samples: usize| Tensor::<2>::zeros([samples, 3], &Device::flex());
    let named =
        |field: &str, samples, first: &str, expected| Some((field.to_owned(), samples, first.to_owned(), expected));
    assert_eq!(unequal(&(rows(4), rows(8))), named("1", 8, "0", 4));
    assert_eq!(unequal(&(rows(4), vec!["a"; 4], rows(3))), named("2", 3, "0", 4));
    assert_eq!(unequal(&(rows(1), rows(4))), named("1", 4, "0", 1), "one row is no broadcast");
    assert_eq!(unequal(&(rows(4), rows(0))), named("1", 0, "0", 4));
    // Nested: parts of an inner batch, the inner batch among the outer ones.
    assert_eq!(unequal(&((rows(4), rows(4)), (rows(4), vec![0; 2]))), named("1.1", 2, "1.0", 4));
    assert_eq!(unequal(&(rows(4), (rows(2), rows(2)))), named("1", 2, "0", 4));
    for equal in [0, 1, 4] {
        assert_eq!(unequal(&(rows(equal), vec!["a"; equal], (rows(equal), rows(equal)))), None);
    }
    assert_eq!(unequal(&(rows(4),)), None);
}

#[test]
fn the_message_has_the_lengths_and_the_remedies() {
    let error = (vec![0; 4], vec![0; 10]).check().unwrap_err().to_string();
    for part in ["`batch.1` has 10 elements", "`batch.0` has 4", "padded tensor", "`Vec`", "`#[micro_batch(shared)]`"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_batch_is_on_a_device_as_if_it_had_been_made_there() {
    let plain = Device::flex();
    for device in [plain.clone(), plain.clone().autodiff(), plain.clone().autodiff().gradient_checkpointing()] {
        let (images, labels, _) = batch(&plain.clone().autodiff()).on_device(&device);
        let made = batch(&device);
        assert_eq!(images.gradient_checkpointing_strategy(), made.0.gradient_checkpointing_strategy());
        assert_eq!(labels.gradient_checkpointing_strategy(), made.1.gradient_checkpointing_strategy());
    }
}

#[test]
fn real_numbers_get_the_float_type_of_the_device() {
    let device = Device::flex();
    let doubles = Tensor::<1>::from_data([1.5, 2.5], (&device, DType::F64));
    assert_eq!(MicroBatch::on_device(doubles, &device).dtype(), DType::F32);
}

/// Uploads within one backend: the data pass through the calls of an upload to another.
#[test]
fn what_is_uploaded_keeps_its_values_in_the_type_of_the_device() {
    let device = Device::flex();
    let doubles = Tensor::<2>::from_data([[1.5, 2.5], [3.5, 4.5]], (&device, DType::F64)).transpose();
    let floats = upload(doubles, &device, DType::F32);
    assert_eq!(floats.dtype(), DType::F32);
    assert_eq!(floats.into_data().try_to_vec::<f32>().unwrap(), [1.5, 3.5, 2.5, 4.5]);
    let ints = upload(Tensor::<1, Int>::from_ints([7, -8], &device), &device, DType::I32);
    assert_eq!((ints.dtype(), ints.into_data().try_to_vec::<i32>().unwrap()), (DType::I32, vec![7, -8]));
    let bools = Tensor::<1, Bool>::from_data([true, false], &device);
    let stored = upload(bools, &device, DType::Bool(BoolStore::U8));
    assert_eq!(stored.into_data().iter::<bool>().collect::<Vec<_>>(), [true, false]);
}

#[test]
fn only_what_leaves_the_host_is_an_upload() {
    let device = Device::flex();
    assert!(!is_upload(&device, &device.clone().autodiff()));
}

#[test]
fn stored_samples_stay_in_their_memory() {
    let device = Device::flex();
    let (images, labels, _) = batch(&device.clone().autodiff());
    let kept = (images.clone(), labels.clone()).store(None).expect("tensors");
    assert!(!kept.0.is_autodiff() && kept.0.can_mut() && kept.1.can_mut());
    let other = (images.clone().mul_scalar(2.0), labels.clone().add_scalar(1));
    let kept = other.store(Some(kept)).expect("samples of the same shape");
    assert_eq!(kept.0.to_data().try_to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(kept.1.to_data().iter::<i64>().collect::<Vec<_>>(), [1, 2, 3]);
    assert!(kept.0.can_mut());

    // In memory that something else reads, of another shape, of no tensors.
    let reader = kept.0.clone();
    assert!((images.clone(), labels.clone()).store(Some(kept)).is_none());
    assert_eq!(reader.to_data().try_to_vec::<f32>().unwrap()[..1], [2.0]);
    let fewer = (images.clone(), labels.clone()).narrow(0..2).store(None);
    assert!((images, labels).store(fewer).is_none());
    assert!(vec!["a"].store(None).is_none());
}

#[test]
fn bytes_are_those_of_tensors_on_the_device() {
    let device = Device::flex();
    let pixels = Tensor::<1, Int>::from_data([1_u8, 2, 3], (&device, DType::U8));
    let halves = Tensor::<1>::from_data([1.5, 2.5, 3.5], (&device, DType::F16));
    let flags = Tensor::<1, Bool>::from_data([true, false, true], &device);
    let weight = (pixels.clone(), halves.clone(), flags.clone(), vec!["a"; 3]).bytes(&device);
    let there = (pixels, halves, flags).on_device(&device);
    let sizes = [there.0.dtype(), there.1.dtype(), there.2.dtype()].map(|dtype| dtype.size());
    assert_eq!((weight, sizes[1]), (3 * sizes.iter().sum::<usize>(), 4));
    assert!(sizes[0] > 1);
}
