use std::cell::Cell;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;

use super::{ACCUMULATING, Clock, FEWEST_EQUAL, MOST_EQUAL, Repeats, Seconds, Times, host_ms_per_sample, median};
use crate::measure::{Step, Subject};

fn close(found: (f64, f64), expected: (f64, f64)) {
    assert!((found.0 - expected.0).abs() < 1e-9 && (found.1 - expected.1).abs() < 1e-9, "{found:?}");
}

fn parts(step: f64, longer: f64) -> (f64, f64) {
    let seconds = Seconds::from_steps(step, longer, 3);
    (seconds.micro_step, seconds.optimizer)
}

#[test]
fn a_step_is_its_micro_steps_and_the_optimizer() {
    close(parts(10.0 + 3.0, 30.0 + 3.0), (10.0, 3.0));
    close(parts(10.0, 30.0), (10.0, 0.0));
}

#[test]
fn noise_makes_no_part_negative() {
    for (step, longer) in [(10.0, 30.5), (10.0, 40.0), (10.0, 9.0)] {
        let (micro_step, optimizer) = parts(step, longer);
        assert!(micro_step >= 0.0 && optimizer >= 0.0, "{step} {longer}: {micro_step} {optimizer}");
    }
    // Nearest to both: (10 + 3 x 30.5) / 10.
    close(parts(10.0, 30.5), (10.15, 0.0));
}

#[test]
fn outliers_show_in_the_spread_alone() {
    let steps = [0.013, 0.011, 0.013, 0.014, 0.013];
    let times = Times::from_repeats(&steps.map(|step| Seconds { step, micro_step: step - 0.003, optimizer: 0.003 }));
    close((times.micro_step_ms, times.optimizer_ms), (10.0, 3.0));
    assert!((times.spread - 0.0015 / 0.013).abs() < 1e-9, "{}", times.spread);
    assert!((median(&mut [4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-12);
}

#[test]
fn of_many_micro_batches_what_a_short_step_hides_counts_little() {
    // 9.95 ms each once the host is behind, and a first one that hides 2 ms.
    let error = |many: usize| {
        let longer = 9.95e-3 * many as f64;
        let found = Seconds::from_steps(9.95e-3 + 2e-3, longer, many).micro_step;
        1.0 - found / 9.95e-3
    };
    assert!(error(3) > 0.1 && error(Repeats::for_duration(9.95e-3, Duration::from_secs(2), false).many) < 0.015);
}

#[test]
fn slow_steps_are_taken_few_times() {
    let spend = Duration::from_secs(2);
    let seconds = |warm: f64| {
        let Repeats { many, steps, longer_steps, count } = Repeats::for_duration(warm, spend, false);
        warm * ((steps + many * longer_steps) * count) as f64
    };
    for warm in [1e-4, 1e-3, 0.01, 0.03, 0.1, 0.33, 1.0, 5.0] {
        let repeats = Repeats::for_duration(warm, spend, false);
        assert!((3..=16).contains(&repeats.many) && repeats.count >= 1, "{warm}: {repeats:?}");
        // Of the slowest a single repeat.
        assert!(seconds(warm) <= (3.0 * 2.0_f64).max(4.0 * warm) + 1e-9, "{warm}: {repeats:?}");
    }
    assert!(seconds(0.33) < 4.5 && Repeats::for_duration(0.33, spend, false).count == 3);
    assert_eq!(Repeats::for_duration(0.01, spend, true).longer_steps, 0);
}

/// Pools of a GPU are read once, after equal steps and before any other.
#[test]
fn pools_are_looked_at_before_steps_of_another_kind() {
    let passes = Mutex::new(0_usize);
    let device = Device::flex();
    let subject = Subject::new(
        |device| LinearConfig::new(2, 1).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::<2>::ones([samples, 2], device),
        |model: &Linear, batch| {
            *passes.lock().expect("one thread") += 1;
            model.forward(batch).mean()
        },
    );
    let step = Step { batch: 1, micro_batches: 1, checkpointing: false, cuda_graphs: false };
    let seen = Mutex::new(Vec::new());
    let mut clock = Clock { is_cpu: false, ..Clock::new(&device, &subject, step) };
    let look = |_: &Clock<'_, '_, _, _>| {
        seen.lock().expect("one thread").push(*passes.lock().expect("one thread"));
        Some(Bytes(7))
    };
    let run = clock.run(Duration::from_millis(50), look).expect("it runs");
    assert_eq!(run.reserved, Some(Bytes(7)));
    let seen = seen.into_inner().expect("one thread");
    let [passes] = seen.as_slice() else { panic!("{seen:?}") };
    assert_eq!(passes % ACCUMULATING, 0);
    assert!((FEWEST_EQUAL..=MOST_EQUAL).contains(&(passes / ACCUMULATING)), "{passes}");
    assert!(run.times.micro_step_ms > 0.0);
}

#[test]
fn it_is_the_time_of_one_sample() {
    let (begin, prepared) = (Instant::now(), Cell::new(0));
    let prepare = |samples: usize| {
        prepared.set(prepared.get() + samples);
        thread::sleep(Duration::from_millis(2 * samples as u64));
    };
    let ms = host_ms_per_sample(&prepare, 5);
    // A median is at most twice the mean.
    let mean = begin.elapsed().as_secs_f64() * 1e3 / prepared.get() as f64;
    assert!(ms >= 2.0 && ms <= 2.0 * mean, "{ms}, on average {mean}");
}
