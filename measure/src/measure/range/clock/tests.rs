use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, thread};

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned_observe::bench::Feed;

use super::{DeviceSampler, Repeats, Timing, alone, fed, feeding};
use crate::measure::{Step, Subject};

const STEP: Step = Step { batch: 16, micro_batches: 1, checkpointing: false, cuda_graphs: false };
const FORWARD: Duration = Duration::from_millis(20);

/// A subject with a slow forward pass.
fn slow(factor: f64) -> Subject<'static, Linear, Tensor<2>> {
    Subject::new(
        |device| LinearConfig::new(8, 1).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::ones([samples, 8], device),
        move |model: &Linear, batch| {
            sleep(FORWARD);
            model.forward(batch).mean() * factor
        },
    )
}

fn timing<'t>(device: &'t Device, eye: &'t DeviceSampler) -> Timing<'t> {
    Timing { device, eye, spend: Duration::from_millis(300) }
}

#[test]
fn steps_and_their_parts_are_timed_apart() {
    let (device, eye) = (Device::flex(), DeviceSampler::default());
    let timed = alone(timing(&device, &eye), &slow(1.0), STEP).expect("it runs");
    let phases = timed.phases.expect("it is not fed");
    assert!(phases.forward_ms >= 20.0 && phases.backward_ms < phases.forward_ms, "{phases:?}");
    assert!(phases.optimizer_ms > 0.0 && phases.optimizer_ms < phases.forward_ms, "{phases:?}");
    assert!(timed.step_ms >= 20.0 && timed.repeats >= 3, "{timed:?}");
    let speed = timed.samples_per_s;
    assert!(speed.least <= speed.median && speed.median <= speed.most && speed.most <= 16.0 / 0.02, "{speed:?}");
    assert!(timed.is_finite && timed.waiting_percent.is_none() && timed.reserved_bytes.is_none());
}

#[test]
fn a_loss_that_is_no_finite_number_is_told() {
    let (device, eye) = (Device::flex(), DeviceSampler::default());
    assert!(!alone(timing(&device, &eye), &slow(f64::INFINITY), STEP).expect("it runs").is_finite);
}

#[test]
fn workers_hide_what_preparing_takes() {
    let (device, eye, subject) = (Device::flex(), DeviceSampler::default(), slow(1.0));
    let waiting = |workers| {
        let prepare = |_: usize| sleep(FORWARD);
        let feed = (&prepare as &super::Prepare<'_>, Feed { workers, prefetch: 2 });
        fed(timing(&device, &eye), &subject, STEP, feed).expect("it runs").waiting_percent.expect("it is fed")
    };
    let (none, two) = (waiting(0), waiting(2));
    assert!((5.0..95.0).contains(&none) && two < none / 2.0, "{none}% without, {two}% with workers");
}

#[test]
fn repeats_are_at_least_three_and_hardly_shorter_than_a_tenth_of_a_second() {
    let spend = Duration::from_secs(2);
    for (warm, steps, repeats) in [(1e-5, 100, 9), (1e-3, 100, 9), (0.03, 3, 9), (0.5, 1, 4), (40.0, 1, 3)] {
        assert_eq!(Repeats::for_duration(warm, spend), Repeats { steps, repeats }, "{warm} s");
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn no_more_is_prepared_than_may_wait_and_is_in_hand() {
    let made = AtomicUsize::new(0);
    let prepare = |samples: usize| {
        assert_eq!(samples, 7);
        made.fetch_add(1, SeqCst);
    };
    for (workers, prefetch, most) in [(0, 4, 0), (1, 1, 2), (2, 3, 5)] {
        made.store(0, SeqCst);
        feeding(&prepare, 7, Feed { workers, prefetch }, |fed| {
            sleep(50 * MS);
            assert!(made.load(SeqCst) <= most, "{workers} workers: {made:?}");
            fed.take();
        });
        assert!((1..=most + 1).contains(&made.load(SeqCst)), "{workers} workers: {made:?}");
    }
}

#[test]
fn what_is_waited_is_what_workers_do_not_hide() {
    let waited = |workers| {
        feeding(&|_| sleep(10 * MS), 1, Feed { workers, prefetch: 2 }, |fed| {
            for _ in 0..3 {
                fed.take();
            }
            let take = |_| {
                sleep(10 * MS);
                fed.take()
            };
            (0..5).map(take).sum::<Duration>()
        })
    };
    let (alone, fed) = (waited(0), waited(4));
    assert!(alone >= 50 * MS && fed < alone / 2, "{alone:?}, {fed:?}");
}

#[test]
fn a_panic_of_the_preparation_is_one_of_the_work_and_hangs_nothing() {
    for workers in [0, 1, 3] {
        let twice = |fed: &mut super::Fed<'_>| (fed.take(), fed.take());
        let work = || feeding(&|_| panic!("no such file"), 1, Feed { workers, prefetch: 2 }, twice);
        assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    }
}

/// CPU seconds of this thread, from the kernel's scheduler; `None` if not reported.
fn had_so_far() -> Option<f64> {
    let scheduled = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds = scheduled.split_whitespace().next()?.parse::<f64>().ok()?;
    (nanoseconds > 0.0).then_some(nanoseconds / 1e9)
}

#[test]
fn a_core_that_is_busy_is_its_part_of_all_cores() {
    let (watch, before) = (DeviceSampler::default().watch(), had_so_far());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(400) {
        std::hint::black_box((0..1000_u64).sum::<u64>());
    }
    let had = had_so_far().zip(before).map_or(0.25, |(after, before)| after - before);
    let seen = watch.end();
    let cores = thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let least = 75.0 * had / (begin.elapsed().as_secs_f64() * cores);
    assert!(seen.gpu_percent.is_none());
    // Other tests of this process count along, and those of others may leave this one little.
    assert!(seen.cpu_percent.is_some_and(|percent| (least..=100.0).contains(&percent)), "{seen:?}, {least}");
}

#[cfg(feature = "nvml")]
#[test]
fn the_gpu_is_the_one_that_is_worked_on() {
    fake_nvml::play("two-gpus", |library| {
        let gpus = gpu_tuned_nvml::read(Some(library)).expect("a driver").gpus;
        let busy = gpus.iter().map(|gpu| {
            let eye = DeviceSampler::on(gpu, Some(library));
            let look = eye.0.expect("the GPU is found");
            // On this thread, which the scenario is played to.
            let mut look = look.lock().expect("nobody panicked");
            look()
        });
        assert_eq!(busy.collect::<Vec<_>>(), [Some(3), Some(97)]);
    });
    let unknown = gpu_tuned_core::device::GpuReading::default();
    assert!(DeviceSampler::on(&unknown, Some(std::path::Path::new("/nonexistent/libnvidia-ml.so.1"))).0.is_none());
}

#[test]
fn the_gpu_is_looked_at_until_it_ends() {
    let mut percent = [40, 60].into_iter().cycle();
    let eye = DeviceSampler::with(move || percent.next());
    let watch = eye.watch();
    thread::sleep(Duration::from_millis(350));
    let seen = watch.end().gpu_percent.expect("it was looked at");
    assert!((40.0..=60.0).contains(&seen), "{seen}");
    drop(eye.watch());
    assert_eq!(DeviceSampler::with(|| None).watch().end().gpu_percent, None);
}
