//! Metrics, updated as Burn's loop does it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use burn::data::dataloader::Progress;
use burn::train::metric::{Metric, MetricMetadata, Numeric, NumericEntry, SerializedEntry};
use fake_nvml::play;
use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use tracing::span::{Attributes, Id, Record as SpanRecord};
use tracing::{Event, Level, Subscriber, subscriber};

use super::gpu::Load;
use super::{Gpu, GradientNorm, LossScale, MicroBatch, StepHistory};
use crate::train::Step;

/// An item of training in so manieth a step of its epoch.
fn item(iteration: usize) -> MetricMetadata {
    let progress = Progress { items_processed: 1, items_total: 1, unit: None };
    MetricMetadata { progress, iteration: Some(iteration), lr: Some(0.1.into()) }
}

fn step(gradient_norm: f32, micro_batch: usize) -> Step {
    Step { gradient_norm, micro_batch, loss_scale: 1024.0, ..Step::default() }
}

/// Text and log of a metric after an item.
fn update(metric: &mut impl Metric<Input = ()>, iteration: usize) -> SerializedEntry {
    metric.update(&(), &item(iteration)).expect("nothing is read")
}

fn epoch(metric: &mut (impl Metric<Input = ()> + Numeric)) -> SerializedEntry {
    let entry = metric.compute().expect("nothing is read");
    metric.clear();
    entry
}

fn plotted(metric: &impl Numeric) -> Option<f64> {
    metric.value().as_ref().map(NumericEntry::current)
}

/// GPU of a scenario at a position in NVML's order, changed by `known`.
fn gpu(scenario: &str, position: usize, known: impl FnOnce(&mut GpuReading), show: impl FnOnce(Gpu)) {
    play(scenario, |library| {
        let mut reading = gpu_tuned_nvml::read(Some(library)).expect("a driver").gpus.swap_remove(position);
        known(&mut reading);
        show(Gpu::of(&reading, Some(library.to_owned())));
    });
}

#[test]
fn the_gpu_of_the_session_is_shown_whatever_its_index() {
    // CUDA numbers the faster one first, NVML by address.
    for (position, used, total, busy) in [(0, 4, 24576, 3.0), (1, 4, 24564, 97.0)] {
        let cudas = |gpu: &mut GpuReading| gpu.index = 1 - gpu.index;
        gpu("two-gpus", position, cudas, |gpu| {
            let (mut memory, mut utilisation) = (gpu.memory(), gpu.utilisation());
            let used = f64::from(used) / 1024.0;
            let entry = update(&mut memory, 1);
            assert_eq!(entry.serialized, format!("{used},1"));
            let text = format!("{used:.2} of {:.2} GiB", f64::from(total) / 1024.0);
            assert_eq!(entry.formatted, format!("epoch {text} - batch {text}"));
            assert_eq!(update(&mut utilisation, 1).serialized, format!("{busy},1"));
            assert_eq!((plotted(&memory), plotted(&utilisation)), (Some(used), Some(busy)));
            assert_eq!(epoch(&mut utilisation).serialized, format!("{busy},final"));
        });
    }
}

#[test]
fn what_a_slice_or_a_driver_does_not_have_is_not_shown() {
    gpu(
        "h200-mig-beside-whole",
        0,
        |_| {},
        |gpu| {
            assert_eq!(update(&mut gpu.memory(), 1).serialized, format!("{},1", 13.0 / 1024.0));
            let mut utilisation = gpu.utilisation();
            let entry = update(&mut utilisation, 1);
            assert_eq!(entry.formatted, "not available: the driver does not report it");
            assert!(entry.is_not_available() && utilisation.value().is_none() && utilisation.running_value().is_none());
            assert!(epoch(&mut utilisation).is_not_available());
        },
    );
}

#[test]
fn a_missing_driver_is_said_once_and_shows_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("libnvidia-ml.so.1");
    let gpu = Gpu::of(&GpuReading::default(), Some(library));
    let (mut memory, mut utilisation) = (gpu.memory(), gpu.utilisation());
    let warnings = warnings(|| {
        for iteration in 1..5 {
            for entry in [update(&mut memory, iteration), update(&mut utilisation, iteration)] {
                assert!(entry.is_not_available(), "{entry:?}");
                assert!(entry.formatted.contains("no NVIDIA management library found"), "{entry:?}");
            }
        }
    });
    assert_eq!((warnings, plotted(&memory), plotted(&utilisation)), (1, None, None));
    assert!(epoch(&mut memory).is_not_available());
}

#[test]
fn there_is_no_gpu_to_show_on_the_cpu() {
    let mut memory = Gpu::none().memory();
    assert_eq!(update(&mut memory, 1).formatted, "not available: the session trains on the CPU");
    assert!(memory.value().is_none() && epoch(&mut memory).is_not_available());
}

/// A sampler of given results, and the number of reads.
fn looks(every: Duration, seen: impl IntoIterator<Item = Result<u32, &'static str>>) -> (Gpu, Arc<AtomicUsize>) {
    let mut seen: VecDeque<_> = seen.into_iter().collect();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let look = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let percent = seen.pop_front().expect("no more looks")?;
        let memory_total = Some(Bytes(8 << 30));
        Ok(Load {
            memory_used: Some(Bytes(u64::from(percent) << 30)),
            memory_total,
            utilisation_percent: Some(percent),
        })
    };
    (Gpu::new(every, Ok(Box::new(look))), count)
}

#[test]
fn a_look_serves_all_metrics_and_items_until_it_is_old() {
    let (gpu, count) = looks(Duration::MAX, [Ok(5)]);
    let (mut memory, mut utilisation) = (gpu.memory(), gpu.utilisation());
    assert_eq!(update(&mut memory, 1).serialized, "5,1");
    assert_eq!(update(&mut utilisation, 1).serialized, "5,1");
    let again = update(&mut memory, 2);
    assert!(again.is_not_available() && again.formatted.contains("batch 5.00 of 8.00 GiB"), "{again:?}");
    assert_eq!(plotted(&memory), None);
    // Another epoch has a value, too.
    assert_eq!(epoch(&mut memory).serialized, "5,final");
    assert_eq!(update(&mut memory, 1).serialized, "5,1");
    assert_eq!(count.load(Ordering::Relaxed), 1);

    let (gpu, _) = looks(Duration::ZERO, [Ok(10), Ok(20), Ok(60)]);
    let mut utilisation = gpu.utilisation();
    let entries: Vec<_> = (1..4).map(|iteration| update(&mut utilisation, iteration).serialized).collect();
    assert_eq!(entries, ["10,1", "20,1", "60,1"]);
    assert_eq!(epoch(&mut utilisation).serialized, "30,final");
}

#[test]
fn a_gpu_that_is_lost_is_not_looked_at_again() {
    let (gpu, count) = looks(Duration::ZERO, [Ok(10), Err("the GPU is lost")]);
    let mut utilisation = gpu.utilisation();
    assert_eq!(update(&mut utilisation, 1).serialized, "10,1");
    for iteration in 2..5 {
        assert_eq!(update(&mut utilisation, iteration).formatted, "not available: the GPU is lost");
        assert_eq!(plotted(&utilisation), None);
    }
    assert_eq!(count.load(Ordering::Relaxed), 2);
    assert_eq!(epoch(&mut utilisation).serialized, "10,final", "what was seen before stands");
}

#[test]
fn an_item_is_shown_the_step_that_it_was_a_part_of() {
    let record = StepHistory::default();
    let (mut norm, mut micro_batch) = (GradientNorm::new(record.clone()), MicroBatch::new(record.clone()));
    // The loop is two steps ahead of what shows its items.
    for (iteration, (value, size)) in [(2.0, 16), (4.0, 8), (9.0, 8)].into_iter().enumerate() {
        record.push(iteration + 1, &step(value, size));
    }
    let logged = |entry: SerializedEntry| (!entry.is_not_available()).then_some(entry.serialized);
    let items = [1, 1, 2, 2, 2, 2].map(|iteration| (update(&mut norm, iteration), update(&mut micro_batch, iteration)));
    let [norms, sizes]: [Vec<_>; 2] = {
        let (norms, sizes): (Vec<_>, Vec<_>) = items.into_iter().unzip();
        [norms, sizes].map(|entries| entries.into_iter().filter_map(logged).collect())
    };
    assert_eq!((norms, sizes), (vec!["2,1".into(), "4,1".into()], vec!["16,1".into(), "8,1".into()]));
    assert_eq!(epoch(&mut norm).serialized, "3,final", "a step counts once");
    assert_eq!(update(&mut LossScale::new(record), 3).serialized, "1024,1");
}

#[test]
fn a_norm_that_is_not_finite_is_logged_and_not_part_of_the_mean() {
    let record = StepHistory::default();
    let mut norm = GradientNorm::new(record.clone());
    let mut logged = Vec::new();
    for (index, value) in [3.0, f32::INFINITY, f32::NAN, 5.0].into_iter().enumerate() {
        record.push(index + 1, &step(value, 8));
        logged.push(update(&mut norm, index + 1).serialized);
        assert_eq!(norm.value().is_some(), value.is_finite());
    }
    assert_eq!(logged, ["3,1", "inf,0", "NaN,0", "5,1"]);
    assert!(logged.iter().all(|line| NumericEntry::deserialize(line).is_ok()), "Burn reads its logs");
    assert_eq!(epoch(&mut norm).serialized, "4,final");
}

#[test]
fn items_of_validation_and_of_other_strategies_have_no_step() {
    let record = StepHistory::default();
    let mut norm = GradientNorm::new(record.clone());
    assert!(update(&mut norm, 1).is_not_available(), "no step was taken");
    record.push(1, &step(1.0, 8));
    let validation = MetricMetadata { lr: None, ..item(1) };
    assert!(norm.update(&(), &validation).expect("nothing is read").is_not_available());
    assert_eq!(update(&mut norm, 1).serialized, "1,1");
    record.begin();
    assert!(update(&mut norm, 1).is_not_available(), "another run has begun");
}

/// Number of warnings on this thread.
fn warnings(during: impl FnOnce()) -> usize {
    struct Counter(Arc<AtomicUsize>);

    impl Subscriber for Counter {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() == Level::WARN
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &SpanRecord<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    let count = Arc::new(AtomicUsize::new(0));
    subscriber::with_default(Counter(count.clone()), during);
    count.load(Ordering::Relaxed)
}
