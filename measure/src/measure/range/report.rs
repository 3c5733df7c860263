//! Output while configurations run.

use std::time::Duration;

use gpu_tuned_core::three_digits;
use gpu_tuned_observe::bench::{Figures, Outcome, Phases, Setup};

pub(super) fn begin(name: &str, device: &str, setups: &[Setup], known: &[(Setup, Outcome)]) {
    let is_known = |setup: &&Setup| known.iter().any(|(known, outcome)| known == *setup && !outcome.is_transient());
    let on_record = setups.iter().filter(is_known).count();
    let rest = if on_record > 0 { format!(", {on_record} of them on record") } else { String::new() };
    let s = if setups.len() == 1 { "" } else { "s" };
    eprintln!("benching {name} on {device}: {} setup{s}{rest}", setups.len());
}

/// A line for every setup that has ended.
pub(super) fn point(place: &str, outcome: &Outcome) {
    eprintln!("  {}", line(place, outcome));
}

pub(super) fn memory_ran_out() {
    eprintln!("  memory ran out: what is tuned in this process from now on may be slow, so that it ends");
}

/// Progress over all configurations.
pub(super) struct Progress<'p> {
    setups: &'p [Setup],
    left: usize,
    done: u32,
    taken: Duration,
}

impl<'p> Progress<'p> {
    pub(super) fn new(setups: &'p [Setup], left: usize) -> Self {
        Self { setups, left, done: 0, taken: Duration::ZERO }
    }

    /// Number of a configuration with its duration, and the estimated time of the others.
    pub(super) fn after(&mut self, setup: Setup, took: Duration) -> String {
        self.taken += took;
        self.done += 1;
        self.left = self.left.saturating_sub(1);
        let number = self.setups.iter().position(|one| *one == setup).unwrap_or_default() + 1;
        let left = self.taken / self.done * u32::try_from(self.left).unwrap_or(u32::MAX);
        let left = if self.left > 0 { format!(" ({} left)", about(left)) } else { String::new() };
        format!("{number}/{}{left} {setup}", self.setups.len())
    }
}

fn about(left: Duration) -> String {
    match left.as_secs() {
        seconds @ ..100 => format!("about {} s", seconds.max(1)),
        seconds @ ..6000 => format!("about {} min", seconds.div_ceil(60)),
        seconds => format!("about {} h", seconds.div_ceil(3600)),
    }
}

fn line(place: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured(figures) => format!("{place}: {}", describe(figures)),
        other => format!("{place}: {other}"),
    }
}

fn describe(figures: &Figures) -> String {
    let speed = figures.samples_per_s;
    let (median, least, most) = (three_digits(speed.median), three_digits(speed.least), three_digits(speed.most));
    let mut parts = vec![format!("{median} samples/s ({least} to {most})"), format!("step {:.2} ms", figures.step_ms)];
    parts.extend(figures.phases.map(|Phases { forward_ms, backward_ms, optimizer_ms }| {
        format!("forward {forward_ms:.2}, backward {backward_ms:.2}, optimizer {optimizer_ms:.2} ms")
    }));
    parts.extend(figures.waiting_percent.map(|percent| format!("{percent:.0}% of it waiting for batches")));
    parts.extend(figures.reserved_bytes.map(|bytes| bytes.to_string()));
    if !figures.is_finite {
        parts.push("the loss is no finite number".to_owned());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpu_tuned_core::{Bytes, Precision};
    use gpu_tuned_observe::bench::{Figures, Interval, Outcome, Phases, Setup};

    use super::{Progress, about, line};

    #[test]
    fn a_setup_is_one_line_with_the_time_that_is_left() {
        let setup = |batch| Setup { precision: Precision::F32, checkpointing: false, batch, feed: None };
        let setups = [setup(8), setup(16), setup(32), setup(64)];
        let mut progress = Progress::new(&setups, 3);
        let figures = Figures {
            samples_per_s: Interval { median: 815.2, least: 799.9, most: 820.3 },
            repeats: 5,
            step_ms: 19.628,
            phases: Some(Phases { forward_ms: 6.1, backward_ms: 12.3, optimizer_ms: 1.4 }),
            waiting_percent: None,
            reserved_bytes: Some(Bytes::from_mib(4738)),
            in_use_bytes: None,
            predicted_bytes: None,
            gpu_percent: None,
            cpu_percent: Some(97.0),
            is_finite: false,
        };
        let place = progress.after(setup(16), Duration::from_secs(30));
        assert_eq!(
            line(&place, &Outcome::Measured(figures)),
            "2/4 (about 60 s left) f32, batch 16: 815 samples/s (800 to 820), step 19.63 ms, forward 6.10, backward 12.30, \
             optimizer 1.40 ms, 4.6 GiB, the loss is no finite number"
        );
        progress.after(setup(32), Duration::from_secs(90));
        let failed = Outcome::Failed { message: "no such image\nbacktrace".to_owned() };
        let place = progress.after(setup(64), Duration::from_secs(1));
        assert_eq!(line(&place, &failed), "4/4 f32, batch 64: failed: no such image");
    }

    #[test]
    fn time_is_told_in_the_unit_that_suits_it() {
        let reported = [0, 99, 100, 5999, 6000].map(|seconds| about(Duration::from_secs(seconds)));
        assert_eq!(reported, ["about 1 s", "about 99 s", "about 2 min", "about 100 min", "about 2 h"]);
    }
}
