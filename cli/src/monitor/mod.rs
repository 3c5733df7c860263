//! `cargo gpu-tuned monitor`: watches GPUs, the host and a training program.

mod amounts;
mod args;
mod lines;
mod output;
mod replay;
mod report;
mod screen;
mod seen;
mod source;
mod tail;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::recording::Record;

pub(crate) use args::MonitorArgs;

use crate::args::Common;
use crate::error::Error;
use crate::files::distinct;
use crate::output::{Answer, Code};
use crate::process::Stop;
use crate::recording::read;
use output::{Ended, Output, Table};
use seen::Seen;
use source::Source;

pub(crate) fn run(common: &Common, args: &MonitorArgs) -> Result<Answer, Error> {
    for (read, written) in [&args.replay, &args.record].into_iter().flatten().zip(args.csv_file().into_iter().cycle()) {
        distinct(read, written)?;
    }
    let is_screen = !common.json && !args.plain && !args.prints_csv() && are_terminals();
    let mut notes = Vec::new();
    let seen = match &args.replay {
        Some(path) => {
            let recorded = read(path)?;
            notes = recorded.notes;
            replay::show(common, args, path, recorded.records, is_screen)?
        }
        None => watch(common, args, is_screen)?,
    };
    let Some(seen) = seen else { return Ok(Answer { text: String::new(), notes, code: Code::Ok }) };
    let summary = seen.summary();
    let mut text =
        if common.json { output::summary_line(&summary) } else { report::text(&summary, &seen.start.trouble) };
    if args.prints_csv() {
        // The table goes to standard output.
        notes.push(std::mem::take(&mut text));
    }
    Ok(Answer { text, notes, code: Code::Ok })
}

fn are_terminals() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// Watches this machine; `None` when the reader has closed the output.
fn watch(common: &Common, args: &MonitorArgs, is_screen: bool) -> Result<Option<Seen>, Error> {
    let stop = Stop::on_signals()?;
    let mut source = Source::open(args)?;
    if is_screen {
        let mut table = args.csv_file().map(|path| Table::create(path)).transpose()?;
        let seen = screen::live(common, args, &mut source, table.as_mut(), &stop)?;
        source.close()?;
        return Ok(Some(seen));
    }
    let mut output = Output::new(common.json, args)?;
    let ended = follow(args, &mut source, &mut output, &stop)?;
    source.close()?;
    Ok(match ended {
        Ended::Whole(seen) => Some(*seen),
        Ended::NobodyReads => None,
    })
}

const REST: Duration = Duration::from_millis(50);

/// Prints samples until a signal, the end of the time, or the end of the program.
fn follow(args: &MonitorArgs, source: &mut Source, output: &mut Output, stop: &Stop) -> Result<Ended, Error> {
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
