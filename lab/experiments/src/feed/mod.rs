//! Measures whether loaders keep the device busy with slow sample preparation, and how much memory they use on the
//! device.

mod data;
mod report;

use std::sync::Arc;
use std::time::{Duration, Instant};

use burn::{
    data::dataloader::{DataLoader, DataLoaderBuilder},
    nn::loss::CrossEntropyLossConfig,
    optim::AdamWConfig,
    tensor::{Device, Tensor},
};
use clap::Args;
use gpu_tuned::{MicroBatch, Session, gpu_tuned, train::Trainer};
use gpu_tuned_core::workload::Block;
#[cfg(feature = "cuda")]
use hardware_tests::{card::Card, memory::Usage};
use hardware_tests::{
    device::{release, started},
    line::say,
};
use models_tests::{
    convnet::{self, Convnet},
    work::Work,
};

use data::{Census, Fetched, Images, Pair, Stack};
use report::{Fed, Feeder, least};

/// Preparation time of a sample on one host core, in milliseconds.
const HOST_MS: f64 = 5.0;
const CLASSES: usize = 10;

/// Eight convolutions of 48 channels; the number of workers follows from the preparation time.
#[gpu_tuned(
    convnet(classes = 10, stages = [[48, 8]], batch_statistics = true),
    host_ms_per_sample = 5.0, global_batch = 64, target = "h200"
)]
#[derive(Clone, Debug)]
struct Config {
    #[tuned(dim = image, default = 128)]
    image: usize,
    #[tuned]
    batch_size: usize,
    #[tuned]
    num_workers: usize,
}

/// Options of `feed`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Optimizer steps of a loader in a round
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(3..))]
    steps: u32,
    /// Rounds in which a batch that is there, the library's loader and Burn's take turns
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Workers, instead of those planned
    #[arg(long)]
    workers: Option<usize>,
    /// Side of the images
    #[arg(long, default_value_t = 128)]
    image: usize,
    /// Index of the GPU in CUDA's order
    #[arg(long, default_value_t = 0)]
    gpu: usize,
}

/// A session, its trainer, and the loaders.
struct Feeding {
    session: Session<Config>,
    trainer: Trainer<Convnet>,
    images: Images,
    census: Arc<Census>,
    resident: Pair,
    steps: u32,
    #[cfg(feature = "cuda")]
    card: Card,
}

/// Prints a line for the batch that is there and for each loader.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut feeding = Feeding::new(arguments)?;
    // The first steps compile and tune.
    for _ in 0..5 {
        feeding.step(feeding.resident.clone(), &mut Fed::default())?;
    }
    let feeders = [Feeder::Resident, Feeder::Library, Feeder::Burn];
    let mut all = [Fed::default(); 3];
    for _ in 0..arguments.rounds {
        for (feeder, fed) in feeders.into_iter().zip(&mut all) {
            *fed = fed.and(feeding.fed(feeder)?);
        }
    }
    for (feeder, fed) in feeders.into_iter().zip(all) {
        say("feed", &feeding.line(feeder, fed, all[0]))?;
    }
    Ok(())
}

impl Feeding {
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let mut config = Config { image: arguments.image, ..Config::default() };
        config.num_workers = arguments.workers.unwrap_or(config.num_workers);
        let session = started(config, arguments.gpu)?;
        let device = session.device();
        device.seed(0);
        let side = session.config().image;
        let network = Convnet::new(&dimensions(side), &device);
        let trainer = session.trainer(network, AdamWConfig::new().init())?;
        let samples = session.schedule().global_batch as usize;
        let work = Work::for_duration(Duration::from_secs_f64(HOST_MS / 1e3));
        let images = Images { count: samples * arguments.steps as usize, side, classes: CLASSES, work };
        let pixels =
            Tensor::from_data(burn::tensor::TensorData::ones::<f32, _>([samples, 3, side, side]), &Device::flex());
        let classes = Tensor::from_data(burn::tensor::TensorData::zeros::<i32, _>([samples]), &Device::flex());
        let resident = MicroBatch::on_device((pixels, classes), &device);
        Ok(Self {
            session,
            trainer,
            images,
            census: Arc::default(),
            resident,
            steps: arguments.steps,
            #[cfg(feature = "cuda")]
            card: Card::open(arguments.gpu)?,
        })
    }

    fn loader(&self, feeder: Feeder) -> Arc<dyn DataLoader<Fetched>> {
        let census = Arc::clone(&self.census);
        let stack = Stack { side: self.images.side, census, counts: feeder == Feeder::Burn };
        if feeder == Feeder::Library {
            return self.session.loader(self.images.clone(), stack).build();
        }
        let builder = DataLoaderBuilder::new(stack).batch_size(self.session.schedule().global_batch as usize);
        let workers = self.session.plan().settings.num_workers as usize;
        builder.num_workers(workers).set_device(self.session.device()).build(self.images.clone())
    }

    /// A round of steps.
    fn fed(&mut self, feeder: Feeder) -> anyhow::Result<Fed> {
        release(&self.session.inner_device())?;
        self.census.most();
        let mut fed = Fed { free_bytes: self.free()?, ..Fed::default() };
        if feeder == Feeder::Resident {
            let begin = Instant::now();
            for _ in 0..self.steps {
                self.step(self.resident.clone(), &mut fed)?;
            }
            fed.seconds = begin.elapsed().as_secs_f64();
            return Ok(fed);
        }
        let loader = self.loader(feeder);
        let asked = Instant::now();
        let mut batches = loader.iter();
        let mut next = batches.next();
        fed.first_seconds = asked.elapsed().as_secs_f64();
        let begin = Instant::now();
        while let Some(batch) = next {
            let batch = batch?;
            self.step(batch.pair(), &mut fed)?;
            drop(batch);
            let asked = Instant::now();
            next = batches.next();
            fed.waiting_seconds += asked.elapsed().as_secs_f64();
        }
        fed.seconds = begin.elapsed().as_secs_f64();
        fed.held_bytes = self.census.most();
        Ok(fed)
    }

    fn step(&mut self, pair: Pair, fed: &mut Fed) -> anyhow::Result<()> {
        let step = self.trainer.step(1e-4, pair, loss)?;
        anyhow::ensure!(step.rescues.is_empty() && step.applied, "a step was disturbed: {step:?}");
        fed.steps += 1;
        fed.in_use_bytes = fed.in_use_bytes.max(self.in_use());
        fed.free_bytes = least(fed.free_bytes, self.free()?);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn in_use(&self) -> u64 {
        Usage::read(&self.session.inner_device()).in_use_bytes
    }

    #[cfg(feature = "cuda")]
    fn free(&self) -> anyhow::Result<Option<u64>> {
        self.card.free().map(Some)
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unused_self, reason = "the signature is that of the version with CUDA")]
    fn in_use(&self) -> u64 {
        0
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the signature is that of the version with CUDA")]
    fn free(&self) -> anyhow::Result<Option<u64>> {
        Ok(None)
    }
}

fn dimensions(image: usize) -> convnet::Dimensions {
    let stages = vec![[48, 8]];
    convnet::Dimensions { image, stages, classes: CLASSES, kind: Block::Plain, group_norm: false, stem: false }
}

fn loss(network: &Convnet, (images, classes): Pair) -> Tensor<1> {
    let logits = network.logits(images);
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, classes)
}

#[cfg(test)]
mod tests {
    use super::{Arguments, Fed, Feeder, Feeding};

    #[test]
    fn each_loader_brings_every_batch_and_the_librarys_keeps_to_its_budget() {
        let arguments = Arguments { steps: 4, rounds: 1, workers: Some(2), image: 4, gpu: 0 };
        let mut feeding = Feeding::new(&arguments).unwrap();
        let resident = feeding.fed(Feeder::Resident).unwrap();
        for feeder in [Feeder::Library, Feeder::Burn] {
            let fed = feeding.fed(feeder).unwrap();
            let line = feeding.line(feeder, fed, resident);
            assert_eq!((fed.steps, line.num_workers), (4, 2));
            assert!(fed.held_bytes > 0 && fed.seconds > 0.0 && line.waiting_share < 1.0, "{fed:?}");
            assert!(feeder == Feeder::Burn || line.queue_bytes <= line.budget_bytes, "{fed:?}");
        }
        assert_eq!(feeding.census.most(), 0);
        assert_eq!(Fed::default().and(resident).steps, 4);
    }
}
