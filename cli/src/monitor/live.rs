//! Watching this machine without a screen.

use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::recording::Record;

use super::args::MonitorArgs;
use super::output::{Ended, Output};
use super::seen::Seen;
use super::source::Source;
use crate::error::Error;
use crate::process::Stop;

const REST: Duration = Duration::from_millis(50);

/// Prints samples until a signal, the end of the time, or the end of the program.
pub(super) fn follow(
    args: &MonitorArgs,
    source: &mut Source,
    output: &mut Output,
    stop: &Stop,
) -> Result<Ended, Error> {
    let begin = Instant::now();
    let mut seen = Seen::since(source.begun());
    let mut has_ended = false;
    loop {
        let is_over = stop.is_wanted() || has_ended || args.duration.is_some_and(|time| begin.elapsed() >= time);
        for record in source.news()? {
            seen.observe(&record);
            has_ended |= source.has_ended(&record);
            if let Record::Start(start) = &record {
                start.trouble.iter().for_each(|trouble| crate::output::say(&format!("note: {trouble}")));
            }
            if !output.write(&record, &seen)? {
                return Ok(Ended::NobodyReads);
            }
        }
        if is_over {
            return Ok(Ended::Whole(Box::new(seen)));
        }
        thread::sleep(REST);
    }
}
