//! Checkpoints of a training run: saved while it trains, resumed by the next start.

mod files;
mod stop;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io, process};

use burn::data::dataloader::DataLoaderIterator;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::store::{ModuleRecord, RecordError};
use burn::tensor::{Bytes, Device, Distribution, Tensor};
use gpu_tuned_nvml::Host;
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_observe::recording::Recorder;
use gpu_tuned_train::load::PrefetchLoader;
use gpu_tuned_train::micro_batch::MicroBatch;
use gpu_tuned_train::train::{OptimizerFileError, PeersEnded, Trainer, TrainerError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use files::Checkpoint;
pub(crate) use files::newest;
use files::{Best, Folder, Progress, Written};
use stop::Stop;

#[cfg(feature = "distributed")]
use crate::ranks::Connection;
use crate::saved::SavedRun;
#[cfg(not(feature = "distributed"))]
use crate::session::Connection;
use crate::session::Session;
use crate::tuned::Tuned;

/// File of the model.
const MODEL: &str = "model.bpk";
/// Time between two saves, if the program sets none.
const INTERVAL: Duration = Duration::from_mins(15);
/// Time between two exchanges of ranks about signals and saves, in seconds.
const EXCHANGE_SECONDS: f64 = 1.0;

/// Checkpoints of a run, in a folder of its own: `Session::checkpoints` returns them.
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::AdamWConfig;
/// use burn::tensor::Tensor;
/// use gpu_tuned::{Options, gpu_tuned};
///
/// #[gpu_tuned(mlp(widths = [8, 1]), global_batch = 32, target = "generic")]
/// #[derive(Clone, Debug)]
/// struct Config {
///     #[tuned]
///     batch_size: usize,
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path();
/// let session = Options::default().cpu().resume_or_start(folder).start(Config::default())?;
/// let mut checkpoints = session.checkpoints(folder)?.every_steps(10).keep(3);
/// let model = LinearConfig::new(8, 1).init(&session.device());
/// let mut trainer = checkpoints.trainer(&session, model, AdamWConfig::new().init())?;
/// while checkpoints.steps() < 30 {
///     let batch = Tensor::<2>::ones([32, 8], &session.device());
///     trainer.step(1e-3, batch, |model: &Linear, input| model.forward(input).powi_scalar(2).mean())?;
///     checkpoints.step(&trainer)?;
/// }
/// checkpoints.finish(&trainer)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The same command starts the run and resumes it. The resumed run takes the steps that an uninterrupted one would have
/// taken.
///
/// # What is saved
///
/// A [`Checkpoint`] has the model, the optimizer's state, the loss scale, the plan, the steps, the position in the epoch,
/// the [values](Self::value), and the program's [state](Self::set_state). Random numbers of the device need no state: from
/// the second step on, each step has a seed of its own, from a number that the first step has drawn.
///
/// A checkpoint is complete, or does not count: it gets its name when all files are on the disk. The parameters are copied to
/// host memory, and written while training goes on. The first checkpoint of a process is waited for, and each one for which
/// host memory is scarce.
///
/// An error of the first save ends training, since the folder may be wrong. Later ones are warnings: older checkpoints stay
/// until a newer one is complete. [`finish`](Self::finish) saves again, and returns its error.
///
/// # Signals
///
/// After SIGTERM, SIGUSR1 or the [time limit](Self::time_limit), the next [`step`](Self::step) saves, and ends the process
/// with [`EXIT_CODE`](Self::EXIT_CODE). Launchers then start the same command again.
///
/// # Ranks
///
/// All ranks make the same calls. The first one writes the model, and each one its part of a sharded optimizer's state. The
/// next start may have another number of ranks. Between steps, about once a second, ranks exchange signals and results of
/// saves.
#[derive(Debug)]
pub struct Checkpoints {
    folder: Folder,
    run: SavedRun,
    connection: Option<Connection>,
    recorder: Option<Recorder>,
    device: Device,
    stop: Stop,
    every_steps: Option<u64>,
    every_epochs: Option<u64>,
    every: Duration,
    keep: usize,
    best: Option<Best>,
    exits: bool,
    resumed: Option<Checkpoint>,
    progress: Progress,
    /// Values of the next step or end of an epoch.
    values: BTreeMap<String, f64>,
    saving: Option<Saving>,
    saved_at: Instant,
    /// True after a save that is complete.
    has_saved: bool,
    /// Bytes that this rank has written in its last save.
    bytes: u64,
    failure: Option<String>,
    /// True if the position is saved, or is being saved.
    is_saved: bool,
    /// Steps of the next exchange of ranks.
    next_exchange: u64,
    /// Time and steps of the last one.
    exchanged: (Instant, u64),
}

/// A save that is not complete.
#[derive(Debug)]
struct Saving {
    progress: Progress,
    thread: Option<JoinHandle<Result<Vec<Written>, String>>>,
    written: Option<Result<Vec<Written>, String>>,
}

/// Message of a rank.
#[derive(Serialize, Deserialize)]
struct Report {
    stop: Option<String>,
    /// Files of the save, once they are written.
    written: Option<Result<Vec<Written>, String>>,
}

/// Answer of the first rank.
#[derive(Serialize, Deserialize)]
struct Reply {
    stop: Option<String>,
    /// True if a save is due.
    is_due: bool,
    /// Result of the save, once all ranks have written.
    saved: Option<Result<(), String>>,
    /// Result of the begin of a save.
    begun: Result<(), String>,
    next_exchange: u64,
    seed: Option<u64>,
}

impl<C: Tuned> Session<C> {
    /// Checkpoints in a folder that this run has for itself; created if missing. The run goes on from the newest whole one,
    /// if the session was started with [`Options::resume_or_start`](crate::Options::resume_or_start).
    ///
    /// Ranks on several hosts need a folder that all of them see.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::InUse`] while another process writes there, [`CheckpointError::NotResumed`] if there are checkpoints
    /// and the session has not resumed, and [`CheckpointError::Damaged`] if none of them is whole.
    pub fn checkpoints(&self, folder: impl Into<PathBuf>) -> Result<Checkpoints, CheckpointError> {
        let path = folder.into();
        let (connection, is_resumed) = (self.ranks.clone(), self.selection().resumed.is_some());
        // A measurement writes nothing.
        let is_measured = gpu_tuned_measure::measure::is_requested();
        let open = || {
            let folder = if is_measured { Folder::other(path.clone()) } else { Folder::open(path.clone())? };
            match Checkpoint::newest(&path)? {
                Some(_) if !is_resumed && !is_measured => Err(CheckpointError::NotResumed { folder: path.clone() }),
                newest => Ok((folder, newest.filter(|_| is_resumed))),
            }
        };
        let (folder, resumed) = match &connection {
            None => open()?,
            Some(first) if first.number() == 0 => {
                let (folder, newest) = open().inspect_err(|error| first.fail(error))?;
                let name = newest.as_ref().and_then(|newest| newest.path().file_name()).unwrap_or_default();
                first.meet(
                    "newest checkpoint",
                    name.as_encoded_bytes().to_owned(),
                    |mut all| Ok(all.swap_remove(0)),
                )?;
                (folder, newest)
            }
            Some(other) => {
                let name = String::from_utf8_lossy(&other.meet("newest checkpoint", Vec::new(), |_| Ok(Vec::new()))?)
                    .into_owned();
                let damaged = |reason| CheckpointError::Damaged { folder: path.clone(), reasons: vec![reason] };
                let newest = (!name.is_empty()).then(|| Checkpoint::read(path.join(name), false).map_err(damaged));
                (Folder::other(path.clone()), newest.transpose()?)
            }
        };
        let file = |cause| CheckpointError::File { path: path.clone(), cause };
        let progress = resumed.as_ref().map(|checkpoint| checkpoint.progress.clone()).unwrap_or_default();
        Ok(Checkpoints {
            folder,
            run: SavedRun::new(&self.config, &self.decision),
            connection,
            recorder: self.recorder.clone(),
            device: self.inner_device(),
            stop: Stop::listen().map_err(file)?,
            every_steps: None,
            every_epochs: None,
            every: INTERVAL,
            keep: 2,
            best: None,
            exits: true,
            resumed,
            values: BTreeMap::new(),
            saving: None,
            saved_at: Instant::now(),
            has_saved: false,
            bytes: 0,
            failure: None,
            is_saved: true,
            next_exchange: 0,
            exchanged: (Instant::now(), progress.steps),
            progress,
        })
    }
}

impl Checkpoints {
    /// Exit code of a process that saved and ended because of a signal or the time limit. Grid Engine requeues a job that ends
    /// with it. Ranks that end because of another one have code 75.
    pub const EXIT_CODE: i32 = 99;

    /// Saves after every `steps` optimizer steps of the run.
    #[must_use]
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.every_steps = Some(steps.max(1));
        self
    }

    /// Saves at the end of every `epochs`th epoch.
    #[must_use]
    pub fn every_epochs(mut self, epochs: u64) -> Self {
        self.every_epochs = Some(epochs.max(1));
        self
    }

    /// Saves when so many minutes have passed since the last save; 15 by default. Other intervals do not change it.
    #[must_use]
    pub fn every_minutes(mut self, minutes: u64) -> Self {
        self.every = Duration::from_mins(minutes);
        self
    }

    /// Keeps the newest `count` checkpoints, at least one; two by default, so that a damaged one has a predecessor. The disk
    /// needs room for one more.
    #[must_use]
    pub fn keep(mut self, count: usize) -> Self {
        self.keep = count.max(1);
        self
    }

    /// Also keeps the checkpoint with the lowest [value](Self::value) of this name, such as a validation loss. It has to be
    /// recorded for the step or the end of the epoch that saves.
    #[must_use]
    pub fn keep_lowest(mut self, name: impl Into<String>) -> Self {
        self.best = Some(Best { name: name.into(), is_highest: false });
        self
    }

    /// As [`keep_lowest`](Self::keep_lowest), with the highest value, such as an accuracy.
    #[must_use]
    pub fn keep_highest(mut self, name: impl Into<String>) -> Self {
        self.best = Some(Best { name: name.into(), is_highest: true });
        self
    }

    /// Saves and ends after this time since `Session::checkpoints`, as after a signal: for launchers that send none.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.stop.limit = Some(limit);
        self
    }

    /// False makes a stop a [`CheckpointError::Stopped`], rather than the end of the process.
    #[must_use]
    pub fn exits(mut self, exits: bool) -> Self {
        self.exits = exits;
        self
    }

    /// Returns the session's trainer, with the state of the checkpoint that the run goes on from, if there is one.
    ///
    /// # Errors
    ///
    /// If the checkpoint is of another model, or [`Session::trainer`] fails.
    pub fn trainer<C: Tuned, M: Module>(
        &self,
        session: &Session<C>,
        model: M,
        optimizer: ModuleOptimizer,
    ) -> Result<Trainer<M>, CheckpointError> {
        let Some(checkpoint) = &self.resumed else { return Ok(session.trainer(model, optimizer)?) };
        // With feature `cuda`, that is a GPU even on a machine without one, and Burn panics.
        if self.device == Device::flex() && Device::default() != Device::flex() {
            return Err(CheckpointError::DefaultDevice);
        }
        let path = checkpoint.path().join(MODEL);
        // Burn reads a file late, and panics if it cannot.
        let bytes = fs::read(&path).map_err(|cause| CheckpointError::File { path: path.clone(), cause })?;
        let record = ModuleRecord::from_bytes(Bytes::from_bytes_vec(bytes));
        let model = record.and_then(|record| model.try_load_record(record));
        let model = model.map_err(|cause| CheckpointError::Model { path, cause })?;
        let trainer = session.trainer(model, optimizer)?;
        let mut trainer = trainer.with_loss_scale(self.progress.loss_scale.clone());
        trainer.load_optimizer(checkpoint.path())?;
        self.seed_next_step();
        Ok(trainer)
    }

    /// The checkpoint that the run goes on from; `None` for a new run.
    pub fn resumed(&self) -> Option<&Checkpoint> {
        self.resumed.as_ref()
    }

    /// Optimizer steps of the run until now.
    pub fn steps(&self) -> u64 {
        self.progress.steps
    }

    /// Epochs of the run that are over.
    pub fn epoch(&self) -> u64 {
        self.progress.epoch
    }

    /// The batches of this epoch that the run has not trained on. Nothing is prepared for the others.
    ///
    /// The order is that of an uninterrupted run, if the loader shuffles with the same seed. With a
    /// [`strategy`](PrefetchLoader::strategy), the number of ranks has to stay the same.
    pub fn rest_of_epoch<'l, I, B>(&self, loader: &'l PrefetchLoader<I, B>) -> Box<dyn DataLoaderIterator<B> + 'l>
    where
        I: Clone + Send + Sync + 'static,
        B: MicroBatch,
    {
        loader.iter_from(self.progress.epoch, self.progress.steps_in_epoch)
    }

    /// Values with this name, of this process and of those before, each with the steps until then. A value that was infinite
    /// is NaN.
    pub fn values(&self, name: &str) -> impl Iterator<Item = (u64, f64)> + use<'_> {
        self.progress.values(name)
    }

    /// Records a value, such as a validation loss, for the next [`step`](Self::step) or [`end_epoch`](Self::end_epoch), and
    /// in the session's recording. Of several ranks, the first one's values are saved.
    pub fn value(&mut self, name: &str, value: f64) {
        if let Some(recorder) = &self.recorder {
            recorder.value(name, value);
        }
        self.values.insert(name.to_owned(), value);
    }

    /// Sets what later checkpoints have as the [state](Checkpoint::state) of the program: its config, its vocabulary, counts.
    /// A resumed run has the state of its checkpoint until then.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::State`] if it cannot be JSON.
    pub fn set_state(&mut self, state: &impl Serialize) -> Result<(), CheckpointError> {
        let path = self.folder.path().to_owned();
        self.progress.state = serde_json::to_value(state).map_err(|cause| CheckpointError::State { path, cause })?;
        Ok(())
    }

    /// Call it after each optimizer step. Saves if that is due. After a signal it saves and ends the process.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`]. After an error of a save, older checkpoints are as they were.
    pub fn step<M: Module>(&mut self, trainer: &Trainer<M>) -> Result<(), CheckpointError> {
        self.progress.steps += 1;
        self.progress.steps_in_epoch += 1;
        let steps = self.progress.steps;
        let is_due = self.every_steps.is_some_and(|every| steps.is_multiple_of(every));
        self.go_on(trainer, is_due, self.connection.is_none() || steps >= self.next_exchange)
    }

    /// Call it after the last step of each epoch, once its values are recorded. Saves if that is due.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    pub fn end_epoch<M: Module>(&mut self, trainer: &Trainer<M>) -> Result<(), CheckpointError> {
        self.progress.epoch += 1;
        self.progress.steps_in_epoch = 0;
        let epoch = self.progress.epoch;
        let is_due = self.every_epochs.is_some_and(|every| epoch.is_multiple_of(every));
        self.go_on(trainer, is_due, true)
    }

    /// Saves the last step, unless it is saved, and waits until the checkpoint is complete.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    pub fn finish<M: Module>(&mut self, trainer: &Trainer<M>) -> Result<(), CheckpointError> {
        self.take_values();
        self.settle()?;
        if !self.is_saved {
            return self.save(trainer, true);
        }
        if self.rank() == 0 {
            // What a killed process has not removed.
            self.folder.clean(&self.progress, self.keep, self.best.as_ref());
        }
        Ok(())
    }

    fn go_on<M: Module>(
        &mut self,
        trainer: &Trainer<M>,
        mut is_due: bool,
        exchanges: bool,
    ) -> Result<(), CheckpointError> {
        self.is_saved = false;
        self.take_values();
        let mut stop = None;
        if exchanges {
            let reply = self.exchange(false, false)?;
            is_due |= reply.is_due;
            stop = reply.stop;
        }
        self.seed_next_step();
        match stop {
            Some(because) => self.stop(trainer, because),
            None if is_due => self.save(trainer, false),
            None => Ok(()),
        }
    }

    fn take_values(&mut self) {
        let steps = self.progress.steps;
        for (name, value) in std::mem::take(&mut self.values) {
            let value = Some(value).filter(|value| value.is_finite());
            self.progress.values.entry(name).or_default().push((steps, value));
        }
    }

    /// Seeds the device for the next step. The seed follows from the run, the position and the rank.
    fn seed_next_step(&self) {
        let Progress { steps, epoch, seed, .. } = self.progress;
        if let Some(seed) = seed {
            self.device.seed([steps, epoch, self.rank() as u64].into_iter().fold(seed, mixed));
        }
    }

    fn rank(&self) -> usize {
        self.connection.as_ref().map_or(0, Connection::number)
    }

    /// Saves, waits, and ends the process.
    fn stop<M: Module>(&mut self, trainer: &Trainer<M>, because: String) -> Result<(), CheckpointError> {
        let failure = match self.save(trainer, true) {
            Ok(()) => None,
            Err(CheckpointError::Save { reason }) => Some(reason),
            Err(other) => return Err(other),
        };
        let stopped = CheckpointError::Stopped { because, steps: self.progress.steps, failure };
        if !self.exits {
            return Err(stopped);
        }
        if self.rank() == 0 {
            warn_user(&stopped.to_string());
        }
        self.recorder.iter().for_each(Recorder::flush);
        // The others are told that this rank has not failed.
        self.connection.iter().for_each(Connection::finish);
        process::exit(Self::EXIT_CODE)
    }

    /// Saves in the background, or waits until the checkpoint is complete.
    fn save<M: Module>(&mut self, trainer: &Trainer<M>, waits: bool) -> Result<(), CheckpointError> {
        self.settle()?;
        self.progress.loss_scale = trainer.loss_scale().clone();
        // Equal on all ranks, unlike their memory.
        let waits = waits || !self.has_saved;
        self.saved_at = Instant::now();
        self.failure = None;
        match self.exchange(true, false)?.begun {
            Ok(()) => {
                let mut records: Vec<Record> = Vec::new();
                if self.rank() == 0 {
                    let model = trainer.master().clone().into_record();
                    records.push((MODEL.to_owned(), Box::new(|path| model.save(path))));
                }
                if let Some((name, optimizer)) = trainer.optimizer_record() {
                    records.push((name, Box::new(|path| optimizer.save(path))));
                }
                let folder = self.folder.partial(&self.progress);
                let write = move || write(&folder, records);
                let has_room = Host::read().memory_available.0 > self.bytes;
                let (thread, written) = if waits || !has_room {
                    (None, Some(write()))
                } else {
                    match thread::Builder::new().name("gpu-tuned-save".to_owned()).spawn(write) {
                        Ok(thread) => (Some(thread), None),
                        Err(error) => (None, Some(Err(error.to_string()))),
                    }
                };
                self.saving = Some(Saving { progress: self.progress.clone(), thread, written });
                self.is_saved = true;
            }
            Err(reason) => self.note_failure(reason),
        }
        if waits {
            self.settle()?;
            if let Some(reason) = self.failure.take() {
                return Err(CheckpointError::Save { reason });
            }
        }
        Ok(())
    }

    /// Waits until a save is complete or has failed on all ranks.
    fn settle(&mut self) -> Result<(), CheckpointError> {
        while self.saving.is_some() {
            self.exchange(false, true)?;
        }
        Ok(())
    }

    fn note_failure(&mut self, reason: String) {
        if self.rank() == 0 && self.has_saved {
            warn_user(&format!("no checkpoint was saved: {reason}; training goes on, and older checkpoints stay"));
        }
        self.is_saved = false;
        self.failure = Some(reason);
    }

    /// Exchanges reports with the other ranks, completes a save, and begins one on request.
    fn exchange(&mut self, begins: bool, waits: bool) -> Result<Reply, CheckpointError> {
        if let Some(saving) = &mut self.saving
            && let Some(thread) = saving.thread.take_if(|thread| waits || thread.is_finished())
        {
            saving.written = Some(thread.join().unwrap_or_else(|_| Err("the thread that writes panicked".to_owned())));
        }
        let written = self.saving.as_ref().and_then(|saving| saving.written.clone());
        if let Some(Ok(written)) = &written {
            self.bytes = written.iter().map(|file| file.bytes).sum();
        }
        let report = Report { stop: self.stop.reason(), written };
        let reply = match &self.connection {
            None => self.decide(&[report], begins),
            Some(connection) => {
                let own = serde_json::to_vec(&report).map_err(CheckpointError::message)?;
                let reply = connection.meet("checkpoints", own, |all| {
                    let all: Result<Vec<_>, _> = all.iter().map(|report| serde_json::from_slice(report)).collect();
                    let reply = all.and_then(|all| serde_json::to_vec(&self.decide(&all, begins)));
                    reply.map_err(|error| error.to_string())
                })?;
                serde_json::from_slice(&reply).map_err(CheckpointError::message)?
            }
        };
        if let Some(saved) = &reply.saved {
            self.saving = None;
            match saved {
                Ok(()) => self.has_saved = true,
                Err(reason) => self.note_failure(reason.clone()),
            }
        }
        self.progress.seed = self.progress.seed.or(reply.seed);
        self.next_exchange = reply.next_exchange;
        self.exchanged = (Instant::now(), self.progress.steps);
        Ok(reply)
    }

    /// The answer of the first rank.
    fn decide(&self, all: &[Report], begins: bool) -> Reply {
        let written = |saving: &Saving| {
            let written = all.iter().map(|report| report.written.clone()).collect::<Option<Vec<_>>>()?;
            let files = written.into_iter().collect::<Result<Vec<_>, _>>();
            let complete =
                |files: Vec<_>| self.folder.complete(&saving.progress, files.concat(), self.keep, self.best.as_ref());
            Some(files.and_then(complete).inspect_err(|_| self.folder.discard(&saving.progress)))
        };
        let (exchanged_at, exchanged) = self.exchanged;
        let steps = self.progress.steps - exchanged;
        let steps_a_second = steps as f64 / exchanged_at.elapsed().as_secs_f64();
        // Steps may become slower.
        let interval = ((steps_a_second * EXCHANGE_SECONDS) as u64).clamp(1, 2 * steps.max(1));
        Reply {
            stop: all.iter().enumerate().find_map(|(rank, report)| {
                let because = report.stop.as_ref()?;
                Some(if all.len() > 1 { format!("{because} of rank {rank}") } else { because.clone() })
            }),
            is_due: self.saved_at.elapsed() >= self.every,
            saved: self.saving.as_ref().and_then(written),
            begun: if begins { self.folder.begin(&self.progress, &self.run) } else { Ok(()) },
            next_exchange: if steps == 0 { self.next_exchange } else { self.progress.steps + interval },
            seed: self.progress.seed.or_else(|| (self.progress.steps > 0).then(|| drawn(&self.device))),
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        // Other ranks may have ended.
        if self.connection.is_none() {
            drop(self.settle());
        } else if let Some(thread) = self.saving.take().and_then(|saving| saving.thread) {
            drop(thread.join());
        }
    }
}

/// Name of a file, and what writes it.
type Record = (String, Box<dyn FnOnce(&Path) -> Result<(), RecordError> + Send>);

/// Writes the records of this rank to the disk.
fn write(folder: &Path, records: Vec<Record>) -> Result<Vec<Written>, String> {
    let write = |(name, save): Record| {
        let path = folder.join(&name);
        save(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Written::read(folder, &name).map_err(|error| format!("{}: {error}", path.display()))
    };
    records.into_iter().map(write).collect()
}

/// Draws a number from the device's generator.
fn drawn(device: &Device) -> u64 {
    let numbers = Tensor::<1>::random([4], Distribution::Default, device).into_data();
    numbers.iter::<f32>().fold(0, |seed, number| mixed(seed, u64::from(number.to_bits())))
}

/// Mixes a number into a seed, by the finalizer of `SplitMix64`.
fn mixed(seed: u64, number: u64) -> u64 {
    let mut mixed = (seed ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Reason why a checkpoint was not saved or resumed from, or why the run stops.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum CheckpointError {
    /// The folder cannot be read or written.
    #[error("`{}`: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    /// Another process writes checkpoints there.
    #[error("`{}` has the checkpoints of a run that another process is training: end it, or use another folder", folder.display())]
    InUse { folder: PathBuf },
    /// A new run would mix its checkpoints with those of another.
    #[error(
        "`{}` has checkpoints: start the session with `Options::resume_or_start` to go on, or use another folder",
        folder.display()
    )]
    NotResumed { folder: PathBuf },
    /// No checkpoint is whole.
    #[error("no checkpoint in `{}` is whole: {}; put back a copy, or use another folder", folder.display(), reasons.join("; "))]
    Damaged { folder: PathBuf, reasons: Vec<String> },
    /// The record is of another model.
    #[error("`{}` cannot be loaded: {cause}", path.display())]
    Model { path: PathBuf, cause: RecordError },
    /// Optimizer state would be loaded on a GPU, and the session is on the CPU.
    #[error(
        "Burn loads optimizer state on its default device, which is not the CPU of this session: set BURN_DEVICE=flex"
    )]
    DefaultDevice,
    /// The state of the optimizer cannot be loaded.
    #[error(transparent)]
    Optimizer(#[from] OptimizerFileError),
    /// There is no trainer.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// The state of the program is of another type.
    #[error("the program's state in `{}` cannot be read or written: {cause}", path.display())]
    State { path: PathBuf, cause: serde_json::Error },
    /// A checkpoint could not be written.
    #[error("no checkpoint was saved: {reason}; older checkpoints are as they were")]
    Save { reason: String },
    /// The run stops, and the same command goes on.
    #[error(
        "stopped by {because} after step {steps}, {}; the same command goes on",
        failure.as_ref().map_or_else(|| "which is saved".to_owned(), |reason| format!("which could not be saved: {reason}"))
    )]
    Stopped { because: String, steps: u64, failure: Option<String> },
    /// The ranks have ended.
    #[error(transparent)]
    Ranks(#[from] PeersEnded),
}

impl CheckpointError {
    #[expect(clippy::needless_pass_by_value, reason = "the argument of `map_err`")]
    fn message(error: serde_json::Error) -> Self {
        Self::Save { reason: error.to_string() }
    }
}
