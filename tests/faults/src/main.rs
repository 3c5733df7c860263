//! Writes one kind of file of the runtime, for `scripts/faults.sh`: `writes-files WHAT FOLDER`. Files that are there are
//! replaced or read, as in a training program. Ends with an error if the file was not written.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use burn::data::dataset::{Dataset, InMemDataset};
use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::store::ModuleRecord;
use burn::tensor::{Bytes, Tensor};
use gpu_tuned::load::{CachedDataset, LineDataset};
use gpu_tuned::lock::{LockFile, LockedWorkload};
use gpu_tuned::recording::{Record, Recorder, Run, StepRecord, Value};
use gpu_tuned::train::Trainer;
use gpu_tuned::{Options, SavedRun, Session, gpu_tuned};

/// Optimizer steps of 32 samples.
#[gpu_tuned(mlp(widths = [64, 64]), global_batch = 32, target = "generic")]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder] = words.as_slice() else { bail!("usage: writes-files WHAT FOLDER") };
    let folder = Path::new(folder);
    match what.as_str() {
        "plan" => plan(folder),
        "recording" => recording(folder),
        "events" => events(folder),
        "items" => items(folder),
        "lines" => lines(folder),
        "optimizer" => optimizer(folder),
        "checkpoint" => checkpoint(folder),
        "lock" => lock(folder),
        "trace" => trace(folder),
        other => bail!("`{other}` is no kind of file"),
    }
}

fn session() -> anyhow::Result<Session<Config>> {
    Ok(Options::default().cpu().start(Config::default())?)
}

/// Saves a plan and resumes it.
fn plan(folder: &Path) -> anyhow::Result<()> {
    session()?.save(folder)?;
    ensure!(SavedRun::load(folder)?.is_some(), "the saved plan is missing");
    Options::default().cpu().resume(folder).start(Config::default())?;
    Ok(())
}

fn records() -> impl Iterator<Item = Record> {
    let steps = (1..=40_u32).map(|number| {
        let mut step = StepRecord::new(1000.0 + f64::from(number), u64::from(number));
        (step.pid, step.samples, step.seconds, step.loss) = (Some(7), 32, 1.0, Some(1.0));
        Record::Step(Box::new(step))
    });
    [Record::Run(Box::new(Run::new(1000.0, 7)))].into_iter().chain(steps)
}

/// Records a run that flushes after every tenth record.
fn recording(folder: &Path) -> anyhow::Result<()> {
    let recorder = Recorder::append(folder.join("run.jsonl")).context("cannot record to `run.jsonl`")?;
    for (index, record) in records().enumerate() {
        recorder.record(record);
        if index % 10 == 0 {
            recorder.flush();
        }
    }
    recorder.record(Record::Value(Value::new(1041.0, "valid/loss", 0.5)));
    Ok(())
}

/// Writes TensorBoard's event file.
fn events(folder: &Path) -> anyhow::Result<()> {
    let mut writer = gpu_tuned::export::tensorboard::EventWriter::create(folder)
        .with_context(|| format!("cannot write events in `{}`", folder.display()))?;
    records()
        .try_for_each(|record| writer.record(&record))
        .and_then(|()| writer.flush())
        .context("events are not written")
}

/// Prepares items, keeps them, and reads all.
fn items(folder: &Path) -> anyhow::Result<()> {
    let source = InMemDataset::new((0..600_u32).map(|number| number.to_string()).collect());
    let cached = CachedDataset::open(source, folder.join("texts.items"), "numbers as texts")?;
    for index in 0..cached.len() {
        ensure!(cached.get(index)? == index.to_string(), "item {index} is another");
    }
    Ok(())
}

/// Indexes the lines of `corpus.txt`, and reads all.
fn lines(folder: &Path) -> anyhow::Result<()> {
    let lines = LineDataset::open(folder.join("corpus.txt"))?;
    ensure!(lines.len() == 500, "{} lines", lines.len());
    for index in 0..lines.len() {
        ensure!(lines.get(index)? == format!("line {}", index + 1), "line {index} is another");
    }
    Ok(())
}

/// Takes a step, and saves the model's and the optimizer's state; loads the state that is there first.
fn optimizer(folder: &Path) -> anyhow::Result<()> {
    let session = session()?;
    let layer = LinearConfig::new(64, 64).with_initializer(Initializer::Constant { value: 0.01 });
    let mut model: Linear = layer.init(&session.device());
    if folder.join("model.bpk").try_exists()? {
        // Burn reads a file late, and panics if it cannot.
        let bytes = Bytes::from_bytes_vec(std::fs::read(folder.join("model.bpk"))?);
        model = model.try_load_record(ModuleRecord::from_bytes(bytes)?)?;
    }
    let mut trainer: Trainer<Linear> = session.trainer(model, AdamWConfig::new().init())?;
    if folder.join("optimizer.bpk").try_exists()? {
        trainer.load_optimizer(folder)?;
    }
    let rows = Tensor::<2>::ones([32, 64], &session.device());
    trainer.step(0.01, rows, |model: &Linear, rows| model.forward(rows).powi_scalar(2).mean())?;
    if !folder.join("model.bpk").try_exists()? {
        trainer.master().clone().save_file(folder.join("model.bpk"))?;
    }
    trainer.save_optimizer(folder)?;
    Ok(())
}

/// Starts a run with one step, or takes its second step, and keeps the newest checkpoint.
fn checkpoint(folder: &Path) -> anyhow::Result<()> {
    let session = Options::default().cpu().resume_or_start(folder).start(Config::default())?;
    let mut checkpoints = session.checkpoints(folder)?.every_steps(1).keep(1);
    let steps = if checkpoints.resumed().is_some() { 2 } else { 1 };
    let layer = LinearConfig::new(64, 64).with_initializer(Initializer::Constant { value: 0.01 });
    let mut trainer = checkpoints.trainer(&session, layer.init(&session.device()), AdamWConfig::new().init())?;
    while checkpoints.steps() < steps {
        let rows = Tensor::<2>::ones([32, 64], &session.device());
        trainer.step(0.01, rows, |model: &Linear, rows| model.forward(rows).powi_scalar(2).mean())?;
        checkpoints.step(&trainer)?;
    }
    Ok(checkpoints.finish(&trainer)?)
}

/// Updates the lock with a workload's measurements.
fn lock(folder: &Path) -> anyhow::Result<()> {
    let mut workload = LockedWorkload::default();
    workload.measured.parameters = 60_074;
    LockFile::new(folder.join("gpu-tuned.lock")).update("digits", &workload)?;
    Ok(())
}

/// Writes the trace of two steps when the trainer ends.
fn trace(folder: &Path) -> anyhow::Result<()> {
    let steps = "1..2".parse().context("BUG: steps")?;
    let session = Options::default().cpu().trace(folder.join("steps.json"), steps).start(Config::default())?;
    let layer = LinearConfig::new(64, 64).with_initializer(Initializer::Constant { value: 0.01 });
    let mut trainer = session.trainer(layer.init(&session.device()), AdamWConfig::new().init())?;
    for _ in 0..2 {
        let rows = Tensor::<2>::ones([32, 64], &session.device());
        trainer.step(0.01, rows, |model: &Linear, rows| model.forward(rows).powi_scalar(2).mean())?;
    }
    Ok(())
}
