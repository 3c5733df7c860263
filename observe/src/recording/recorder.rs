//! A recording that a program keeps of itself.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::recording::{Record, Value};

use super::{Writer, now};
use crate::log;

/// From one writing of what was gathered to the next.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// So many records are gathered at most: who brings one more writes them.
const MOST_GATHERED: usize = 4096;

/// Sees the records of a program, within about a second of when they come, and in their order.
///
/// It is called on a thread of the recorder's, not on that which takes the steps; in the end on that which drops the last
/// of the session and what it made.
pub trait Observer: Send {
    /// A record came.
    fn observe(&mut self, record: &Record);

    /// What was gathered is to be written; called after the records of about a second.
    fn flush(&mut self) {}
}

/// Records what a program does, from any of its threads; its clones write to the same file and the same observers.
///
/// What cannot be written ends the recording with one warning, and nothing else.
///
/// ```
/// use gpu_tuned_observe::recording::{Recorder, read};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("run.jsonl");
/// let recorder = Recorder::append(&path)?;
/// recorder.value("valid/loss", 0.25);
/// recorder.flush();
/// assert_eq!(read(&path)?.records.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Recorder(Arc<Recording>);

/// Everybody who records. When the last of them is gone all is written.
struct Recording(Arc<Recorded>);

/// Records on their way. Those who train only leave them here: what is made of them is another thread's work.
struct Recorded {
    gathered: Mutex<Vec<Record>>,
    sinks: Mutex<Sinks>,
    is_over: Mutex<bool>,
    over: Condvar,
}

/// Where records go.
struct Sinks {
    file: Option<(PathBuf, Writer)>,
    observers: Observers,
}

/// Observers that several sessions may share.
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<Mutex<dyn Observer>>>);

impl Recorder {
    /// Goes on with the file, or makes it.
    ///
    /// # Errors
    ///
    /// When it cannot be opened, or the system gives no thread to write it once a second.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = Some((path.to_owned(), Writer::append(path)?));
        Self::of(Sinks { file, observers: Observers::default() })
    }

    /// Opens a recorder that appends to `file` and calls `observers`; `None` if there is neither. If the file cannot be
    /// opened, a warning is given and the observers are still called.
    pub fn open(file: Option<PathBuf>, observers: &Observers) -> Option<Self> {
        let file = file.and_then(|path| match Writer::append(&path) {
            Ok(writer) => Some((path, writer)),
            Err(error) => {
                log::warn_user(&format!("no recording: `{}` cannot be written: {error}", path.display()));
                None
            }
        });
        if file.is_none() && observers.0.is_empty() {
            return None;
        }
        let recorder = Self::of(Sinks { file, observers: observers.clone() });
        recorder.inspect_err(|error| tracing::warn!(%error, "no recording: the system gives no thread to it")).ok()
    }

    fn of(sinks: Sinks) -> io::Result<Self> {
        let (gathered, is_over, over) = (Mutex::default(), Mutex::new(false), Condvar::new());
        let recorded = Arc::new(Recorded { gathered, sinks: Mutex::new(sinks), is_over, over });
        let writing = Arc::clone(&recorded);
        thread::Builder::new().name("gpu-tuned-record".to_owned()).spawn(move || writing.keep_writing())?;
        Ok(Self(Arc::new(Recording(recorded))))
    }

    /// Records it; a step that names no process as one of this process.
    pub fn record(&self, mut record: Record) {
        if let Record::Step(step) = &mut record {
            step.pid.get_or_insert_with(process::id);
        }
        let mut gathered = locked(&self.0.0.gathered);
        gathered.push(record);
        let is_full = gathered.len() >= MOST_GATHERED;
        drop(gathered);
        if is_full {
            self.flush();
        }
    }

    /// Records a figure of the program's own, of this moment.
    pub fn value(&self, name: impl Into<String>, value: f64) {
        self.record(Record::Value(Value::new(now(), name, value)));
    }

    /// Writes what is gathered, and shows it to the observers.
    pub fn flush(&self) {
        self.0.0.write();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recorded {
    /// Writes once a second what is gathered, for as long as anybody records.
    fn keep_writing(&self) {
        let mut is_over = locked(&self.is_over);
        while !*is_over {
            let waited = self.over.wait_timeout(is_over, WRITE_EVERY).unwrap_or_else(PoisonError::into_inner);
            if *waited.0 {
                return;
            }
            drop(waited);
            self.write();
            is_over = locked(&self.is_over);
        }
    }

    fn write(&self) {
        // An observer that records, or asks for all to be written, waits for nobody: it is on this thread.
        let Some(_writing) = Writing::begin() else { return };
        // Held while records are taken, so that they are written in their order.
        let mut sinks = locked(&self.sinks);
        let gathered = std::mem::take(&mut *locked(&self.gathered));
        if gathered.is_empty() {
            return;
        }
        for record in &gathered {
            sinks.write(|writer| writer.write(record));
            sinks.observers.each(|observer| observer.observe(record));
        }
        sinks.write(Writer::flush);
        sinks.observers.each(Observer::flush);
    }
}

thread_local! {
    static IS_WRITING: Cell<bool> = const { Cell::new(false) };
}

/// This thread writes.
struct Writing;

impl Writing {
    /// `None` where it does already.
    fn begin() -> Option<Self> {
        (!IS_WRITING.replace(true)).then(|| Self)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        IS_WRITING.set(false);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Here, and not on the thread that the end of the program may be too early for.
        self.0.write();
        *locked(&self.0.is_over) = true;
        self.0.over.notify_all();
    }
}

impl Sinks {
    fn write(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some((path, writer)) = &mut self.file else { return };
        if let Err(error) = write(writer) {
            log::warn_user(&format!("the recording `{}` ends here: it cannot be written: {error}", path.display()));
            self.file = None;
        }
    }
}

impl Observers {
    /// Adds an observer.
    pub fn push(&mut self, observer: impl Observer + 'static) {
        self.0.push(Arc::new(Mutex::new(observer)));
    }

    /// Calls all of them. One that panics is not called again, and ends nobody's training.
    fn each(&mut self, mut call: impl FnMut(&mut (dyn Observer + 'static))) {
        self.0.retain(|observer| {
            let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
            let called = catch_unwind(AssertUnwindSafe(|| call(&mut *observer)));
            if called.is_err() {
                tracing::warn!("an observer of the recording panicked, and is not called again");
            }
            called.is_ok()
        });
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever writes at the moment may be the one who asks.
        let Ok(sinks) = self.0.0.sinks.try_lock() else { return f.write_str("Recorder { .. }") };
        let file = sinks.file.as_ref().map(|(path, _)| path);
        f.debug_struct("Recorder").field("file", &file).field("observers", &sinks.observers).finish()
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::{Duration, Instant};

    use crate::recording::{Record, StepRecord};

    use super::{MOST_GATHERED, Observer, Observers, Recorder, locked};
    use crate::recording::read;

    #[test]
    fn what_is_recorded_is_written_within_about_a_second_and_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::append(&path).unwrap();
        recorder.value("one", 1.0);
        assert_eq!(read(&path).unwrap().records.len(), 0, "it is gathered");
        let begin = Instant::now();
        while read(&path).unwrap().records.is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it is never written");
            thread::sleep(Duration::from_millis(10));
        }
        recorder.value("two", 2.0);
        drop(recorder);
        assert_eq!(read(&path).unwrap().records.len(), 2);
    }

    #[test]
    fn a_step_is_one_of_this_process_unless_it_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::append(&path).unwrap();
        for pid in [None, Some(7)] {
            let mut step = StepRecord::new(1.0, 1);
            step.pid = pid;
            recorder.record(Record::Step(Box::new(step)));
        }
        drop(recorder);
        let pid = |record: &Record| if let Record::Step(step) = record { step.pid } else { None };
        let pids: Vec<_> = read(&path).unwrap().records.iter().map(pid).collect();
        assert_eq!(pids, [Some(std::process::id()), Some(7)]);
    }

    #[test]
    fn no_more_than_so_many_records_are_gathered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::append(&path).unwrap();
        (0..2 * MOST_GATHERED + 10).for_each(|_| recorder.value("one", 1.0));
        assert!(locked(&recorder.0.0.gathered).len() < MOST_GATHERED);
        drop(recorder);
        assert_eq!(read(&path).unwrap().records.len(), 2 * MOST_GATHERED + 10);
    }

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<(Vec<Record>, usize)>>);

    impl Observer for Seen {
        fn observe(&mut self, record: &Record) {
            self.0.lock().unwrap().0.push(record.clone());
        }

        fn flush(&mut self) {
            self.0.lock().unwrap().1 += 1;
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_the_observers() {
        let seen = Seen::default();
        let mut observers = Observers::default();
        observers.push(seen.clone());
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::open(Some(folder.path().join("none/run.jsonl")), &observers).expect("somebody looks");
        recorder.value("one", 1.0);
        drop(recorder);
        let seen = seen.0.lock().unwrap();
        assert_eq!((seen.0.len(), seen.1), (1, 1));
    }

    /// Records more than is gathered whenever it sees something, and panics in the end.
    struct Rude(Arc<Mutex<Option<Recorder>>>);

    impl Observer for Rude {
        fn observe(&mut self, _: &Record) {
            let recorder = self.0.lock().unwrap().clone().expect("it is there");
            (0..=MOST_GATHERED).for_each(|_| recorder.value("more", 1.0));
            recorder.flush();
            assert!(format!("{recorder:?}").starts_with("Recorder"));
            panic!("it is rude");
        }
    }

    #[test]
    fn an_observer_that_records_or_panics_ends_nothing() {
        let (seen, slot) = (Seen::default(), Arc::new(Mutex::new(None)));
        let mut observers = Observers::default();
        observers.push(Rude(Arc::clone(&slot)));
        observers.push(seen.clone());
        let recorder = Recorder::open(None, &observers).expect("somebody looks");
        *slot.lock().unwrap() = Some(recorder.clone());
        recorder.value("one", 1.0);
        recorder.flush();
        recorder.value("two", 2.0);
        recorder.flush();
        assert_eq!(seen.0.lock().unwrap().0.len(), 2 + MOST_GATHERED + 1);
        slot.lock().unwrap().take();
    }

    #[test]
    fn where_nobody_looks_nothing_is_recorded() {
        assert!(Recorder::open(None, &Observers::default()).is_none());
        let folder = tempfile::tempdir().unwrap();
        assert!(Recorder::open(Some(folder.path().join("none/run.jsonl")), &Observers::default()).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_is_full_ends_the_recording_and_nothing_else() {
        let recorder = Recorder::append("/dev/full").unwrap();
        recorder.value("one", 1.0);
        recorder.flush();
        recorder.value("two", 2.0);
        assert!(locked(&recorder.0.0.sinks).file.is_none());
    }
}
