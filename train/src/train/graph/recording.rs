//! Kernels that were launched once, recorded by the driver to be launched again together.

use std::fmt::Display;
use std::thread::{self, ThreadId};

use burn::tensor::Device;
use burn_backend::{Backend, BackendGraph};
use burn_dispatch::Dispatch;

use crate::device::catching;

/// Runs before a recording. They tune kernels and allocate all memory, which a recording must not do.
const WARM_UPS: usize = 3;

/// Recorded launches of a piece of work.
pub(super) struct Recording {
    device: Device,
    /// Thread that recorded: `CubeCL` has a stream for each thread, and orders work within a stream.
    thread: ThreadId,
    graph: BackendGraph<Dispatch>,
}

impl Recording {
    /// Records what `work` launches, and returns its output. A replay overwrites the output.
    ///
    /// Runs `work` four times. The last run launches nothing, so its output has no values before the first replay.
    ///
    /// # Errors
    ///
    /// The reason for which the backend, the driver or the work itself cannot be recorded.
    pub(super) fn record<T>(device: &Device, work: impl Fn() -> Result<T, String>) -> Result<(Self, T), String> {
        let device = device.clone().without_autodiff();
        let work = || catching(&work).flatten();
        Dispatch::graph_prepare(device.as_dispatch()).map_err(in_words)?;
        let window = Window(&device);
        for _ in 0..WARM_UPS {
            let output = work()?;
            // Fusion leaves out work whose output is dropped before it starts.
            device.sync().map_err(in_words)?;
            drop(output);
        }
        Dispatch::graph_start_capture(device.as_dispatch()).map_err(in_words)?;
        let output = work()?;
        let graph = window.close()?;
        Ok((Self { graph, device, thread: thread::current().id() }, output))
    }

    /// Launches everything again, on the memory of the recording. Does not wait for the device.
    ///
    /// # Errors
    ///
    /// The driver's reason, and a call from another thread than that of the recording.
    #[expect(unsafe_code, reason = "Burn cannot see which memory a recording reads and writes")]
    pub(super) fn replay(&self) -> Result<(), String> {
        if self.thread != thread::current().id() {
            return Err("the trainer has moved to another thread".to_owned());
        }
        // SAFETY: Liveness: CubeCL keeps every page of memory that the recording touched, and the host memory that it
        // read, for as long as `self.graph`. Order: inputs are written and outputs are read on this thread, so on
        // the stream of the recording. Concurrent use: the owner of the recording keeps the memory to itself.
        unsafe { Dispatch::graph_replay(self.device.as_dispatch(), &self.graph) }.map_err(in_words)
    }
}

/// Recording in progress. Dropped, it ends without a result, so that the stream can be used again.
struct Window<'d>(&'d Device);

impl Window<'_> {
    fn close(self) -> Result<BackendGraph<Dispatch>, String> {
        let graph = Dispatch::graph_stop_capture(self.0.as_dispatch()).map_err(in_words);
        std::mem::forget(self);
        graph
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        drop(Dispatch::graph_stop_capture(self.0.as_dispatch()));
    }
}

/// The root cause of an error of Burn, which follows the words "Caused by".
fn in_words(error: impl Display) -> String {
    let message = error.to_string();
    let cause = message.rsplit("Caused by:").next().unwrap_or_default();
    let lines = cause.lines().map(str::trim).take_while(|line| !line.contains("backtrace"));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::Recording;

    #[test]
    fn a_backend_without_graphs_is_named_as_the_reason() {
        let because = Recording::record(&Device::flex(), || Ok(())).err().expect("a CPU has none");
        assert_eq!(because, "graph capture is not supported by this backend");
    }
}
