//! Runs the program until everything has come to something.

use std::collections::BTreeMap;
use std::process::ExitStatus;

use gpu_tuned_core::Precision;
use gpu_tuned_observe::bench::{Begin, Header, Outcome, Request, Section, Setup};

use super::args::BenchArgs;
use super::error::BenchError;
use super::results::Results;
use crate::args::Common;
use crate::error::Error;
use crate::measure::counting;
use crate::program::{Program, Run, in_words};
use crate::project::Project;

/// The program, and what is asked of it.
pub(super) struct Drive<'a> {
    pub(super) project: &'a Project,
    pub(super) common: &'a Common,
    pub(super) args: &'a BenchArgs,
    pub(super) results: &'a Results,
    /// Bytes of the results that count for nothing.
    pub(super) ignored_bytes: u64,
}

/// What a process has left.
#[derive(Debug)]
enum Left {
    /// Everything has come to something.
    Nothing(Begin),
    /// More is to be run by another process.
    More,
}

const KEPT: &str = "; what has run is kept, and the same command goes on after it";

impl Drive<'_> {
    /// Runs all that is asked for in one precision; what was, and what it is of, is returned.
    pub(super) fn run(&self, precision: Option<Precision>) -> Result<(Header, Begin), Error> {
        // Every process but the last has done something more than the one before.
        loop {
            let before = self.results.len()?;
            let status = self.program(precision)?.run_to_end().map_err(|error| error.leaving(KEPT))?;
            let told = self.results.since(before)?;
            let (Some(section), true) = (told.last(), self.results.len()? >= before) else {
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
            seconds: self.args.seconds,
            ignored_bytes: self.ignored_bytes,
        };
        let request = serde_json::to_string(&request).expect("BUG: a request is always JSON");
        let run = Run { args: &self.args.program, feature: counting(self.project)? };
        let program = Program::in_profile(self.project, self.common.color, run, &self.args.profile)?;
        Ok(program.with((Request::VARIABLE, request)))
    }

    /// It failed, or ended, before it had anything to say.
    fn without_results(&self, status: ExitStatus) -> Error {
        match (status.success(), was_interrupted(status)) {
            (true, _) => Error::NothingMeasured { package: self.project.name().to_owned() },
            (false, true) => interrupted(status),
            (false, false) => Error::ProgramFailed { how: in_words(status), left: "" },
        }
    }

    /// What is left to do; what the process died of is written down.
    fn after(&self, section: &Section, status: ExitStatus) -> Result<Left, Error> {
        if was_interrupted(status) {
            return Err(interrupted(status));
        }
        let Some(begin) = &section.begin else { return Err(self.without_results(status)) };
        if let Some(setup) = section.open {
            self.results.add(setup, Outcome::Died { how: died_of(status) })?;
            return Ok(Left::More);
        }
        let all = self.outcomes(section)?;
        // What is of the moment has to be of this process.
        let lasts = |setup: &Setup| all.get(setup).is_some_and(|outcome| !outcome.is_of_the_moment());
        if begin.setups.iter().all(|setup| section.outcomes.contains_key(setup) || lasts(setup)) {
            if !status.success() {
                crate::say(&format!("note: the program failed after its last setup: {}", in_words(status)));
            }
            return Ok(Left::Nothing(begin.clone()));
        }
        // Every process finds that out anew: one that has nothing else would be followed by another of its kind.
        if section.outcomes.values().all(Outcome::is_of_the_moment) {
            return Err(self.without_results(status).leaving(KEPT));
        }
        Ok(Left::More)
    }

    /// What has come of the setups of this header.
    fn outcomes(&self, section: &Section) -> Result<BTreeMap<Setup, Outcome>, Error> {
        let record = self.results.since(self.ignored_bytes)?;
        Ok(record.under(&section.header).map(|section| section.outcomes.clone()).unwrap_or_default())
    }
}

/// How it ended, and what that is a sign of.
fn died_of(status: ExitStatus) -> String {
    let how = in_words(status);
    let hint = if how.contains("SIGKILL") { ", as systems do that have no memory left" } else { "" };
    how + hint
}

fn interrupted(status: ExitStatus) -> Error {
    BenchError::Interrupted { how: in_words(status), file: Results::NAME }.into()
}

/// Whether somebody wanted it to end.
#[cfg(unix)]
fn was_interrupted(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    // SIGHUP, SIGINT and SIGTERM, and what shells make of them.
    const SIGNALS: [i32; 3] = [1, 2, 15];
    let code = |signal: &i32| status.code() == Some(128 + signal);
    SIGNALS.iter().any(|signal| status.signal() == Some(*signal) || code(signal))
}

#[cfg(not(unix))]
fn was_interrupted(_: ExitStatus) -> bool {
    false
}
