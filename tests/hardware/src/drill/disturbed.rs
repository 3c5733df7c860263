//! Runs that are disturbed.

use std::collections::{BTreeMap, btree_map::Entry};
use std::time::Instant;

use burn::module::Module;
use gpu_tuned::{
    MicroBatch,
    train::{StepError, Trainer},
};

use super::{
    Arguments, Drill, PATIENCE, STAY,
    hooks::optimizer,
    model::{Encoder, Frames},
    neighbour::Left,
    report::{Never, Report},
    runs::{Bench, LEARNING_RATE, Timed, Undisturbed},
};
use crate::{catching::catching, device::release};

/// Steps with an attempt to exhaust memory.
const TRIALS: usize = 4;
/// Samples of the step that never fits; few, because the trainer retries down to one sample.
const NEVER_SAMPLES: usize = 64;

/// Progress of a run, reported even if the run ended early.
#[derive(Default)]
pub(super) struct Run {
    pub(super) steps: Vec<Timed>,
    /// Batches of the loader that had not been brought to the device.
    pub(super) on_host: usize,
}

/// A disturbed run of a fresh model. Adds missing undisturbed runs, for comparison, to `known`.
pub(super) fn drilled<'a>(
    arguments: &'a Arguments,
    bench: &'a Bench,
    known: &mut BTreeMap<usize, Undisturbed>,
    repeat: usize,
) -> anyhow::Result<Report<'a>> {
    let mut trainer = bench.trainer()?;
    if arguments.drill.grows() {
        trainer = trainer.grow_after(PATIENCE);
    }
    let mut run = Run::default();
    let outcome = catching(|| match arguments.drill {
        Drill::Loader => from_loader(arguments, bench, &mut trainer, &mut run),
        _ => from_host(arguments, bench, &mut trainer, &mut run),
    });
    bench.hooks.release();
    let (taken, trouble) = bench.hooks.taken();
    drop(trainer);
    release(&bench.session.inner_device())?;
    let mut report = Report::new(arguments, bench, repeat, run);
    (report.taken, report.trouble, report.error) = (taken, trouble, outcome.err().map(|failure| failure.message));
    let sizes = [bench.planned(), report.micro_batch_after.unwrap_or(bench.planned())];
    report.warmed = sizes.iter().all(|size| known.contains_key(size));
    for size in sizes {
        if let Entry::Vacant(unknown) = known.entry(size) {
            unknown.insert(bench.undisturbed(size, arguments.steps())?.0);
        }
    }
    report.compare(&known[&sizes[0]], &known[&sizes[1]]);
    Ok(report)
}

/// Steps over batches in host memory; the trainer uploads their micro-batches.
fn from_host(
    arguments: &Arguments,
    bench: &Bench,
    trainer: &mut Trainer<Encoder>,
    run: &mut Run,
) -> anyhow::Result<()> {
    let before = arguments.before();
    for step in 0..arguments.steps() {
        let rescued = run.steps.iter().any(|timed| !timed.step.rescues.is_empty());
        match arguments.drill.disturbance(arguments.share) {
            Some(disturbance) if (before..before + TRIALS).contains(&step) && !rescued => bench.hooks.arm(disturbance),
            None if step == before => bench.hooks.take(Left::Share(arguments.share)),
            None if step == before + STAY && arguments.drill == Drill::Goes => bench.hooks.release(),
            _ => {}
        }
        run.steps.push(bench.step(trainer, bench.batch(step))?);
    }
    Ok(())
}

/// Steps over batches of the session's loader. Memory is taken at the upload of an epoch's first batch, when the
/// trainer has nothing to do.
fn from_loader(
    arguments: &Arguments,
    bench: &Bench,
    trainer: &mut Trainer<Encoder>,
    run: &mut Run,
) -> anyhow::Result<()> {
    // Whole steps may wait on the device, however small the planned micro-batches are.
    let loader = bench.session.loader(bench.dataset(), bench.batcher()).device_samples(2 * bench.samples());
    let device = bench.session.inner_device();
    while run.steps.len() < arguments.steps() {
        device.sync()?;
        if run.steps.len() == arguments.before()
            && let Some(disturbance) = arguments.drill.disturbance(arguments.share)
        {
            bench.hooks.arm(disturbance);
        }
        let left = arguments.steps() - run.steps.len();
        for batch in loader.iter().take(left) {
            let batch = batch?;
            run.on_host += usize::from(!batch.is_brought());
            run.steps.push(bench.step(trainer, batch)?);
        }
    }
    Ok(())
}

/// A step that fits with no micro-batch.
pub(super) fn never(arguments: &Arguments, bench: &Bench, repeat: usize) -> anyhow::Result<Never> {
    let device = bench.session.inner_device();
    let batch = bench.batch(0).narrow(0..NEVER_SAMPLES.min(bench.samples()));
    let small = || batch.narrow(0..4);
    // Loads the kernels before memory runs out.
    let mut warm = Trainer::new(bench.model.clone(), optimizer(&bench.hooks), bench.session.device(), 2);
    for _ in 0..2 {
        bench.step(&mut warm, small())?;
    }
    let mut trainer = bench.trainer()?;
    let loss_before = loss(bench, &trainer, small())?;
    drop(warm);
    release(&device)?;
    if let Some(disturbance) = arguments.drill.disturbance(arguments.share) {
        bench.hooks.arm(disturbance);
    }
    let begin = Instant::now();
    let mut found = Never { drill: "never", repeat, loss_before, ..Never::default() };
    let outcome = catching(|| {
        let step = trainer.step(LEARNING_RATE, batch.clone(), |model: &Encoder, micro| bench.loss(model, micro));
        match step {
            Ok(step) => found.step = Some(step),
            Err(error) => {
                found.does_not_fit = matches!(error, StepError::DoesNotFit { .. });
                found.itemised = matches!(error, StepError::DoesNotFit { plan: Some(_), .. });
                found.error = Some(error.to_string());
            }
        }
        Ok(())
    });
    found.panic = outcome.err().map(|failure| failure.message);
    found.seconds = begin.elapsed().saturating_sub(bench.hooks.spent()).as_secs_f64();
    bench.hooks.release();
    (found.taken, found.trouble) = bench.hooks.taken();
    found.loss_after = loss(bench, &trainer, small()).ok();
    found.next = bench.step(&mut trainer, small()).ok();
    drop(trainer);
    release(&device)?;
    Ok(found)
}

/// The present loss of the model.
fn loss(bench: &Bench, trainer: &Trainer<Encoder>, batch: Frames) -> anyhow::Result<f32> {
    let batch = MicroBatch::on_device(batch, &bench.session.inner_device());
    Ok(trainer.model().valid().loss(batch).try_into_scalar::<f32>()?)
}
