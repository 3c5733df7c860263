//! Runs the program until every configuration has a result.

use std::collections::BTreeMap;
use std::process::ExitStatus;

use gpu_tuned_core::Precision;
use gpu_tuned_observe::bench::{Begin, Header, Outcome, Request, Section, Setup};

use super::args::BenchArgs;
use super::results::Results;
use crate::args::Common;
use crate::error::Error;
use crate::output::note;
use crate::process::describe;
use crate::program::{Program, Run, counting_feature};
use crate::project::Project;

pub(super) struct Drive<'a> {
    pub(super) project: &'a Project,
    pub(super) common: &'a Common,
    pub(super) args: &'a BenchArgs,
    pub(super) results: &'a Results,
    /// Bytes at the start of the results that are ignored.
    pub(super) ignored_bytes: u64,
}

/// Remaining work after a process.
#[derive(Debug)]
enum Left {
    /// Every configuration has a result.
    Nothing(Begin),
    /// Another process has to run.
    More,
}

const KEPT: &str = "; results are kept, and the same command continues";

impl Drive<'_> {
    /// Runs all configurations of one precision, and returns these with their header.
    pub(super) fn run(&self, precision: Option<Precision>) -> Result<(Header, Begin), Error> {
        // Every process makes progress, so that the loop ends.
        loop {
            let before = self.results.len()?;
            let status = self.program(precision)?.run_to_end().map_err(|error| error.leaving(KEPT))?;
            let record = self.results.since(before)?;
            let (Some(section), true) = (record.last(), self.results.len()? >= before) else {
                return Err(self.without_results(status));
            };
            if let Left::Nothing(begin) = self.after(section, status)? {
                return Ok((section.header.clone(), begin));
            }
        }
    }

    fn program(&self, precision: Option<Precision>) -> Result<Program, Error> {
        let request = Request {
            results: self.results.path().to_owned(),
            precision,
            batches: self.args.batches(),
            checkpointing: self.args.checkpointing(),
            feeds: self.args.feeds(),
            seconds: self.args.seconds.as_secs_f64(),
            ignored_bytes: self.ignored_bytes,
        };
        let request = serde_json::to_string(&request).expect("BUG: a request is always JSON");
        let BenchArgs { program: args, targets, .. } = self.args;
        let features = self.project.features_of(targets)?.into_iter().chain(counting_feature(self.project, args)?);
        let run = Run { args, features: features.collect() };
        let program = Program::in_profile(self.project, self.common.color, run, &self.args.profile)?;
        Ok(program.with((Request::VARIABLE, request)))
    }

    /// The error of a program that ended without results.
    fn without_results(&self, status: ExitStatus) -> Error {
        match (status.success(), was_interrupted(status)) {
            (true, _) => Error::NothingMeasured { package: self.project.name().to_owned() },
            (false, true) => interrupted(status),
            (false, false) => Error::ProgramFailed { how: describe(status), left: "" },
        }
    }

    /// Remaining work after a process; the configuration that killed it is recorded.
    fn after(&self, section: &Section, status: ExitStatus) -> Result<Left, Error> {
        if was_interrupted(status) {
            return Err(interrupted(status));
        }
        let Some(begin) = &section.begin else { return Err(self.without_results(status)) };
        if let Some(setup) = section.open {
            self.results.add(setup, Outcome::Died { how: describe(status) })?;
            return Ok(Left::More);
        }
        let all = self.outcomes(section)?;
        // Temporary failures count only if they are of this process.
        let lasts = |setup: &Setup| all.get(setup).is_some_and(|outcome| !outcome.is_transient());
        if begin.setups.iter().all(|setup| section.outcomes.contains_key(setup) || lasts(setup)) {
            if !status.success() {
                note(&format!("the program failed after its last configuration: {}", describe(status)));
            }
            return Ok(Left::Nothing(begin.clone()));
        }
        // With temporary failures only, the next process would end in the same way.
        if section.outcomes.values().all(Outcome::is_transient) {
            return Err(self.without_results(status).leaving(KEPT));
        }
        Ok(Left::More)
    }

    /// Results of configurations with the section's header.
    fn outcomes(&self, section: &Section) -> Result<BTreeMap<Setup, Outcome>, Error> {
        let record = self.results.since(self.ignored_bytes)?;
        Ok(record.section(&section.header).map(|section| section.outcomes.clone()).unwrap_or_default())
    }
}

fn interrupted(status: ExitStatus) -> Error {
    Error::Interrupted { how: describe(status), file: Results::NAME }
}

/// Returns true if a signal interrupted the program.
#[cfg(unix)]
fn was_interrupted(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    // SIGHUP, SIGINT and SIGTERM, also as exit codes of shells.
    const SIGNALS: [i32; 3] = [1, 2, 15];
    let code = |signal: &i32| status.code() == Some(128 + signal);
    SIGNALS.iter().any(|signal| status.signal() == Some(*signal) || code(signal))
}

#[cfg(not(unix))]
fn was_interrupted(_: ExitStatus) -> bool {
    false
}
