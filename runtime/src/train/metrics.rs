//! Metrics for Burn's training loop: of the GPU, of the session's steps, and of gradient values.
//!
//! [`Session::metrics`](crate::Session::metrics) returns them. Register them like Burn's own, for any model, renderer and logger.
//!
//! | metric | registered with | unit | of | mean of an epoch |
//! |---|---|---|---|---|
//! | [`GpuMemory`] | `metric_train_numeric` | GiB | the GPU of the session | over samples, at most five a second |
//! | [`GpuUtilisation`] | `metric_train_numeric` | % | the same | the same |
//! | [`MicroBatch`] | `metric_train_numeric` | samples | each step | over steps |
//! | [`LossScale`] | `metric_train_numeric` | 1 | each step | over steps |
//! | [`GradientNorm`] | `metric_train_numeric` | that of the loss over that of the parameters | each step | over steps in which it is finite |
//! | [`GradientReport`] | `metric_train` | values | each `every`th step | none |
//!
//! ```
//! # use burn::data::dataloader::batcher::Batcher;
//! # use burn::data::dataloader::DataLoaderBuilder;
//! # use burn::data::dataset::InMemDataset;
//! # use burn::module::Module;
//! # use burn::nn::{Linear, LinearConfig};
//! # use burn::optim::SgdConfig;
//! # use burn::tensor::{Device, Tensor};
//! # use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};
//! # use burn::train::metric::LossMetric;
//! # use gpu_tuned::gpu_tuned;
//! #[gpu_tuned(mlp(widths = [1, 1]), global_batch = 4, target = "generic")]
//! #[derive(Clone, Debug)]
//! struct Training {
//!     #[tuned]
//!     batch_size: usize,
//! }
//! # #[derive(Clone)]
//! # struct Numbers;
//! # impl Batcher<f32, Tensor<2>> for Numbers {
//! #     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<2> {
//! #         Tensor::<1>::from_floats(&items[..], device).unsqueeze_dim(1)
//! #     }
//! # }
//! # #[derive(Module, Debug)]
//! # struct Model {
//! #     layer: Linear,
//! # }
//! # impl Model {
//! #     fn loss(&self, input: Tensor<2>) -> RegressionOutput {
//! #         let output = self.layer.forward(input.clone());
//! #         RegressionOutput::new((output.clone() - input.clone()).square().mean(), output, input)
//! #     }
//! # }
//! # impl TrainStep for Model {
//! #     type Input = Tensor<2>;
//! #     type Output = RegressionOutput;
//! #     fn step(&self, input: Tensor<2>) -> TrainOutput<RegressionOutput> {
//! #         let item = self.loss(input);
//! #         TrainOutput::new(self, item.loss.backward(), item)
//! #     }
//! # }
//! # impl InferenceStep for Model {
//! #     type Input = Tensor<2>;
//! #     type Output = RegressionOutput;
//! #     fn step(&self, input: Tensor<2>) -> RegressionOutput {
//! #         self.loss(input)
//! #     }
//! # }
//!
//! let session = gpu_tuned::Options::default().cpu().start(Training::default())?;
//! let metrics = session.metrics();
//! # let device = session.device();
//! # let loader = |device: &Device| {
//! #     let dataset = InMemDataset::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
//! #     DataLoaderBuilder::new(Numbers).batch_size(4).set_device(device.clone()).build(dataset)
//! # };
//! # let (train, valid) = (loader(&device), loader(&session.inner_device()));
//! # let model = Model { layer: LinearConfig::new(1, 1).init(&device) };
//! # let folder = tempfile::tempdir()?;
//! # let directory = folder.path();
//! let training = SupervisedTraining::new(directory, train, valid)
//!     .metric_train_numeric(LossMetric::new())
//!     .metric_train_numeric(metrics.gradient_norm())
//!     .metric_train_numeric(metrics.micro_batch())
//!     .metric_train_numeric(metrics.gpu_memory())
//!     .metric_train_numeric(metrics.gpu_utilisation())
//!     .metric_train(metrics.gradient_health(100))
//!     .with_training_strategy(session.strategy()?)
//! #     .with_application_logger(None)
//!     .num_epochs(1);
//! let trained = training.launch(Learner::new(model, SgdConfig::new().init(), 0.01));
//! assert!(trained.error.is_none());
//! assert!(directory.join("train/epoch-1/Gradient_Norm.log").exists());
//! assert!(!directory.join("train/epoch-1/GPU_Memory.log").exists(), "no GPU");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Costs
//!
//! A step's results are read from the device with the step's loss, as without metrics; metrics take them from a history
//! on the host. A step counts once, whatever its number of micro-batches. The GPU is sampled on the thread that Burn's
//! metrics run on. Only counts of gradient values take device time, and one more read, in the steps that count: see
//! [`gradient_health`](super::gradient_health()), which also works in manual loops.
//!
//! # Missing values
//!
//! A metric without a value shows the reason, and logs it once. This is the case on the CPU, without a driver, without
//! feature `nvml`, and for values that the driver does not report (utilisation of a MIG slice). Nothing is plotted or
//! written to its file. The same applies to metrics of steps under another strategy, and to validation items.

#[doc(inline)]
pub use gpu_tuned_train::train::metrics::{
    Gpu, GpuMemory, GpuUtilisation, GradientNorm, GradientReport, LossScale, Metrics, MicroBatch, RecordedMetrics,
};
