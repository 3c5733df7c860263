//! A trace that a program records of its own steps.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{STEPS_VARIABLE, Steps, Trace, VARIABLE};
use crate::log;

/// Spans in a trace at most: hundreds of steps with many micro-batches.
const MAX_SPANS: usize = 200_000;

/// Records spans during the requested steps, and writes them after the last of these steps. Clones share the trace.
#[derive(Clone)]
pub struct Tracer(Arc<Live>);

struct Live {
    file: PathBuf,
    steps: Steps,
    begin: Instant,
    is_on: AtomicBool,
    taken: AtomicU64,
    spans: Mutex<Spans>,
}

#[derive(Default)]
struct Spans {
    trace: Trace,
    is_written: bool,
}

impl Tracer {
    /// Creates the tracer that the environment asks for with [`VARIABLE`] and [`STEPS_VARIABLE`], else the one that the
    /// program asks for. Steps that cannot be parsed cause a warning.
    pub fn from_env_or(asked: Option<(PathBuf, Steps)>) -> Option<Self> {
        let (file, mut steps) = match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(file) => (file.into(), Steps::default()),
            None => asked?,
        };
        match std::env::var(STEPS_VARIABLE).map(|text| text.parse()) {
            Ok(Ok(named)) => steps = named,
            Ok(Err(error)) => log::warn_user(&format!("{STEPS_VARIABLE}: {error}; steps {steps} are traced")),
            Err(_) => {}
        }
        Some(Self::new(file, steps))
    }

    /// Creates a tracer that writes `steps` to `file`.
    pub fn new(file: PathBuf, steps: Steps) -> Self {
        let is_on = AtomicBool::new(steps.first <= 1);
        let (begin, taken) = (Instant::now(), AtomicU64::new(0));
        let tracer = Self(Arc::new(Live { file, steps, begin, is_on, taken, spans: Mutex::default() }));
        tracer.0.spans().trace.name_process(std::process::id(), &program());
        tracer
    }

    /// Returns whether spans are recorded now.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Relaxed)
    }

    /// Adds a span to a row.
    pub fn span(&self, track: &str, name: &str, begin: Instant, end: Instant, figures: &[(&'static str, f64)]) {
        let micros = |at: Instant| at.saturating_duration_since(self.0.begin).as_secs_f64() * 1e6;
        let mut spans = self.0.spans();
        if !spans.is_written && spans.trace.len() < MAX_SPANS {
            let track = spans.trace.track(std::process::id(), track);
            let (at, length) = (micros(begin), micros(end) - micros(begin));
            spans.trace.complete(track, name, at, length, figures);
        }
    }

    /// Ends a step of a rank. The steps of the first rank switch the trace on and off.
    pub fn end_step(&self, rank: u64, step: u64) {
        if rank != 0 {
            return;
        }
        self.0.taken.store(step, Relaxed);
        if step + 1 >= self.0.steps.first && step < self.0.steps.last {
            self.0.is_on.store(true, Relaxed);
        } else if step >= self.0.steps.last && self.0.is_on.swap(false, Relaxed) {
            self.0.write();
        }
    }
}

impl Live {
    fn spans(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) {
        let trace = {
            let mut spans = self.spans();
            spans.is_written = true;
            std::mem::take(&mut spans.trace)
        };
        match trace.save(&self.file) {
            Ok(()) => tracing::info!("trace of steps {} written to `{}`", self.steps, self.file.display()),
            Err(error) => log::warn_user(&format!("no trace: `{}` cannot be written: {error}", self.file.display())),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let taken = self.taken.load(Relaxed);
        if self.spans().is_written {
            return;
        }
        if taken < self.steps.first {
            log::warn_user(&format!(
                "no trace: the run ended after {taken} steps, before steps {}; name others with {STEPS_VARIABLE}",
                self.steps
            ));
            return;
        }
        self.write();
    }
}

/// Name of this program.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or(Path::new("program").as_os_str());
    name.to_string_lossy().into_owned()
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("file", &self.0.file).field("steps", &self.0.steps).finish_non_exhaustive()
    }
}
