//! A recording that a program keeps of itself.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use gpu_tuned_core::recording::{Record, Value};

use super::{Writer, now};

/// From one writing of what was gathered to the next.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// Sees the records of a program as they come.
///
/// It is called on the thread that takes the steps, and once a second on another: what takes long is not to be done here.
pub trait Observer: Send {
    /// A record comes.
    fn observe(&mut self, record: &Record);

    /// What was gathered is to be written; called about once a second, and in the end.
    fn flush(&mut self) {}
}

/// Records what a program does, from any of its threads; its clones write to the same file and the same observers.
///
/// What cannot be written ends the recording with one warning, and nothing else.
///
/// ```
/// use gpu_tuned::recording::{Recorder, read};
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
pub struct Recorder(Arc<Mutex<Sinks>>);

/// Where records go.
struct Sinks {
    file: Option<(PathBuf, Writer)>,
    observers: Observers,
}

/// Observers that several sessions may have in common.
#[derive(Clone, Default)]
pub(crate) struct Observers(Vec<Arc<Mutex<dyn Observer>>>);

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

    fn of(sinks: Sinks) -> io::Result<Self> {
        let sinks = Arc::new(Mutex::new(sinks));
        let watched = Arc::downgrade(&sinks);
        thread::Builder::new().name("gpu-tuned-record".to_owned()).spawn(move || keep_flushed(&watched))?;
        Ok(Self(sinks))
    }

    /// Records it.
    pub fn record(&self, record: &Record) {
        let mut sinks = self.lock();
        sinks.write(|writer| writer.write(record));
        sinks.observers.each(|observer| observer.observe(record));
    }

    /// Records a figure of the program's own, of this moment.
    pub fn value(&self, name: impl Into<String>, value: f64) {
        self.record(&Record::Value(Value::new(now(), name, value)));
    }

    /// Writes what is gathered.
    pub fn flush(&self) {
        self.lock().flush();
    }

    fn lock(&self) -> MutexGuard<'_, Sinks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes once a second what is gathered, for as long as anybody records.
fn keep_flushed(sinks: &Weak<Mutex<Sinks>>) {
    loop {
        thread::sleep(FLUSH_EVERY);
        let Some(sinks) = sinks.upgrade() else { return };
        sinks.lock().unwrap_or_else(PoisonError::into_inner).flush();
    }
}

impl Sinks {
    fn write(&mut self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some((path, writer)) = &mut self.file else { return };
        if let Err(error) = write(writer) {
            tracing::warn!(%error, "the recording `{}` ends here: it cannot be written", path.display());
            self.file = None;
        }
    }

    fn flush(&mut self) {
        self.write(Writer::flush);
        self.observers.each(Observer::flush);
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Observers {
    pub(crate) fn push(&mut self, observer: impl Observer + 'static) {
        self.0.push(Arc::new(Mutex::new(observer)));
    }

    fn each(&self, mut call: impl FnMut(&mut (dyn Observer + 'static))) {
        self.0.iter().for_each(|observer| call(&mut *observer.lock().unwrap_or_else(PoisonError::into_inner)));
    }
}

/// What records for a session: to a file, if there is one that can be written, and to observers; `None` where that is
/// nobody.
pub(crate) fn recorder(file: Option<PathBuf>, observers: &Observers) -> Option<Recorder> {
    let file = file.and_then(|path| match Writer::append(&path) {
        Ok(writer) => Some((path, writer)),
        Err(error) => {
            tracing::warn!(%error, "no recording: `{}` cannot be written", path.display());
            None
        }
    });
    if file.is_none() && observers.0.is_empty() {
        return None;
    }
    let recorder = Recorder::of(Sinks { file, observers: observers.clone() });
    recorder.inspect_err(|error| tracing::warn!(%error, "no recording: the system gives no thread to it")).ok()
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sinks = self.lock();
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

    use gpu_tuned_core::recording::Record;

    use super::{Observer, Observers, Recorder, recorder};
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
        let recorder = recorder(Some(folder.path().join("none/run.jsonl")), &observers).expect("somebody looks");
        recorder.value("one", 1.0);
        drop(recorder);
        let seen = seen.0.lock().unwrap();
        assert_eq!((seen.0.len(), seen.1), (1, 1));
    }

    #[test]
    fn where_nobody_looks_nothing_is_recorded() {
        assert!(recorder(None, &Observers::default()).is_none());
        let folder = tempfile::tempdir().unwrap();
        assert!(recorder(Some(folder.path().join("none/run.jsonl")), &Observers::default()).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_is_full_ends_the_recording_and_nothing_else() {
        let recorder = Recorder::append("/dev/full").unwrap();
        recorder.value("one", 1.0);
        recorder.flush();
        recorder.value("two", 2.0);
        assert!(recorder.lock().file.is_none());
    }
}
