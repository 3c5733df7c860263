//! A program's own recording, and its observers.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io, process, thread};

use super::{Record, Value, Writer, now};
use crate::log;

/// Time between two writes.
const WRITE_EVERY: Duration = Duration::from_secs(1);
/// Records in the buffer at most: the thread that adds one more writes them.
const MAX_BUFFERED: usize = 4096;

/// Records the work of a program, from any of its threads. Clones write to the same file and call the same observers.
///
/// If the file cannot be written, recording ends with one warning, and the program continues.
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
pub struct Recorder(Arc<Owner>);

/// Shared by all clones of a recorder. Writes the rest when the last clone is dropped.
struct Owner {
    shared: Arc<Shared>,
    /// Ends the writing thread when dropped.
    _writing: Sender<()>,
}

/// Shared with the writing thread. Training threads only fill the buffer.
struct Shared {
    buffer: Mutex<Vec<Record>>,
    sinks: Mutex<Sinks>,
}

/// The file and the observers.
struct Sinks {
    file: Option<(PathBuf, Writer)>,
    observers: Observers,
}

impl Recorder {
    /// Creates a recorder that appends to a file, which is created if needed.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, or the system cannot start the thread that writes once a second.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = Some((path.to_owned(), Writer::append(path)?));
        Self::start(Sinks { file, observers: Observers::default() })
    }

    /// Creates a recorder that appends to `file` and calls `observers`; `None` if there is neither. If the file cannot be
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
        let recorder = Self::start(Sinks { file, observers: observers.clone() });
        recorder.inspect_err(|error| tracing::warn!(%error, "no recording: the system cannot start its thread")).ok()
    }

    fn start(sinks: Sinks) -> io::Result<Self> {
        let shared = Arc::new(Shared { buffer: Mutex::default(), sinks: Mutex::new(sinks) });
        let (writing, over) = channel();
        let written = Arc::clone(&shared);
        // Once a second, until the last recorder is dropped.
        let write = move || {
            while over.recv_timeout(WRITE_EVERY) == Err(RecvTimeoutError::Timeout) {
                written.write();
            }
        };
        thread::Builder::new().name("gpu-tuned-record".to_owned()).spawn(write)?;
        Ok(Self(Arc::new(Owner { shared, _writing: writing })))
    }

    /// Adds a record. A step without a process ID gets that of this process.
    pub fn record(&self, mut record: Record) {
        if let Record::Step(step) = &mut record {
            step.pid.get_or_insert_with(process::id);
        }
        let mut buffer = locked(&self.0.shared.buffer);
        buffer.push(record);
        let is_full = buffer.len() >= MAX_BUFFERED;
        drop(buffer);
        if is_full {
            self.flush();
        }
    }

    /// Records a value of the program, as of now.
    pub fn value(&self, name: impl Into<String>, value: f64) {
        self.record(Record::Value(Value::new(now(), name, value)));
    }

    /// Writes the buffer, and calls the observers.
    pub fn flush(&self) {
        self.0.shared.write();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn write(&self) {
        // An observer that records or flushes is on this thread: it must not wait for itself.
        let Some(_writing) = Writing::begin() else { return };
        // Locked while the buffer is taken, so that records are written in their order.
        let mut sinks = locked(&self.sinks);
        let records = std::mem::take(&mut *locked(&self.buffer));
        if records.is_empty() {
            return;
        }
        for record in &records {
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

/// Marks this thread as one that writes.
struct Writing;

impl Writing {
    /// Returns `None` if the thread writes already.
    fn begin() -> Option<Self> {
        (!IS_WRITING.replace(true)).then(|| Self)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        IS_WRITING.set(false);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Written here: the program may end before the other thread writes.
        self.shared.write();
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

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The caller may be an observer, which is called while the sinks are locked.
        let Ok(sinks) = self.0.shared.sinks.try_lock() else { return f.write_str("Recorder { .. }") };
        let file = sinks.file.as_ref().map(|(path, _)| path);
        f.debug_struct("Recorder").field("file", &file).field("observers", &sinks.observers).finish()
    }
}

/// Receives the records of a program in their order, within about a second.
///
/// A thread of the recorder calls it, and at the end the thread that drops the last recorder. The training thread does not.
pub trait Observer: Send {
    /// Receives a record.
    fn observe(&mut self, record: &Record);

    /// Writes buffered output; called after the records of about a second.
    fn flush(&mut self) {}
}

/// Observers that several sessions may share.
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<Mutex<dyn Observer>>>);

impl Observers {
    /// Adds an observer.
    pub fn push(&mut self, observer: impl Observer + 'static) {
        self.0.push(Arc::new(Mutex::new(observer)));
    }

    /// Calls all observers. An observer that panics is removed; training continues.
    fn each(&mut self, mut call: impl FnMut(&mut (dyn Observer + 'static))) {
        self.0.retain(|observer| {
            let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
            let called = catch_unwind(AssertUnwindSafe(|| call(&mut *observer)));
            if called.is_err() {
                tracing::warn!("an observer of the recording panicked: it is not called again");
            }
            called.is_ok()
        });
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BUFFERED, Recorder, locked};
    use crate::recording::read;

    #[test]
    fn the_buffer_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let recorder = Recorder::append(&path).unwrap();
        (0..2 * MAX_BUFFERED + 10).for_each(|_| recorder.value("one", 1.0));
        assert!(locked(&recorder.0.shared.buffer).len() < MAX_BUFFERED);
        drop(recorder);
        assert_eq!(read(&path).unwrap().records.len(), 2 * MAX_BUFFERED + 10);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_ends_the_recording_and_nothing_else() {
        let recorder = Recorder::append("/dev/full").unwrap();
        recorder.value("one", 1.0);
        recorder.flush();
        recorder.value("two", 2.0);
        assert!(locked(&recorder.0.shared.sinks).file.is_none());
    }
}
