//! A process of the comparison: a model in fp32 or in 16 bits, because a device has one default float type in a
//! process.

use std::{
    panic::AssertUnwindSafe,
    time::{Duration, Instant},
};

use gpu_tuned::{Precision, Session, Settings};
use hardware_tests::{
    catching::{Failure, catching},
    device::options,
    line::print_under,
};
use serde::Serialize;

use super::{
    Arguments, Model, Part,
    patches::Patches,
    plan::{Planned, planned, session},
    run_stats::RunStats,
    series::Series,
    task::Task,
    ways,
};

/// Common fields of a line.
#[derive(Serialize)]
struct Head {
    run: &'static str,
    model: Model,
    way: &'static str,
    #[serde(flatten)]
    settings: Option<Shown>,
}

/// The settings that were trained with.
#[derive(Serialize)]
struct Shown {
    batch_size: u64,
    global_batch: u64,
    precision: Precision,
    num_workers: u64,
    prefetch_depth: u64,
    /// True for a plan from measurements, false for a plan without.
    by_measurement: bool,
}

/// Reason for a missing line.
#[derive(Serialize)]
struct Skipped {
    skipped: &'static str,
}

/// Does a part, and prints a line for all that it finds out.
pub(super) fn run(arguments: &Arguments, model: Model, part: Part) -> anyhow::Result<()> {
    match model {
        Model::Lstm => Running { arguments, model, task: Series::new(arguments.small) }.run(part),
        Model::Cnn => Running { arguments, model, task: Patches::new(arguments.small) }.run(part),
    }
}

struct Running<'a, T> {
    arguments: &'a Arguments,
    model: Model,
    task: T,
}

impl<T: Task> Running<'_, T> {
    fn run(&self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::F32 => self.in_f32(),
            Part::Half => self.in_half(),
        }
    }

    /// Runs the naive method, a plan, and the planned method; then intermediate methods, if there is time.
    fn in_f32(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        let until = begin + Duration::from_secs_f64(self.arguments.allotted.unwrap_or(self.arguments.budget));
        let looking = session(&self.task, self.arguments.gpu, None)?;
        let batch = self.task.naive_batch() as u64;
        let naive = Shown {
            batch_size: batch,
            global_batch: batch,
            precision: Precision::F32,
            num_workers: 0,
            prefetch_depth: 0,
            by_measurement: false,
        };
        self.say("naive", Some(naive), || ways::naive(&self.task, &looking, self.arguments.seconds))?;
        let planned = catching(|| planned(&self.task, &looking, self.arguments.precision, until));
        print_under(&self.head("plan", None), &planned)?;
        let settings = planned.as_ref().map(|planned: &Planned| planned.f32).ok();
        self.tuned("tuned_f32", settings, settings.is_some())?;
        let before = settings.unwrap_or(looking.plan().settings);
        let workers = Settings { batch_size: batch, gradient_accumulation: 1, ..before };
        if Instant::now() < until {
            self.tuned("naive_with_workers", Some(workers), settings.is_some())
        } else {
            let skipped = Skipped { skipped: "no time is left for what lies between" };
            print_under(&self.head("naive_with_workers", None), &Ok(skipped))
        }
    }

    /// Runs the planned method; without a plan, the settings planned without measurements.
    fn in_half(&self) -> anyhow::Result<()> {
        let given = self.arguments.settings.as_deref().map(serde_json::from_str::<Settings>).transpose()?;
        let precision = self.arguments.precision;
        let settings = match given {
            Some(settings) => settings,
            None => Settings { precision, ..self.derived()? },
        };
        self.tuned("tuned_half", Some(settings), given.is_some())
    }

    /// Settings that a session plans without measurements; opens no device.
    fn derived(&self) -> anyhow::Result<Settings> {
        Ok(options(self.arguments.gpu).decide(&self.task.config())?.plan.settings)
    }

    /// The library's way with these settings.
    fn tuned(&self, way: &'static str, settings: Option<Settings>, by_measurement: bool) -> anyhow::Result<()> {
        let session = match catching(|| session(&self.task, self.arguments.gpu, settings.as_ref())) {
            Ok(session) => session,
            Err(failure) => return print_under::<_, ()>(&self.head(way, None), &Err(failure)),
        };
        let shown = shown(&session, by_measurement);
        self.say(way, Some(shown), || ways::tuned(&self.task, &session, self.arguments.seconds))
    }

    fn say(
        &self,
        way: &'static str,
        settings: Option<Shown>,
        take: impl FnOnce() -> anyhow::Result<RunStats>,
    ) -> anyhow::Result<()> {
        let outcome: Result<RunStats, Failure> = catching(AssertUnwindSafe(take));
        print_under(&self.head(way, settings), &outcome)
    }

    fn head(&self, way: &'static str, settings: Option<Shown>) -> Head {
        Head { run: "naive", model: self.model, way, settings }
    }
}

fn shown<C>(session: &Session<C>, by_measurement: bool) -> Shown {
    let settings = session.plan().settings;
    Shown {
        batch_size: settings.batch_size,
        global_batch: session.schedule().global_batch,
        precision: settings.precision,
        num_workers: settings.num_workers,
        prefetch_depth: settings.prefetch_depth,
        by_measurement,
    }
}
