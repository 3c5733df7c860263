//! Checks of metrics: the GPU, and gradients.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use burn::{
    module::{Module, Param},
    optim::{AdamWConfig, GradientsParams},
    tensor::{DType, Device, Distribution, Tensor, TensorData},
};
use clap::Args;
use gpu_tuned::{
    Options, Session, gpu_tuned,
    train::{Trainer, gradient_health},
};
use gpu_tuned_nvml::Gauge;
use serde::Serialize;

use crate::{
    catching::catching,
    line::{print_under, say},
    network::{Batch, Fill, Model, Network},
};

const LEARNING_RATE: f64 = 1e-4;
/// Longer than the driver's sample period.
const BUSY: Duration = Duration::from_millis(1500);
/// Values of the gradient that is made up; no power of two.
const VALUES: usize = 3 * 1_000_003;

/// Options of `observe`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Index of the GPU in CUDA's order
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    /// Memory to allocate while the GPU is sampled, in MiB
    #[arg(long, default_value_t = 4096)]
    hold_mib: u64,
    /// The model for counting gradients
    #[arg(long, default_value = "transformer")]
    model: Model,
    /// Samples in a step
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Steps that are timed; gradients are counted in every second
    #[arg(long, default_value_t = 40)]
    steps: usize,
}

/// Any session that opens the GPU.
#[gpu_tuned(mlp(widths = [8, 1]), global_batch = 32, target = "generic")]
#[derive(Clone, Debug)]
struct Any {
    #[tuned]
    batch_size: usize,
}

#[derive(Serialize)]
struct GpuSample {
    when: &'static str,
    memory_used_mib: Option<f64>,
    memory_total_mib: Option<f64>,
    utilisation_percent: Option<u32>,
    seconds_to_look: f64,
    /// Memory reserved by Burn's pools.
    reserved_mib: Option<f64>,
}

#[derive(Serialize)]
struct Counted {
    dtype: String,
    values: u64,
    /// NaN, Inf and zero on the device.
    found: [u64; 3],
    /// Expected figures, computed on the host.
    right: [u64; 3],
    equal: bool,
}

#[derive(Serialize)]
struct Timed {
    parameters: usize,
    layers: usize,
    is_finite: bool,
    zero: u64,
    /// Medians.
    seconds_per_step: f64,
    seconds_per_counting_step: f64,
    reserved_mib: Option<f64>,
}

#[derive(Serialize)]
struct Head {
    way: &'static str,
}

/// Prints a line for every check, as soon as its result is available.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let session = Options::default().gpu(arguments.gpu).start(Any::default())?;
    let device = session.inner_device();
    let gpu = catching(|| arguments.look(&session, &device));
    if gpu.is_err() {
        print_under(&Head { way: "gpu" }, &gpu)?;
    }
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        print_under(&Head { way: "counts" }, &catching(|| counted(&device, dtype)))?;
    }
    print_under(&Head { way: "time" }, &catching(|| arguments.time(&device)))
}

impl Arguments {
    fn look(&self, session: &Session<Any>, device: &Device) -> anyhow::Result<()> {
        let gpu = &session.selection().gpu.as_ref().context("there is no GPU")?.reading;
        let mut gauge = Gauge::open(None, gpu)?;
        let mut look = |when| {
            let begin = Instant::now();
            let load = gauge.read()?;
            let seconds_to_look = begin.elapsed().as_secs_f64();
            let mib = |bytes: gpu_tuned_core::Bytes| bytes.mib();
            say(
                "gpu",
                &GpuSample {
                    when,
                    memory_used_mib: load.memory_used.map(mib),
                    memory_total_mib: load.memory_total.map(mib),
                    utilisation_percent: load.utilisation_percent,
                    seconds_to_look,
                    reserved_mib: reserved_mib(device),
                },
            )
        };
        look("opened")?;
        let values = usize::try_from(self.hold_mib << 18)?;
        let held = Tensor::<1>::ones([values], device);
        device.sync()?;
        look("holding")?;
        let matrix = Tensor::<2>::random([4096, 4096], Distribution::Default, device);
        let begin = Instant::now();
        while begin.elapsed() < BUSY {
            matrix.clone().matmul(matrix.clone()).slice([0..1, 0..1]).try_into_data()?;
        }
        look("busy")?;
        drop((held, matrix));
        crate::device::release(device)?;
        look("given back")
    }

    fn time(&self, device: &Device) -> anyhow::Result<Timed> {
        ensure!(self.steps >= 4, "there is nothing to compare");
        device.seed(0);
        let on = device.clone().autodiff();
        let network = self.model.network(&on);
        let parameters = network.num_params();
        let batch = self.model.batch(self.batch, Fill::Random, device);
        let mut trainer = Trainer::new(network, AdamWConfig::new().init(), on, self.batch).gradient_health(2);
        let (mut seconds, mut last) = ([Vec::new(), Vec::new()], None);
        for index in 0..self.steps + 4 {
            let begin = Instant::now();
            let step =
                trainer.step(LEARNING_RATE, batch.clone(), |network: &Network, batch: Batch| network.loss(batch))?;
            ensure!(step.gradient_health.is_some() == (index % 2 == 0), "counted in another step");
            // The first of each kind tune and compile.
            if index >= 4 {
                seconds[index % 2].push(begin.elapsed().as_secs_f64());
            }
            last = step.gradient_health.or(last);
        }
        let health = last.context("BUG: the first step counts")?;
        let [counting, plain] = seconds.map(median);
        Ok(Timed {
            parameters,
            layers: health.layers.len(),
            is_finite: health.is_finite(),
            zero: health.total().zero,
            seconds_per_step: plain,
            seconds_per_counting_step: counting,
            reserved_mib: reserved_mib(device),
        })
    }
}

#[derive(Module, Debug)]
struct One {
    weight: Param<Tensor<2>>,
}

/// Counts in a gradient that was made up.
fn counted(device: &Device, dtype: DType) -> anyhow::Result<Counted> {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1e-7, -3.5];
    let value = |index: usize| special.get(index * 31 % 101).copied().unwrap_or(0.25);
    let values: Vec<f32> = (0..VALUES).map(value).collect();
    let data = TensorData::new(values, [3, VALUES / 3]).convert_dtype(dtype);
    let host: Vec<f32> = data.iter::<f32>().collect();
    let is: [fn(&f32) -> bool; 3] = [|value| value.is_nan(), |value| value.is_infinite(), |value| *value == 0.0];
    let right = is.map(|is| host.iter().filter(|value| is(value)).count() as u64);

    let on = device.clone().autodiff();
    let model = One { weight: Param::from_tensor(Tensor::zeros([3, VALUES / 3], &on)) };
    let mut gradients = GradientsParams::new();
    gradients.register(model.weight.id, Tensor::<2>::from_data(data, (device, dtype)));
    let total = gradient_health(&gradients, &model)?.total();
    let found = [total.nan, total.infinite, total.zero];
    Ok(Counted { dtype: format!("{dtype:?}"), values: total.values, found, right, equal: found == right })
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(f64::NAN)
}

fn reserved_mib(device: &Device) -> Option<f64> {
    device.memory_pool_usage().map(|usage| gpu_tuned_core::Bytes(usage.bytes_reserved).mib())
}
