//! Plans a task from measured steps.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::Context;
use burn::{optim::AdamWConfig, tensor::Device};
use gpu_tuned::{
    DeviceFacts, Goal, MicroBatch, Pins, Plan, Precision, Session, Setting, Settings, Tuned, WorkloadSpec, detect,
    measure::{Step, Subject, timed},
};
use gpu_tuned_core::{
    matching::identify,
    measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode},
    plan,
    profile::ProfileTable,
};
use hardware_tests::device::started;
use serde::Serialize;

use super::task::Task;

/// Target utilisation of the plan.
const BUSY: f64 = 0.98;
/// Time limit for timing a warm micro-batch.
const SPEND: Duration = Duration::from_secs(1);
/// Time ratio to the smallest micro-batch below which a micro-batch is launch-bound.
const LAUNCHES: f64 = 1.25;
/// Time limit for timing the preparation of samples.
const PREPARING: Duration = Duration::from_millis(300);
/// Samples that are prepared at a time meanwhile.
const PREPARED: usize = 64;

/// A micro-batch that was timed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Timed {
    batch: u64,
    micro_step_ms: f64,
    optimizer_ms: f64,
    spread: f64,
}

/// Plans, and their measurements.
#[derive(Debug, Serialize)]
pub(super) struct Planned {
    /// In words.
    goal: String,
    measured: Vec<Timed>,
    /// Preparation time on one core.
    host_ms_per_sample: f64,
    /// With compiling and tuning.
    measuring_seconds: f64,
    /// The micro-batch that is planned without a measurement.
    derived_batch_size: u64,
    pub(super) f32: Settings,
    /// Settings in 16 bits for the same batch.
    pub(super) half: Settings,
    predicted_samples_per_second: f64,
    /// Reasons for the micro-batch and for the number of workers.
    reasons: Vec<String>,
}

/// Times the steps of a task in f32, at a few micro-batches, and plans by them.
///
/// `cargo gpu-tuned measure` takes minutes, because it also measures memory, with and without checkpointing, at many
/// micro-batches. Here memory follows from the description.
pub(super) fn planned<T: Task>(
    task: &T,
    session: &Session<T::Config>,
    half: Precision,
    until: Instant,
) -> anyhow::Result<Planned> {
    let begin = Instant::now();
    let host_ms_per_sample = host_ms(task)?;
    let measured = measured(task, &session.inner_device(), until)?;
    let measuring_seconds = begin.elapsed().as_secs_f64();
    let case = Case { facts: facts(session)?, described: task.config().workload(), goal: T::Config::goal() };
    let [best, in_half] = case.plans(&measured, host_ms_per_sample, half)?;
    Ok(Planned {
        goal: format!(
            "the smallest micro-batch that keeps the device {:.0}% busy; the global batch is left free, and is the \
             micro-batch",
            BUSY * 100.0
        ),
        measured,
        host_ms_per_sample,
        measuring_seconds,
        derived_batch_size: session.plan().settings.batch_size,
        f32: best.settings,
        half: Settings { precision: half, ..in_half.settings },
        predicted_samples_per_second: best.samples_per_s,
        reasons: reasons(&best),
    })
}

/// Inputs of plans except for measurements.
struct Case {
    facts: DeviceFacts,
    described: WorkloadSpec,
    goal: Goal,
}

impl Case {
    /// The plan in fp32, and the plan of the same batch in 16 bits, with times that the planner scales from fp32.
    fn plans(self, measured: &[Timed], host_ms_per_sample: f64, half: Precision) -> anyhow::Result<[Plan; 2]> {
        let Self { facts, described, goal } = self;
        let name = facts.profile.clone().unwrap_or_else(|| facts.name.clone());
        let workload = described.workload().with_measured(Measured {
            host_ms_per_sample: Some(host_ms_per_sample),
            on: BTreeMap::from([(name, on(&facts, measured))]),
            ..Measured::default()
        });
        let goal = Goal { target_utilization: Some(BUSY), ..goal };
        let best = plan::plan(&facts, &workload, &goal).context("nothing is planned")?;
        let mut pins = Pins::default();
        pins.batch_size = Some(best.settings.batch_size);
        // Without bf16 the session reports it.
        let precision = Some(half).filter(|half| facts.has_bf16 || !half.needs_bf16()).map(Into::into);
        let in_half = plan::plan(&facts, &workload, &Goal { precision, pins, ..goal });
        Ok([best, in_half.context("nothing is planned in 16 bits")?])
    }
}

fn reasons(plan: &Plan) -> Vec<String> {
    let asked = [Setting::BatchSize, Setting::NumWorkers];
    let reported = plan.reasons.iter().filter(|reason| asked.contains(&reason.setting));
    reported.map(|reason| format!("{} ({}): {}", reason.setting, reason.provenance, reason.why)).collect()
}

/// A session of these settings.
pub(super) fn session<T: Task>(
    task: &T,
    gpu: usize,
    settings: Option<&Settings>,
) -> anyhow::Result<Session<T::Config>> {
    let mut config = task.config();
    if let Some(settings) = settings {
        config.apply(settings);
    }
    started(config, gpu)
}

/// Times micro-batches from the smallest upwards, two at least, for as long as launches bound them and there is time.
fn measured<T: Task>(task: &T, device: &Device, until: Instant) -> anyhow::Result<Vec<Timed>> {
    let on_device = |samples, device: &Device| {
        let batch = task.first(samples).expect("BUG: samples that are made cannot fail");
        batch.on_device(device)
    };
    let subject = Subject::new(|device| task.model(device), || AdamWConfig::new().init(), on_device, T::loss);
    let mut all: Vec<Timed> = Vec::new();
    for batch in task.batch_sizes() {
        let bound = |last: &Timed| last.micro_step_ms < LAUNCHES * all[0].micro_step_ms;
        if all.len() >= 2 && (Instant::now() > until || !all.last().is_some_and(bound)) {
            break;
        }
        match timed(device, &subject, Step { batch, micro_batches: 1, checkpointing: false, cuda_graphs: false }, SPEND)
        {
            Ok(times) => all.push(Timed {
                batch: batch as u64,
                micro_step_ms: times.micro_step_ms,
                optimizer_ms: times.optimizer_ms,
                spread: times.spread,
            }),
            Err(error) if all.is_empty() => return Err(error.into()),
            Err(error) => {
                eprintln!("no larger micro-batch is timed: {error}");
                break;
            }
        }
    }
    Ok(all)
}

/// Milliseconds that one core takes for a sample, a median.
fn host_ms<T: Task>(task: &T) -> anyhow::Result<f64> {
    let mut all = Vec::new();
    let begin = Instant::now();
    while all.len() < 3 || begin.elapsed() < PREPARING {
        let begin = Instant::now();
        std::hint::black_box(task.first(PREPARED)?);
        all.push(begin.elapsed().as_secs_f64() * 1e3 / PREPARED as f64);
    }
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

/// A plan's facts of the session's device.
fn facts<C>(session: &Session<C>) -> anyhow::Result<DeviceFacts> {
    let host = detect().host;
    let Some(gpu) = session.selection().gpu.as_ref().map(|gpu| &gpu.reading) else {
        return Ok(DeviceFacts::cpu(host.memory_total, host.memory_available, host.cores));
    };
    let found = identify(gpu, &ProfileTable::default());
    DeviceFacts::from_reading(gpu, found.profile(), Some(host.cores)).context("the GPU's memory is not known")
}

fn on(facts: &DeviceFacts, measured: &[Timed]) -> MeasuredOn {
    let point = |timed: &Timed| MeasuredBatch {
        micro_step_ms: Some(timed.micro_step_ms),
        optimizer_ms: Some(timed.optimizer_ms),
        spread: Some(timed.spread),
        ..MeasuredBatch::default()
    };
    let batch = measured.iter().map(|timed| (timed.batch, point(timed))).collect();
    let mode = Mode::new(Precision::F32, false);
    let of_mode = MeasuredMode { method: MeasurementMethod::Executed, is_partial: false, batch };
    MeasuredOn {
        device: facts.name.clone(),
        kind: facts.kind,
        memory_bytes: facts.memory_total,
        sm_count: facts.sm_count,
        fp32_tflops: facts.fp32_tflops,
        bandwidth_gb_s: facts.bandwidth_gb_s,
        driver: None,
        burn: "of this program".to_owned(),
        cubecl: None,
        context_bytes: None,
        kernels_bytes: None,
        mode: BTreeMap::from([(mode, of_mode)]),
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned::{Precision, Tuned};

    use super::{super::patches::Patches, super::series::Series, Case, Task, Timed};
    use hardware_tests::planned::h200;

    /// Micro-batch, workers and workers in 16 bits that are planned for an H200 with 16 cores.
    fn planned<T: Task>(task: &T, host_ms: f64, times: &[(u64, f64)]) -> [u64; 3] {
        let point = |&(batch, ms): &(u64, f64)| Timed { batch, micro_step_ms: ms, optimizer_ms: 0.5, spread: 0.01 };
        let facts = gpu_tuned::DeviceFacts { host_cores: Some(16), ..h200(None).unwrap() };
        let case = Case { facts, described: task.config().workload(), goal: T::Config::goal() };
        let measured: Vec<_> = times.iter().map(point).collect();
        let [best, half] = case.plans(&measured, host_ms, Precision::MixedBf16).unwrap();
        assert_eq!((best.settings.precision, half.settings.precision), (Precision::F32, Precision::MixedBf16));
        assert_eq!(
            (half.settings.batch_size, half.schedule.global_batch),
            (best.settings.batch_size, best.settings.batch_size)
        );
        [best.settings.batch_size, best.settings.num_workers, half.settings.num_workers]
    }

    /// Times that are made up, for steps that launches bound and steps that they do not.
    #[test]
    fn batches_grow_until_the_device_and_not_launches_bounds_them() {
        let series = Series::new(true);
        assert_eq!(planned(&series, 1e-3, &[(128, 110.0), (8192, 112.0), (65536, 250.0)])[0], 65536);
        assert_eq!(planned(&series, 1e-3, &[(128, 110.0), (8192, 500.0)])[0], 8192);
        let [batch, workers, in_half] = planned(&Patches::new(true), 1.2, &[(16, 8.0), (256, 45.0)]);
        // 5626 samples a second take 6.8 cores, and a quarter more is planned; 16 bits are predicted to need more still.
        assert_eq!((batch, workers), (256, 9));
        assert!((10..=15).contains(&in_half), "{in_half}");
    }
}
