//! Exit codes: one table for the commands, their help and the documentation.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Code {
    Ok = 0,
    No = 1,
    Input = 2,
    ProgramFailed = 3,
    Unjudged = 4,
}

use Code::{Input, No, Ok, ProgramFailed, Unjudged};

/// Meanings of the codes.
const MEANINGS: [(Code, &str); 5] = [
    (Ok, "success, or the answer is yes"),
    (No, "the answer is no: does not fit, stale, findings"),
    (Input, "bad input or usage, such as a program that cannot be started"),
    (ProgramFailed, "a program that was started failed, or did not do what it was run for"),
    (Unjudged, "nothing could be judged"),
];

/// Codes of each command, with their meanings there.
const COMMANDS: [(&str, &[(Code, &str)]); 14] = [
    (
        "init",
        &[
            (Ok, "written, nothing to do, or a dry run"),
            (No, "not written: the answer was no, or there was no terminal to ask on"),
            (Input, "bad input or usage, or a file that cannot be written: all files are unchanged"),
        ],
    ),
    (
        "measure",
        &[(Ok, "measured"), (Input, USAGE), (ProgramFailed, "the program failed, was killed, or measured nothing")],
    ),
    (
        "bench",
        &[
            (Ok, "ok, even if some configurations failed: the table shows each outcome"),
            (No, "the answer is no: nothing ran, or there is no memory for a picture"),
            (Input, USAGE),
            (ProgramFailed, "the program failed outside of steps, was interrupted, or measured nothing"),
        ],
    ),
    (
        "warm",
        &[
            (Ok, "there is an archive"),
            (Input, USAGE),
            (ProgramFailed, "the program failed, was killed, or made no archive"),
        ],
    ),
    (
        "targets",
        &[(Ok, "ok"), (No, "the answer is no: nothing matches, or no GPU of this machine can train"), (Input, USAGE)],
    ),
    (
        "plan",
        &[(Ok, "everything fits"), (No, "something does not fit, or a GPU lacks a requested feature"), (Input, USAGE)],
    ),
    ("explain", &[(Ok, "it fits"), (No, "it does not fit, or the GPU lacks a requested feature"), (Input, USAGE)]),
    (
        "optimize",
        &[
            (Ok, "ok: written, or nothing to change"),
            (No, "the answer is no: the model does not fit one of the GPUs, whose copy is not written"),
            (Input, USAGE),
            (ProgramFailed, "the program of --benchmark failed, or did not do what it was run for"),
        ],
    ),
    (
        "check",
        &[
            (Ok, "everything is valid, up to date, and fits"),
            (No, "something is stale, or does not fit a GPU"),
            (Input, "bad input or usage, such as a mistake in a file"),
        ],
    ),
    (
        "diagnose",
        &[
            (Ok, "ok: no finding that costs 10% or more of the time or ends the run"),
            (No, "findings"),
            (Input, USAGE),
            (ProgramFailed, "the started program failed; its recording is judged all the same"),
            (Unjudged, "nothing could be judged: there are no steps and no samples of a GPU"),
        ],
    ),
    (
        "report",
        &[
            (Ok, "written"),
            (No, "written, and something does not fit, or a GPU lacks a requested feature"),
            (Input, "bad input or usage, or a file that cannot be read or written"),
        ],
    ),
    (
        "monitor",
        &[
            (Ok, "ok, also without a GPU: the host is watched then, with the reason"),
            (Input, "bad input or usage: a file that cannot be read or written, a GPU or a process that is not there"),
        ],
    ),
    ("trace", &[(Ok, "ok"), (No, "the recording has none of these steps"), (Input, USAGE)]),
    ("export", &[(Ok, "ok"), (Input, "bad input or usage, or a file that cannot be written")]),
];

const USAGE: &str = "bad input or usage";

/// Meanings of the codes of all commands, by number.
pub(crate) fn meanings() -> impl Iterator<Item = (u8, &'static str)> {
    MEANINGS.into_iter().map(|(code, meaning)| (code as u8, meaning))
}

/// End of the help of a command, or without a command of all.
pub(crate) fn help(command: Option<&str>) -> String {
    let Some(command) = command else {
        return format!("Exit codes; each command lists its own:\n{}", lines(&MEANINGS));
    };
    let own = COMMANDS.iter().find(|(name, _)| *name == command);
    own.map_or_else(String::new, |(_, codes)| format!("Exit codes:\n{}", lines(codes)))
}

fn lines(codes: &[(Code, &str)]) -> String {
    let lines: Vec<_> = codes.iter().map(|(code, meaning)| format!("  {}  {meaning}", *code as u8)).collect();
    lines.join("\n")
}
