//! The thread that puts batches on a device.
//!
//! There is one for each device, for as long as the process lives. CubeCL gives every thread a stream with memory pools of
//! its own and never takes them back: a thread for each epoch would leave its pools behind.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use burn::tensor::Device;

type Job = Box<dyn FnOnce() + Send>;

/// Hands uploads to a device's thread.
#[derive(Clone)]
pub(super) struct Uploader(Sender<Job>);

static UPLOADERS: Mutex<Vec<(Device, Uploader)>> = Mutex::new(Vec::new());

impl Uploader {
    /// Uploader to `device`, with or without autodiff.
    pub(super) fn for_device(device: &Device) -> io::Result<Self> {
        let mut uploaders = UPLOADERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, uploader)) = uploaders.iter().find(|(known, _)| known == device) {
            return Ok(uploader.clone());
        }
        let uploader = Self::start()?;
        uploaders.push((device.clone(), uploader.clone()));
        Ok(uploader)
    }

    fn start() -> io::Result<Self> {
        let (sender, jobs) = channel::<Job>();
        let work = move || {
            for job in jobs {
                // Jobs report their panics themselves; this is for batches that panic when they are dropped.
                drop(catch_unwind(AssertUnwindSafe(job)));
            }
        };
        thread::Builder::new().name("gpu-tuned-upload".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }

    /// Runs `job` after those that were handed over before.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.0.send(Box::new(job)).expect("BUG: an uploader ends only with the process");
    }
}
