//! Steps timed over a range of settings, where `cargo gpu-tuned bench` runs the program.
//!
//! Setup after setup is run and written down at once, so that an interruption loses no more than the one that is running.
//! Batches go upwards, and none is run that would take more than most of what is free: what smaller ones took, or a dry run,
//! says so before. Where memory runs out all the same, the process ends, as kernels that are tuned without memory are slow
//! ones; the command starts it again for the rest.

mod climb;
mod clock;
mod feed;
mod ground;
mod journal;
mod report;
mod watch;

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use burn::module::Module;
use gpu_tuned_core::Precision;
use gpu_tuned_observe::bench::{Begin, Header, Request};

use super::case::Case;
use super::patience::Patience;
use super::{MeasureError, Step, Subject, parameters, shape};
use climb::Climb;
use ground::OnDevice;
use journal::Journal;

/// What is asked for, if anything is.
///
/// # Errors
///
/// [`MeasureError::Request`].
pub(super) fn asked() -> Result<Option<Request>, MeasureError> {
    let Some(text) = text() else { return Ok(None) };
    let failed = |error: serde_json::Error| MeasureError::Request { message: error.to_string() };
    serde_json::from_str(&text.to_string_lossy()).map(Some).map_err(failed)
}

/// Whether anything is.
pub(super) fn is_asked() -> bool {
    text().is_some()
}

/// The number formats that are asked for in place of the planned ones.
pub(crate) fn precision() -> Option<Precision> {
    // A request that cannot be read is reported when it is answered.
    asked().ok().flatten()?.precision
}

fn text() -> Option<OsString> {
    env::var_os(Request::VARIABLE).filter(|text| !text.is_empty())
}

impl Case {
    /// Runs what is asked for and is not on record, and writes down what comes of it.
    pub(super) fn range<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
        request: &Request,
    ) -> Result<(), MeasureError> {
        let precision = request.precision.unwrap_or(self.precision);
        let subject = &subject.in_precision(precision)?;
        let header = self.header(name, subject, precision);
        let mut journal = Journal::open(&request.results)?;
        let known = journal.known(request.ignored_bytes, &header)?;
        let batches = match request.batches.as_slice() {
            [] => Request::around(self.planned.batch, self.largest_batch),
            batches => batches.to_vec(),
        };
        let setups = request.setups(precision, &batches);
        journal.begin(header, Begin { planned: self.planned, setups: setups.clone() })?;
        report::begin(name, &self.facts.name, &setups, &known);
        super::report::shared(self.reading.as_ref());
        let patience = Patience::begin(super::report::QUIET, super::report::waiting(!self.is_cpu()));
        let spend = Duration::try_from_secs_f64(request.seconds).unwrap_or(Duration::ZERO);
        let ground = OnDevice::new(self, subject, spend);
        let said = || patience.said();
        let (largest, checkpointing) = (self.largest_batch, subject.checkpointing());
        Climb { ground: &ground, largest, checkpointing, known, journal: &mut journal, said: &said }.run(&setups)
    }

    fn header<M: Module, B: Clone>(&self, workload: &str, subject: &Subject<'_, M, B>, precision: Precision) -> Header {
        let model = subject.model(&Step::single(1, false).device(&self.device));
        let (parameters, shape) = (parameters(&model), shape(&model));
        let facts = self.facts.clone();
        let releases = self.releases();
        let is_cpu = self.is_cpu();
        Header {
            format: Header::FORMAT,
            workload: workload.to_owned(),
            device: facts.name,
            kind: facts.kind,
            memory_bytes: facts.memory_total,
            sm_count: facts.sm_count,
            cpu_threads: is_cpu.then(|| rayon::current_num_threads() as u64),
            driver: releases.driver,
            burn: releases.burn,
            cubecl: releases.cubecl,
            parameters,
            shape,
            described: self.described.clone(),
            debug: cfg!(debug_assertions),
            counts_memory: cfg!(feature = "counting-allocator") || !is_cpu,
            full_f32: self.mode(precision).full_f32,
        }
    }
}
