//! Predicts the next day of a daily series with an LSTM.

use std::{f32::consts::TAU, sync::Arc};

use burn::{
    data::{
        dataloader::batcher::Batcher,
        dataset::{Dataset, DatasetError},
    },
    tensor::{DType, Device, Tensor, TensorData},
};
use gpu_tuned::{Precision, gpu_tuned, mixed::in_f32};
use models_tests::recurrent::{self, Recurrent};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{noise::Normal, task::Task};

/// Recorded figures of a day.
const CHANNELS: usize = 6;
/// Recorded figures plus the season, as sine and cosine.
const INPUTS: usize = CHANNELS + 2;
const LAYERS: usize = 2;
/// Days of a year.
const YEAR: f32 = 365.25;
/// Minimum standard deviation of a channel, to avoid division by zero.
const LEAST_DEVIATION: f32 = 1e-3;

/// Two layers over a window of days; the batch of an optimizer step is left to the plan.
#[gpu_tuned(recurrent(inputs = 8, layers = 2, outputs = 1), target = "h200")]
#[derive(Clone, Debug)]
pub(super) struct Config {
    #[tuned(dim = hidden, default = 128)]
    hidden: usize,
    #[tuned(dim = seq, default = 30)]
    window: usize,
    #[tuned]
    batch_size: usize,
    #[tuned]
    gradient_accumulation: usize,
    #[tuned]
    precision: Precision,
    #[tuned]
    gradient_checkpointing: bool,
    #[tuned]
    prefetch_depth: usize,
    #[tuned]
    num_workers: usize,
}

/// Daily series of several stations, and the network that learns from windows of them.
#[derive(Clone)]
pub(super) struct Series {
    /// Days of a station after those of another, each with its channels.
    values: Arc<Vec<f32>>,
    stations: usize,
    /// Days of each station.
    days: usize,
    window: usize,
    hidden: usize,
}

/// The standardised days of a window, and the first channel of the next day.
#[derive(Clone, Debug)]
pub(super) struct Window {
    inputs: Vec<f32>,
    target: f32,
}

impl Series {
    /// 2^20 windows of 30 days; when `small`, 512 of 16, and a narrower network.
    pub(super) fn new(small: bool) -> Self {
        if small { Self::generate([8, 80], 16, 24) } else { Self::generate([512, 2078], 30, 128) }
    }

    fn generate([stations, days]: [usize; 2], window: usize, hidden: usize) -> Self {
        let mut values = Vec::with_capacity(stations * days * CHANNELS);
        for station in 0..stations {
            record(days, &mut StdRng::seed_from_u64(station as u64), &mut values);
        }
        Self { values: Arc::new(values), stations, days, window, hidden }
    }

    /// Windows of a station: each has a next day.
    fn windows(&self) -> usize {
        self.days - self.window
    }

    fn day(&self, station: usize, day: usize) -> &[f32] {
        let at = (station * self.days + day) * CHANNELS;
        &self.values[at..at + CHANNELS]
    }

    fn cut(&self, station: usize, first: usize) -> Window {
        let days = first..first + self.window;
        let mut scale = [(0.0, 0.0); CHANNELS];
        for (channel, (mean, deviation)) in scale.iter_mut().enumerate() {
            let sum: f32 = days.clone().map(|day| self.day(station, day)[channel]).sum();
            *mean = sum / self.window as f32;
            let squares: f32 = days.clone().map(|day| (self.day(station, day)[channel] - *mean).powi(2)).sum();
            *deviation = (squares / self.window as f32).sqrt().max(LEAST_DEVIATION);
        }
        let mut inputs = Vec::with_capacity(self.window * INPUTS);
        for day in days.clone() {
            let normal = |(value, (mean, deviation)): (&f32, &(f32, f32))| (value - mean) / deviation;
            inputs.extend(self.day(station, day).iter().zip(&scale).map(normal));
            let (sine, cosine) = (TAU * day as f32 / YEAR).sin_cos();
            inputs.extend([sine, cosine]);
        }
        let (mean, deviation) = scale[0];
        Window { inputs, target: (self.day(station, days.end)[0] - mean) / deviation }
    }
}

/// The network over windows of `seq` days.
fn dimensions(seq: usize, hidden: usize) -> recurrent::Dimensions {
    recurrent::Dimensions {
        input: INPUTS,
        hidden,
        layers: LAYERS,
        seq,
        classes: 1,
        vocab: 0,
        every_step: false,
        gru: false,
        bidirectional: false,
    }
}

/// Season, week, and weather that lasts some days, in each channel more or less of each.
fn record(days: usize, random: &mut StdRng, values: &mut Vec<f32>) {
    let mut normal = Normal::default();
    let mut drawn = |least: f32, most: f32| [(); CHANNELS].map(|()| random.random_range(least..most));
    let (levels, seasons, weeks, phases) = (drawn(-5.0, 20.0), drawn(1.0, 8.0), drawn(0.2, 2.0), drawn(0.0, TAU));
    let (lasts, shared) = (drawn(0.6, 0.95), drawn(0.0, 1.0));
    let (mut weather, mut own) = (0.0, [0.0; CHANNELS]);
    for day in 0..days {
        weather = 0.8 * weather + normal.draw(random);
        for channel in 0..CHANNELS {
            own[channel] = lasts[channel] * own[channel] + 0.5 * normal.draw(random);
            let season = seasons[channel] * (TAU * day as f32 / YEAR + phases[channel]).sin();
            let week = weeks[channel] * (TAU * day as f32 / 7.0).sin();
            values.push(levels[channel] + season + week + shared[channel] * weather + own[channel]);
        }
    }
}

impl Dataset<Window> for Series {
    fn get(&self, index: usize) -> Result<Window, DatasetError> {
        Ok(self.cut(index / self.windows() % self.stations, index % self.windows()))
    }

    fn len(&self) -> usize {
        self.stations * self.windows()
    }
}

/// Puts windows together.
#[derive(Clone)]
pub(super) struct Stack {
    window: usize,
    float: DType,
}

/// `[samples, days, inputs]`, and `[samples, 1]`.
type Batch = (Tensor<3>, Tensor<2>);

impl Batcher<Window, Batch> for Stack {
    fn batch(&self, items: Vec<Window>, device: &Device) -> Batch {
        let samples = items.len();
        let targets: Vec<f32> = items.iter().map(|item| item.target).collect();
        let mut inputs = Vec::with_capacity(samples * self.window * INPUTS);
        for item in items {
            inputs.extend(item.inputs);
        }
        let inputs = TensorData::new(inputs, [samples, self.window, INPUTS]).convert_dtype(self.float);
        let targets = TensorData::new(targets, [samples, 1]).convert_dtype(self.float);
        (Tensor::from_data(inputs, (device, self.float)), Tensor::from_data(targets, (device, self.float)))
    }
}

impl Task for Series {
    type Config = Config;
    type Model = Recurrent;
    type Item = Window;
    type Batch = Batch;

    fn naive_batch(&self) -> usize {
        if self.hidden < 64 { 16 } else { 128 }
    }

    /// Small batches are launch-bound, so only large ones show the cost of a sample.
    fn batch_sizes(&self) -> Vec<usize> {
        if self.hidden < 64 { vec![16, 64] } else { vec![128, 8192, 65536] }
    }

    /// The small network takes few steps.
    fn learning_rate(&self) -> f64 {
        if self.hidden < 64 { 1e-2 } else { 1e-3 }
    }

    fn config(&self) -> Config {
        Config { hidden: self.hidden, window: self.window, ..Config::default() }
    }

    fn model(&self, device: &Device) -> Recurrent {
        Recurrent::new(&dimensions(self.window, self.hidden), device)
    }

    fn samples(&self) -> impl Dataset<Window> + 'static {
        self.clone()
    }

    fn batcher(&self, float: DType) -> impl Batcher<Window, Batch> + 'static {
        Stack { window: self.window, float }
    }

    fn loss(model: &Recurrent, (inputs, targets): Batch) -> Tensor<1> {
        let [_, seq, hidden] = inputs.dims();
        // The forward pass does not depend on the given width.
        let predicted = model.logits(&dimensions(seq, hidden), inputs);
        (in_f32(predicted) - in_f32(targets)).powi_scalar(2).mean()
    }
}

#[cfg(test)]
mod tests {
    use burn::{
        data::{dataloader::batcher::Batcher, dataset::Dataset},
        module::Module,
        tensor::{DType, Device},
    };
    use gpu_tuned::Tuned;

    use super::{CHANNELS, INPUTS, Series, Task};

    /// Channel `channel` of a day, less the mean of the window, in its deviations, in f64.
    fn normal(series: &Series, station: usize, first: usize, day: usize, channel: usize) -> f64 {
        let at = |day: usize| f64::from(series.values[(station * series.days + day) * CHANNELS + channel]);
        let all: Vec<f64> = (first..first + series.window).map(at).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|value| value * value).sum::<f64>() / all.len() as f64 - mean * mean;
        (at(day) - mean) / variance.sqrt()
    }

    #[test]
    fn a_window_has_its_days_and_the_next_one_is_the_target() {
        let series = Series::new(true);
        assert_eq!(series.len(), 8 * 64);
        for (index, station, first) in [(0, 0, 0), (63, 0, 63), (64, 1, 0), (511, 7, 63)] {
            let window = series.get(index).unwrap();
            assert_eq!(window.inputs.len(), 16 * INPUTS);
            for (at, value) in window.inputs.iter().enumerate() {
                let (day, channel) = (first + at / INPUTS, at % INPUTS);
                let angle = std::f64::consts::TAU * day as f64 / 365.25;
                let right = match channel {
                    6 => angle.sin(),
                    7 => angle.cos(),
                    _ => normal(&series, station, first, day, channel),
                };
                assert!((f64::from(*value) - right).abs() < 1e-3, "{index}, {at}: {value}, {right}");
            }
            let right = normal(&series, station, first, first + 16, 0);
            assert!((f64::from(window.target) - right).abs() < 1e-3, "{index}: {}, {right}", window.target);
        }
    }

    #[test]
    fn a_batch_has_its_windows_in_order_in_every_type() {
        let series = Series::new(true);
        let items: Vec<_> = [5, 70].map(|index| series.get(index).unwrap()).to_vec();
        for float in [DType::F32, DType::BF16] {
            let (inputs, targets) = series.batcher(float).batch(items.clone(), &Device::flex());
            assert_eq!((inputs.dims(), targets.dims(), inputs.dtype()), ([2, 16, INPUTS], [2, 1], float));
            let values: Vec<f32> = inputs.into_data().iter::<f32>().collect();
            let right = items.iter().flat_map(|item| &item.inputs);
            assert!(values.iter().zip(right).all(|(value, right)| (value - right).abs() <= 0.005 * right.abs()));
            let values: Vec<f32> = targets.into_data().iter::<f32>().collect();
            assert!((values[1] - items[1].target).abs() <= 0.005 * items[1].target.abs());
        }
    }

    #[test]
    fn the_description_has_the_parameters_of_the_model() {
        for small in [false, true] {
            let series = Series::new(small);
            let workload = series.config().workload().workload();
            assert_eq!(series.model(&Device::flex()).num_params() as u64, workload.parameters.trained());
        }
    }
}
