use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
use burn::tensor::{Device, Int, Tensor, TensorData};
use networks::Rows;

use super::{PrefetchLoader, WORKERS};
use crate::load::{EvaluateError, evaluate};

fn rows(items: usize, workers: usize, device: &Device) -> PrefetchLoader<[f32; 1], Tensor<2>> {
    let items = (0..items).map(|item| [item as f32 / 7.0]).collect();
    PrefetchLoader::new(InMemDataset::new(items), Rows::default(), 4).num_workers(workers).device(device.clone())
}

fn predict(batch: Tensor<2>) -> Tensor<2> {
    let device = batch.device();
    batch.matmul(Tensor::from_floats([[1.0, -2.0, 0.5]], &device)).exp()
}

#[test]
fn predictions_are_those_that_are_read_after_each_batch() {
    for device in [Device::flex(), Device::flex().autodiff()] {
        for workers in WORKERS {
            let loader = rows(10, workers, &device);
            let batches = loader.iter().map(|batch| predict(batch.unwrap()).into_data());
            let expected: Vec<f32> = batches.flat_map(|data| data.try_to_vec::<f32>().unwrap()).collect();
            let predictions = evaluate(&loader, predict).unwrap();
            assert_eq!(predictions, TensorData::new(expected, [10, 3]));
        }
    }
}

#[test]
fn classes_are_predictions_too() {
    let loader = rows(5, 1, &Device::flex()).build();
    let classes = evaluate(&*loader, |batch| -> Tensor<1, Int> { predict(batch).argmax(1).squeeze_dim(1) }).unwrap();
    assert_eq!(classes.iter::<i64>().collect::<Vec<_>>().len(), 5);
}

struct Lost;

impl Dataset<[f32; 1]> for Lost {
    fn get(&self, _: usize) -> Result<[f32; 1], DatasetError> {
        Err(DatasetError::new(std::io::Error::other("lost")))
    }

    fn len(&self) -> usize {
        3
    }
}

#[test]
fn what_cannot_be_evaluated_is_an_error() {
    let device = Device::flex();
    assert!(matches!(evaluate(&rows(0, 1, &device), predict), Err(EvaluateError::Empty)));
    let lost = PrefetchLoader::new(Lost, Rows::default(), 2).device(device);
    assert!(matches!(evaluate(&lost, predict), Err(EvaluateError::Load(_))));
}
