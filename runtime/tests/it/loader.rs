//! Batches of one's own, and the loaders of a session.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Int, Tensor};
use gpu_tuned::load::evaluate;
use gpu_tuned::train::UnequalParts;
use gpu_tuned::{MicroBatch, Options, Session};

config! {
    Config { #[tuned] batch_size: usize, #[tuned] eval_batch_size: usize, #[tuned] num_workers: usize },
    mlp(widths = [4, 4]), global_batch = 7, target = "generic"
}

config! { WholeSteps, mlp(widths = [4, 4]), global_batch = 7, drop_last = true, target = "generic" }

fn start(change: impl FnOnce(&mut Config)) -> Session<Config> {
    let mut config = Config::default();
    change(&mut config);
    Options::default().cpu().start(config).expect("there is a CPU")
}

#[derive(Clone, Debug, MicroBatch)]
struct Samples {
    images: Tensor<1>,
    #[micro_batch(shared)]
    mask: Tensor<1>,
    labels: Vec<String>,
}

struct Numbers;

impl Batcher<f32, Samples> for Numbers {
    fn batch(&self, items: Vec<f32>, device: &Device) -> Samples {
        Samples {
            images: Tensor::from_floats(&items[..], device),
            mask: Tensor::zeros([3], device),
            labels: items.iter().map(f32::to_string).collect(),
        }
    }
}

fn numbers(items: usize) -> InMemDataset<f32> {
    InMemDataset::new((0..items).map(|item| item as f32).collect())
}

#[test]
fn a_derived_batch_is_cut_as_its_fields_are() {
    let device = Device::flex();
    let batch = Numbers.batch(vec![1.0, 2.0, 3.0, 4.0], &device);
    let part = batch.narrow(1..3);
    assert_eq!((batch.len(), part.len(), batch.bytes(&device), part.bytes(&device)), (4, 2, 16, 8));
    assert_eq!(part.images.into_data(), batch.images.clone().narrow(0, 1, 2).into_data());
    assert_eq!((part.mask.dims(), part.labels), ([3], vec!["2".to_owned(), "3".to_owned()]));

    let moved = batch.on_device(&device.autodiff());
    assert!(moved.images.device().is_autodiff() && !moved.mask.device().is_autodiff());
}

/// Boxes in images, as many as each image has.
#[derive(Clone, MicroBatch)]
struct Boxes<T> {
    corners: T,
    labels: Tensor<1, Int>,
}

#[derive(Clone, MicroBatch)]
struct Scenes<T> {
    images: Tensor<2>,
    #[micro_batch(shared)]
    anchors: Tensor<2>,
    boxes: Boxes<T>,
}

#[test]
fn boxes_need_one_element_an_image() {
    let device = Device::flex();
    let rows = |rows| Tensor::<2>::ones([rows, 4], &device);
    let labels = |labels: usize| Tensor::<1, Int>::zeros([labels], &device);
    let scenes = |corners, labels| Scenes { images: rows(4), anchors: rows(9), boxes: Boxes { corners, labels } };
    let error = |corners, labels| {
        let UnequalParts { field, samples, first, expected, .. } = scenes(corners, labels).check().unwrap_err();
        (field, samples, first, expected)
    };
    let of = |field: &str, samples, first: &str, expected| (field.to_owned(), samples, first.to_owned(), expected);
    assert_eq!(error(rows(10), labels(10)), of("boxes", 10, "images", 4));
    assert_eq!(error(rows(10), labels(4)), of("boxes.labels", 4, "boxes.corners", 10));
    // The remedies: a padded tensor, a vector with the boxes of each image.
    assert_eq!(scenes(rows(4), labels(4)).check(), Ok(()));
    let listed = Boxes { corners: [3, 0, 5, 2].map(rows).to_vec(), labels: labels(4) };
    let listed = Scenes { images: rows(4), anchors: rows(9), boxes: listed };
    assert_eq!(listed.check(), Ok(()));
    let corners = listed.narrow(2..4).boxes.corners;
    assert_eq!(corners.iter().map(|boxes| boxes.dims()[0]).collect::<Vec<_>>(), [5, 2]);
}

/// The loss moves the tensors of a vector to its device.
#[test]
fn samples_of_unequal_length_train_in_any_micro_batch() {
    let norms = [7, 4, 1].map(|micro_batch| {
        let session = start(|config| config.batch_size = micro_batch);
        let device = session.device();
        device.seed(7);
        let model = LinearConfig::new(4, 1).init(&device);
        let mut trainer = session.trainer(model, AdamWConfig::new().init()).unwrap();
        let boxes = |rows: i64| Tensor::<1, Int>::arange(0..4 * rows, &Device::flex()).float().reshape([-1, 4]);
        let listed = [3, 1, 5, 2, 1, 4, 2].map(boxes).to_vec();
        let loss = |model: &Linear, images: Vec<Tensor<2>>| {
            let of_image = |boxes: Tensor<2>| model.forward(boxes.to_device(&device)).mean();
            Tensor::cat(images.into_iter().map(of_image).collect(), 0).mean()
        };
        let step = trainer.step(0.1, listed, loss).unwrap();
        assert_eq!((step.samples, step.micro_batch), (7, micro_batch));
        step.gradient_norm
    });
    assert!(norms.iter().all(|norm| (norm - norms[0]).abs() < 1e-5 * norms[0]), "{norms:?}");
}

#[test]
fn a_batch_is_what_a_rank_trains_on_in_a_step() {
    for workers in [0, 2] {
        let session = start(|config| config.num_workers = workers);
        let loader = session.loader(numbers(20), Numbers);
        let sizes: Vec<_> = loader.iter().map(|batch| batch.unwrap().len()).collect();
        assert_eq!(sizes, [7, 7, 6]);
    }
    let session = Options::default().cpu().start(WholeSteps::default()).unwrap();
    let sizes: Vec<_> = session.loader(numbers(20), Numbers).iter().map(|batch| batch.unwrap().len()).collect();
    assert_eq!(sizes, [7, 7]);
}

/// Tensors on the session's device have autodiff; tensors on the host have none.
#[test]
fn steps_of_many_micro_batches_stay_on_the_host() {
    for (batch_size, is_uploaded) in [(7, true), (4, true), (3, false), (1, false)] {
        let session = start(|config| config.batch_size = batch_size);
        let ahead = session.plan().settings.prefetch_depth * session.schedule().micro_batch;
        assert_eq!(ahead >= 7, is_uploaded);
        for batch in session.loader(numbers(20), Numbers).iter() {
            let batch = batch.unwrap();
            let fits = batch.len() as u64 <= ahead;
            assert_eq!(batch.images.device().is_autodiff(), fits, "{} of {ahead}", batch.len());
        }
    }
}

#[test]
fn an_evaluation_sees_everything_in_order_without_autodiff() {
    let session = start(|config| config.eval_batch_size = 6);
    let loader = session.eval_loader(numbers(20), Numbers);
    let sizes = loader.iter().map(|batch| batch.unwrap()).map(|batch| {
        assert!(!batch.images.device().is_autodiff());
        batch.len()
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [6, 6, 6, 2]);
    let doubled = evaluate(&loader, |batch| batch.images * 2.0).unwrap();
    assert!(doubled.try_to_vec::<f32>().unwrap().into_iter().eq((0..20).map(|item| (item * 2) as f32)));
}
