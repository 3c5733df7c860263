//! Setup after setup, none that would run out of memory, with the file of results and the output.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Kernels, three_digits};
use gpu_tuned_observe::bench::{Begin, Figures, Header, Line, Outcome, Phases, Sections, Setup};
use gpu_tuned_train::out_of_memory::is_out_of_memory;

use super::StepRunner;
use crate::measure::{MeasureError, Memory, Step};

/// Micro-batches whose memory predicts that of larger ones, without a dry run.
const PROBES: [u64; 2] = [1, 2];

/// The setups of one process.
pub(super) struct Sweep<'c> {
    pub(super) runner: &'c dyn StepRunner,
    /// Samples that a step has on one rank.
    pub(super) largest: u64,
    /// With and without recomputing activations, as far as the model can be had so.
    pub(super) checkpointing: &'static [bool],
    /// Results on record, including those of this process.
    pub(super) known: Vec<(Setup, Outcome)>,
    pub(super) journal: &'c mut Journal,
    /// Called after output.
    pub(super) after_output: &'c dyn Fn(),
    /// Other kernels that can compute the operations of steps, once steps ran.
    pub(super) other_kernels: &'c dyn Fn() -> Option<Kernels>,
}

impl Sweep<'_> {
    /// Runs what is not on record. Ends before the last of them where memory ran out.
    pub(super) fn run(mut self, setups: &[Setup]) -> Result<(), MeasureError> {
        let is_done = |setup: &Setup| self.outcome(*setup).is_some_and(|outcome| !outcome.is_transient());
        let todo: Vec<_> = setups.iter().copied().filter(|setup| !is_done(setup)).collect();
        self.known.retain(|(_, outcome)| !outcome.is_transient());
        let mut progress = Progress::new(setups, todo.len());
        let mut memory = self.known_memory();
        let mut other_kernels = None;
        for setup in todo {
            let begin = Instant::now();
            self.journal.add(&Line::Started(setup))?;
            let outcome = self.attempt(setup, memory.entry(setup.mode()).or_default())?;
            self.journal.add(&Line::Ended { setup, outcome: Box::new(outcome.clone()) })?;
            if other_kernels.is_none() {
                other_kernels = (self.other_kernels)();
                other_kernels.map_or(Ok(()), |kernels| self.journal.add(&Line::OtherKernels(kernels)))?;
            }
            eprintln!("  {}", line(&progress.after(setup, begin.elapsed()), &outcome));
            (self.after_output)();
            let is_over = matches!(outcome, Outcome::OutOfMemory { .. });
            self.known.push((setup, outcome));
            if is_over {
                eprintln!("  memory ran out: what is tuned in this process from now on may be slow, so that it ends");
                return Ok(());
            }
        }
        Ok(())
    }

    fn outcome(&self, setup: Setup) -> Option<&Outcome> {
        self.known.iter().rev().find(|(known, _)| *known == setup).map(|(_, outcome)| outcome)
    }

    /// Measured memory by mode and batch.
    fn known_memory(&self) -> BTreeMap<Mode, KnownMemory> {
        let mut memory: BTreeMap<Mode, KnownMemory> = BTreeMap::new();
        for (setup, outcome) in self.known.iter().filter(|(setup, _)| setup.feed.is_none()) {
            memory.entry(setup.mode()).or_default().learn(setup.batch, outcome.figures());
        }
        memory
    }

    fn attempt(&self, setup: Setup, memory: &mut KnownMemory) -> Result<Outcome, MeasureError> {
        if setup.batch > self.largest {
            return Ok(Outcome::TooLarge { samples: self.largest });
        }
        if !self.checkpointing.contains(&setup.checkpointing) {
            let how = if setup.checkpointing { "without" } else { "with" };
            let message = format!("the program makes its model on a device {how} gradient checkpointing");
            return Ok(Outcome::Failed { message });
        }
        let step = Step::single(setup.batch, setup.checkpointing);
        let outcome = match setup.feed {
            None => self.alone(step, memory),
            // Where steps do not run with their batch at hand, they do not run otherwise.
            Some(feed) => match self.outcome(setup.unfed()) {
                Some(Outcome::Measured(_)) => {
                    self.runner.run_fed(step, feed).map(|figures| figures.map_or(Outcome::Unfed, Outcome::Measured))
                }
                Some(outcome) => Ok(outcome.clone()),
                None => Ok(Outcome::Failed { message: "it did not run by itself".to_owned() }),
            },
        };
        outcome.or_else(failure)
    }

    fn alone(&self, step: Step, memory: &mut KnownMemory) -> Result<Outcome, MeasureError> {
        let batch = step.batch as u64;
        for probe in PROBES.into_iter().filter(|probe| *probe < batch) {
            if memory.0.keys().all(|known| *known == PROBES[0]) {
                // Models that take no batch so small are run without knowing.
                let probed = self.runner.probe(Step { batch: probe as usize, ..step }).ok().flatten();
                memory.add(probe, probed.map(|memory| memory.reserved_bytes));
            }
        }
        let available_bytes = self.runner.room()?;
        let misfit = |needed_bytes| Outcome::DoesNotFit { needed_bytes, available_bytes };
        if let Some(needed) = memory.expected(batch).filter(|needed| *needed > available_bytes) {
            return Ok(misfit(needed));
        }
        let foreseen = self.runner.foresee(step)?;
        let predicted_bytes = foreseen.map(|memory| memory.reserved_bytes);
        memory.add(batch, predicted_bytes);
        if let Some(needed) = predicted_bytes.filter(|needed| *needed > available_bytes) {
            return Ok(misfit(needed));
        }
        let in_use = foreseen.and_then(|Memory { in_use_bytes, .. }| in_use_bytes);
        let ran = self.runner.run(step)?;
        let figures = Figures { predicted_bytes, in_use_bytes: ran.in_use_bytes.or(in_use), ..ran };
        memory.learn(batch, Some(&figures));
        Ok(Outcome::Measured(figures))
    }
}

/// Turns a failed step into an outcome. Other errors end the process.
fn failure(error: MeasureError) -> Result<Outcome, MeasureError> {
    match error {
        MeasureError::Step { message, .. } if is_out_of_memory(&message) => Ok(Outcome::OutOfMemory { message }),
        MeasureError::Step { message, .. } => Ok(Outcome::Failed { message }),
        error => Err(error),
    }
}

/// Measured memory of one mode by batch.
#[derive(Debug, Default)]
struct KnownMemory(BTreeMap<u64, Bytes>);

impl KnownMemory {
    fn add(&mut self, batch: u64, bytes: Option<Bytes>) {
        let known = self.0.get(&batch).copied();
        self.0.extend(bytes.max(known).map(|bytes| (batch, bytes)));
    }

    fn learn(&mut self, batch: u64, figures: Option<&Figures>) {
        self.add(batch, figures.and_then(|figures| figures.reserved_bytes.max(figures.predicted_bytes)));
    }

    /// Extrapolated memory of a batch, from the two nearest smaller ones; `None` for fewer.
    fn expected(&self, batch: u64) -> Option<Bytes> {
        let mut smaller = self.0.range(..batch).rev();
        let ((b, above), (a, below)) = (smaller.next()?, smaller.next()?);
        let slope = (above.0 as f64 - below.0 as f64).max(0.0) / (b - a) as f64;
        Some(*above + Bytes((slope * (batch - b) as f64) as u64))
    }
}

/// File of results. Only one process writes it at a time.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    pub(super) fn open(path: &Path) -> Result<Self, MeasureError> {
        let failed = |source| MeasureError::Results { path: path.to_owned(), source };
        let mut file = File::options().create(true).append(true).read(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let busy = io::Error::new(ErrorKind::WouldBlock, "another process is writing it");
                return Err(failed(busy));
            }
            // As with the lock of measurements: a file system without locks is no reason not to write.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        end_line(&mut file).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Results on record below the header, without those in the first `ignored_bytes`.
    pub(super) fn known(&self, ignored_bytes: u64, header: &Header) -> Result<Vec<(Setup, Outcome)>, MeasureError> {
        let bytes = fs::read(&self.path).map_err(|source| self.failed(source))?;
        let from = usize::try_from(ignored_bytes).unwrap_or(usize::MAX).min(bytes.len());
        // A line that was cut off is one that was never written.
        let lines = bytes[from..].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let record = Sections::from_lines(lines);
        let known = record.section(header).map(|section| section.outcomes.clone());
        Ok(known.unwrap_or_default().into_iter().collect())
    }

    /// Records the begin of a process.
    pub(super) fn begin(&mut self, header: Header, begin: Begin) -> Result<(), MeasureError> {
        self.add(&Line::Header(Box::new(header)))?;
        self.add(&Line::Begin(begin))
    }

    /// Adds a line in one piece, and sees that it lasts.
    pub(super) fn add(&mut self, line: &Line) -> Result<(), MeasureError> {
        let mut text = serde_json::to_string(line).expect("BUG: a line is always JSON");
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> MeasureError {
        MeasureError::Results { path: self.path.clone(), source }
    }
}

/// Ends a line that was cut off.
fn end_line(file: &mut File) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    if text.last().is_some_and(|last| *last != b'\n') { file.write_all(b"\n") } else { Ok(()) }
}

pub(super) fn print_begin(name: &str, device: &str, setups: &[Setup], known: &[(Setup, Outcome)]) {
    let is_known = |setup: &&Setup| known.iter().any(|(known, outcome)| known == *setup && !outcome.is_transient());
    let on_record = setups.iter().filter(is_known).count();
    let rest = if on_record > 0 { format!(", {on_record} of them on record") } else { String::new() };
    let s = if setups.len() == 1 { "" } else { "s" };
    eprintln!("benching {name} on {device}: {} setup{s}{rest}", setups.len());
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
mod tests;
