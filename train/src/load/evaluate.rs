use burn::data::dataloader::DataLoader;
use burn::data::dataset::DatasetError;
use burn::tensor::kind::Autodiff;
use burn::tensor::{ExecutionError, Tensor, TensorData};

/// Why an evaluation gave no predictions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The loader has no batches.
    #[error("there is nothing to evaluate: the loader has no batches")]
    Empty,
    /// A batch could not be loaded.
    #[error("a batch could not be loaded")]
    Load(#[source] DatasetError),
    /// The device failed, or ran out of memory, in any of the batches: that is learned when they are read.
    #[error("the predictions could not be read from the device")]
    Read(#[source] ExecutionError),
}

/// Collects the results of `predict` for all batches, in the loader's order along the first dimension.
///
/// Predictions stay on the device and are read once, at the end: a read after each batch would make the device wait for
/// the host as often. They take their bytes there twice while they are joined, so reduce them as far as the metric
/// allows (classes rather than logits). What they were computed from is not kept.
///
/// Return one row a sample: a mean over each batch depends on the planned `eval_batch_size`, and the last batch is smaller.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::data::dataloader::batcher::Batcher;
/// use burn::data::dataset::InMemDataset;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::load::{PrefetchLoader, evaluate};
///
/// #[derive(Clone)]
/// struct Numbers;
///
/// impl Batcher<f32, Tensor<1>> for Numbers {
///     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
///         Tensor::from_floats(&items[..], device)
///     }
/// }
///
/// let dataset = InMemDataset::new(vec![1.0, 2.0, 3.0]);
/// let loader = PrefetchLoader::new(dataset, Numbers, 2).device(Device::flex());
/// let doubled = evaluate(&loader, |batch| batch * 2.0)?;
/// assert_eq!(doubled.try_to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`EvaluateError`].
///
/// # Panics
///
/// If predictions differ in another dimension than the first, and whenever `predict` does.
pub fn evaluate<B, const D: usize, K: Autodiff>(
    loader: &(impl DataLoader<B> + ?Sized),
    mut predict: impl FnMut(B) -> Tensor<D, K>,
) -> Result<TensorData, EvaluateError> {
    let predictions: Vec<_> = loader
        .iter()
        .map(|batch| Ok(predict(batch.map_err(EvaluateError::Load)?).without_autodiff()))
        .collect::<Result<_, _>>()?;
    if predictions.is_empty() {
        return Err(EvaluateError::Empty);
    }
    Tensor::cat(predictions, 0).try_into_data().map_err(EvaluateError::Read)
}
