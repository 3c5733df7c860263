//! Progress line of a training run on standard error.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_tuned_core::{Bytes, grouped, three_digits};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::log::{Around, print, set_around};
use crate::monitor::amounts::clock;

/// Shortest interval between two redraws on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Shortest interval between two lines elsewhere, such as in a file.
const PLAIN: Duration = Duration::from_secs(30);
/// Shortest interval between two queries of the memory pools, which wait for the threads that launch kernels.
const QUERY: Duration = Duration::from_secs(1);
/// Recent time that the speed is a mean of.
const WINDOW: Duration = Duration::from_secs(30);

/// One line with step, epoch, speed, memory, loss and time left.
///
/// A terminal has the line redrawn in place. A file or pipe gets a line every 30 s. The figures are those of the host: nothing is
/// read from the device.
pub struct ProgressLine {
    begin: Instant,
    status: Status,
    output: Output,
    /// Times since the begin.
    drawn: Option<Duration>,
    queried: Option<Duration>,
}

enum Output {
    Off,
    Plain(fn(&str)),
    Terminal {
        bar: ProgressBar,
        /// Prints lines of the log above the bar, while it exists.
        _around: Arc<Around>,
    },
}

impl ProgressLine {
    /// Begins a run of so many steps, if that is known. Shows nothing unless `is_on`.
    pub fn begin(steps: Option<u64>, is_on: bool) -> Self {
        let is_terminal = stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb");
        let output = match (is_on, is_terminal) {
            (false, _) => Output::Off,
            (true, false) => Output::Plain(print),
            (true, true) => Output::terminal(ProgressDrawTarget::stderr()),
        };
        Self::with_output(steps, output)
    }

    fn with_output(steps: Option<u64>, output: Output) -> Self {
        let status = Status { total: steps, ..Status::default() };
        Self { begin: Instant::now(), status, output, drawn: None, queried: None }
    }

    /// Adds the epoch to the line.
    #[must_use]
    pub fn steps_per_epoch(mut self, steps: u64) -> Self {
        self.status.steps_per_epoch = Some(steps).filter(|steps| *steps > 0);
        self
    }

    /// Counts the steps of an earlier part of the run.
    #[must_use]
    pub fn resumed_after(mut self, steps: u64) -> Self {
        self.status.steps = steps;
        self
    }

    /// Adds the memory of the device to the line, beside what is reserved of it.
    #[must_use]
    pub fn memory_total(mut self, memory: Option<Bytes>) -> Self {
        self.status.memory_total = memory;
        self
    }

    /// Counts a step. `reserved` is called at most once a second, and only for a line that is shown.
    pub fn step(&mut self, samples: u64, loss: Option<f64>, reserved: impl FnOnce() -> Option<Bytes>) {
        self.step_at(self.begin.elapsed(), samples, loss, reserved);
    }

    fn step_at(&mut self, now: Duration, samples: u64, loss: Option<f64>, reserved: impl FnOnce() -> Option<Bytes>) {
        let Self { status, output, drawn, queried, .. } = self;
        status.step(now, samples, loss);
        let is_due = |last: Option<Duration>, interval| last.is_none_or(|last| now.saturating_sub(last) >= interval);
        let shows = match output {
            Output::Off => false,
            Output::Plain(_) => is_due(Some(drawn.unwrap_or_default()), PLAIN),
            Output::Terminal { .. } => is_due(*drawn, REDRAW) || status.total == Some(status.steps),
        };
        if !shows {
            return;
        }
        if is_due(*queried, QUERY) {
            *queried = Some(now);
            status.reserved = reserved();
        }
        *drawn = Some(now);
        match output {
            Output::Off => {}
            Output::Plain(print) => print(&status.text()),
            Output::Terminal { bar, .. } => {
                bar.set_message(status.text());
                bar.force_draw();
            }
        }
    }

    /// Does `work`, which may print, while the line is off the terminal.
    pub fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.output {
            Output::Terminal { bar, .. } => bar.suspend(work),
            _ => work(),
        }
    }
}

/// The last line stays on a terminal.
impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Output::Terminal { bar, .. } = &self.output {
            if self.drawn.is_some() {
                bar.set_message(self.status.text());
            }
            bar.abandon();
        }
    }
}

impl Output {
    fn terminal(target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("BUG: the template is valid"));
        let above = bar.clone();
        let around: Arc<Around> = Arc::new(move |print: &mut dyn FnMut()| above.suspend(print));
        set_around(&around);
        Self::Terminal { bar, _around: around }
    }
}

/// Figures of a run so far.
#[derive(Default)]
struct Status {
    total: Option<u64>,
    steps_per_epoch: Option<u64>,
    steps: u64,
    samples: u64,
    loss: Option<f64>,
    reserved: Option<Bytes>,
    memory_total: Option<Bytes>,
    /// Ends of recent steps, the last one included.
    marks: VecDeque<Mark>,
}

/// Counts at the end of a step.
#[derive(Clone, Copy)]
struct Mark {
    at: Duration,
    steps: u64,
    samples: u64,
}

impl Status {
    fn step(&mut self, now: Duration, samples: u64, loss: Option<f64>) {
        self.steps += 1;
        self.samples += samples;
        self.loss = loss;
        let mark = Mark { at: now, steps: self.steps, samples: self.samples };
        // The first step compiles kernels, so that the speed counts from its end.
        match self.marks.len().checked_sub(2).map(|index| self.marks[index].at) {
            Some(before) if now.saturating_sub(before) < WINDOW / 60 => self.marks.pop_back(),
            _ => None,
        };
        self.marks.push_back(mark);
        while self.marks.len() > 2 && now.saturating_sub(self.marks[1].at) >= WINDOW {
            self.marks.pop_front();
        }
    }

    /// Steps and samples in a second, over the recent steps.
    fn speed(&self) -> Option<(f64, f64)> {
        let (first, last) = (self.marks.front()?, self.marks.back()?);
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        let per_second = |count: u64| count as f64 / seconds;
        (seconds > 0.0).then(|| (per_second(last.steps - first.steps), per_second(last.samples - first.samples)))
    }

    fn text(&self) -> String {
        let of = |total: Option<u64>| total.map(|total| format!("/{}", grouped(total))).unwrap_or_default();
        let mut text = format!("step {}{}", grouped(self.steps), of(self.total));
        if let Some(steps) = self.steps_per_epoch {
            let epochs = self.total.map(|total| total.div_ceil(steps));
            text += &format!(", epoch {}{}", grouped(self.steps.div_ceil(steps)), of(epochs));
        }
        let speed = self.speed();
        if let Some((_, samples)) = speed {
            text += &format!(", {} samples/s", three_digits(samples));
        }
        if let Some(reserved) = self.reserved {
            let total = self.memory_total.map(|total| format!(" of {total}")).unwrap_or_default();
            text += &format!(", {reserved}{total} reserved");
        }
        if let Some(loss) = self.loss {
            let is_small = loss != 0.0 && loss.abs() < 1e-3;
            text += &if is_small { format!(", loss {loss:.3e}") } else { format!(", loss {loss:.4}") };
        }
        if let (Some(total), Some((steps, _))) = (self.total, speed) {
            text += &format!(", {} left", clock(total.saturating_sub(self.steps) as f64 / steps));
        }
        text
    }
}
