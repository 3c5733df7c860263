//! The session's metrics in Burn's training loop, by what it logs and what it hands to a renderer.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{Device, Tensor};
use burn::train::logger::{EvaluationProgressLogger, TrainingProgressLogger};
use burn::train::metric::{LossMetric, MetricDefinition, NumericEntry};
use burn::train::renderer::{
    EvaluationName, MetricState, MetricsRenderer, MetricsRendererEvaluation, MetricsRendererTraining,
};
use burn::train::{Learner, SupervisedTraining};
use gpu_tuned::train::{GradientHealth, gradient_health};
use gpu_tuned::{Options, Session};
use networks::{Regression, Rows};

const FEATURES: usize = 3;
const STEP: usize = 32;
const EPOCHS: usize = 2;
const STEPS: usize = 3;
const RATE: f64 = 0.05;

// Optimizer steps of 32 samples, in micro-batches of 8.
config! { Config, mlp(widths = [3, 1]), global_batch = 32, target = "generic" }

fn session() -> Session<Config> {
    Options::default().cpu().start(Config { batch_size: 8 }).expect("it fits")
}

/// Three steps of 32 samples; one of the second holds a value that is infinite, if that is wanted.
fn rows(infinite: bool) -> Vec<[f32; FEATURES]> {
    let value = |row: usize, column: usize| ((row * 5 + column * 3) % 13) as f32 / 13.0;
    let mut rows: Vec<_> = (0..STEP * STEPS).map(|row| std::array::from_fn(|column| value(row, column))).collect();
    if infinite {
        rows[STEP + 3][1] = f32::INFINITY;
    }
    rows
}

fn loader(rows: &[[f32; FEATURES]], device: &Device) -> Arc<dyn DataLoader<Tensor<2>>> {
    DataLoaderBuilder::new(Rows::default())
        .batch_size(STEP)
        .set_device(device.clone())
        .build(InMemDataset::new(rows.to_vec()))
}

fn network(device: &Device) -> Regression {
    Regression::new(&[FEATURES, 4, 1], device).with_unused(device)
}

/// Metrics that the loop passes on: names, in order, and the plotted value of each.
#[derive(Clone, Default)]
struct Plotted(Arc<Mutex<Vec<Point>>>);

type Point = (String, Option<f64>);

impl MetricsRendererTraining for Plotted {
    fn update_train(&mut self, state: MetricState) {
        if let MetricState::Numeric(entry, value) = state {
            let name = format!("{:?}", entry.metric_id);
            self.0.lock().unwrap().push((name, value.as_ref().map(NumericEntry::current)));
        }
    }
    fn update_valid(&mut self, _: MetricState) {}
}

impl MetricsRendererEvaluation for Plotted {
    fn update_test(&mut self, _: EvaluationName, _: MetricState) {}
}

impl TrainingProgressLogger for Plotted {
    fn start(&mut self, _: usize, _: usize, _: Option<usize>, _: Option<&str>) {}
    fn end(&mut self) {}
    fn update_epoch(&mut self, _: usize) {}
    fn start_split(&mut self, _: &str, _: usize) {}
    fn update_split(&mut self, _: usize) {}
    fn end_split(&mut self) {}
    fn log_event_training(&mut self, _: String) {}
}

impl EvaluationProgressLogger for Plotted {
    fn start_global_progress(&mut self, _: usize) {}
    fn end_global_progress(&mut self) {}
    fn start_test(&mut self, _: &str, _: usize) {}
    fn update_test_progress(&mut self, _: usize) {}
    fn end_test(&mut self) {}
    fn log_event_evaluation(&mut self, _: String) {}
}

impl MetricsRenderer for Plotted {
    fn manual_close(&mut self) {}
    fn register_metric(&mut self, _: MetricDefinition) {}
}

/// Trains on `rows` with all metrics of a session, which log into `folder`.
fn train(
    session: &Session<Config>,
    model: Regression,
    rows: &[[f32; FEATURES]],
    folder: &Path,
) -> (Regression, Plotted) {
    let metrics = session.metrics();
    let plotted = Plotted::default();
    let (device, inner) = (session.device(), session.inner_device());
    let result = SupervisedTraining::new(folder, loader(rows, &device), loader(rows, &inner))
        .metric_train_numeric(LossMetric::new())
        .metrics((metrics.gradient_norm(), metrics.micro_batch()))
        .metric_train_numeric(metrics.loss_scale())
        .metric_train_numeric(metrics.gpu_memory())
        .metric_train_numeric(metrics.gpu_utilisation())
        .metric_train(metrics.gradient_health(2))
        .renderer(Box::new(plotted.clone()))
        .with_application_logger(None)
        .with_training_strategy(session.strategy().expect("one rank"))
        .num_epochs(EPOCHS)
        .launch(Learner::new(model, SgdConfig::new().init(), RATE));
    assert!(result.error.is_none(), "{:?}", result.error);
    assert_eq!(metrics.last_step().map(|step| step.samples), Some(STEP));
    (result.model, plotted)
}

/// The lines of a metric's log in all epochs, an epoch's mean in the end of each.
fn logged(folder: &Path, name: &str) -> Vec<Vec<String>> {
    let read = |epoch| std::fs::read_to_string(folder.join(format!("train/epoch-{epoch}/{name}.log")));
    let lines = |text: String| text.lines().map(str::to_owned).collect();
    (1..=EPOCHS).filter_map(|epoch| read(epoch).ok().map(lines)).collect()
}

/// Norms and what gradients are made of, of steps that are taken whole, by Burn alone.
fn by_hand(rows: &[[f32; FEATURES]]) -> Vec<(f64, GradientHealth)> {
    let device = Device::flex().autodiff();
    let mut model = network(&device);
    let mut optimizer = SgdConfig::new().init();
    let mut steps = Vec::new();
    for batch in (0..EPOCHS).flat_map(|_| rows.chunks(STEP)) {
        let loss = model.loss(Rows::default().batch(batch.to_vec(), &device)).loss;
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let all = model.layers.iter().flat_map(|layer| {
            let weight = gradients.get::<2>(layer.weight.id).expect("it has one").into_data();
            let bias = gradients.get::<1>(layer.bias.as_ref().expect("one").id).expect("it has one").into_data();
            weight.iter::<f64>().chain(bias.iter::<f64>()).collect::<Vec<_>>()
        });
        let norm = all.map(|value| value * value).sum::<f64>().sqrt();
        steps.push((norm, gradient_health(&gradients, &model).expect("it is read")));
        if norm.is_finite() {
            model = optimizer.step(RATE, model, gradients);
        }
    }
    steps
}

fn number(line: &str) -> f64 {
    NumericEntry::deserialize(line).expect("Burn reads its logs").current()
}

#[test]
fn burns_logs_have_a_line_for_each_step_and_the_mean_of_an_epoch() {
    let (session, folder) = (session(), tempfile::tempdir().expect("a folder"));
    let right = by_hand(&rows(false));
    let model = network(&session.device());
    // Memory runs out once in the second step of the first epoch, in its third micro-batch.
    model.failing.store(4 + 3, Ordering::Relaxed);
    let (_, plotted) = train(&session, model, &rows(false), folder.path());

    let norms = logged(folder.path(), "Gradient_Norm");
    assert_eq!(norms.len(), EPOCHS);
    for (epoch, right) in norms.iter().zip(right.chunks(STEPS)) {
        let (mean, steps) = epoch.split_last().expect("lines");
        assert_eq!(steps.len(), STEPS, "{epoch:?}");
        for (line, (right, _)) in steps.iter().zip(right) {
            assert!((number(line) / right - 1.0).abs() < 1e-4, "{line} is not {right}");
        }
        let right = right.iter().map(|(norm, _)| norm).sum::<f64>() / STEPS as f64;
        assert!(mean.ends_with(",final") && (number(mean) / right - 1.0).abs() < 1e-4, "{mean} is not {right}");
    }
    let sizes = logged(folder.path(), "Micro-batch");
    assert_eq!(sizes[0][..STEPS], ["8,1", "4,1", "4,1"]);
    assert!((number(&sizes[0][STEPS]) - 16.0 / 3.0).abs() < 1e-9, "{sizes:?}");
    assert_eq!(sizes[1], ["4,1", "4,1", "4,1", "4,final"]);
    assert!(logged(folder.path(), "Loss_Scale").iter().all(|epoch| epoch == &["1,1", "1,1", "1,1", "1,final"]));
    // There is no GPU, and items of validation are part of no step.
    for name in ["GPU_Memory", "GPU_Utilisation"] {
        assert_eq!(logged(folder.path(), name), Vec::<Vec<String>>::new(), "{name}");
    }
    assert!(!folder.path().join("valid/epoch-1/Gradient_Norm.log").exists());

    let plotted = plotted.0.lock().unwrap();
    let of = |name: &str| plotted.iter().filter(|(id, _)| id.contains(name)).filter_map(|(_, value)| *value).count();
    assert_eq!((of("Gradient Norm"), of("Micro-batch")), ((STEPS + 1) * EPOCHS, (STEPS + 1) * EPOCHS));
    let shown = plotted.iter().filter(|(id, value)| id.contains("GPU") && value.is_some_and(|value| !value.is_nan()));
    assert_eq!(shown.count(), 0, "a GPU that is not there");
}

#[test]
fn what_gradients_are_made_of_is_logged_as_it_is_counted_in_whole_steps() {
    let (session, folder) = (session(), tempfile::tempdir().expect("a folder"));
    let right = by_hand(&rows(true));
    let model = network(&session.device());
    train(&session, model, &rows(true), folder.path());

    let lines: Vec<String> = logged(folder.path(), "Gradient_Health").concat();
    // Every second of six steps; the infinite value is in the second of each epoch.
    let counted: Vec<(usize, GradientHealth)> = lines.iter().map(|line| parsed(line)).collect();
    let iterations: Vec<_> = counted.iter().map(|(iteration, _)| *iteration).collect();
    assert_eq!(iterations, [1, 3, 2], "{lines:?}");
    for ((_, health), index) in counted.iter().zip([0, 2, 4]) {
        assert_eq!(health, &right[index].1, "step {index}");
        assert_eq!(health.is_finite(), index != 4);
        let paths: Vec<_> = health.layers.iter().map(|layer| layer.path.as_str()).collect();
        assert_eq!(paths, ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]);
        assert_eq!(health.without, ["unused.weight", "unused.bias"]);
    }
    let norms = logged(folder.path(), "Gradient_Norm");
    for epoch in &norms {
        assert!(!number(&epoch[1]).is_finite() && epoch[1].ends_with(",0"), "{epoch:?}");
        let mean = f64::midpoint(number(&epoch[0]), number(&epoch[2]));
        assert!((number(&epoch[3]) - mean).abs() < 1e-6, "{epoch:?}");
    }
}

fn parsed(line: &str) -> (usize, GradientHealth) {
    let value: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
    let iteration = value["iteration"].as_u64().expect("a number") as usize;
    (iteration, serde_json::from_value(value).expect("a table"))
}
