//! Exit codes: one table for help and documentation.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Code {
    Ok = 0,
    No = 1,
    Input = 2,
    ProgramFailed = 3,
    Unjudged = 4,
}

/// Codes with their meanings: of all commands, then of each command below its name.
const TABLE: &str = include_str!("codes.txt");

/// Codes with their meanings in general.
pub(crate) fn meanings() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once("  "))
}

/// End of the help of a command; without a command, of the help of all.
pub(crate) fn help(command: Option<&str>) -> String {
    let blocks = || TABLE.split("\n\n");
    let lines = match command {
        None => blocks().next(),
        Some(name) => blocks().find_map(|block| block.strip_prefix(name)?.strip_prefix('\n')),
    };
    let heading = if command.is_none() { "Exit codes; each command lists its own:" } else { "Exit codes:" };
    lines.unwrap_or_default().lines().fold(heading.to_owned(), |text, line| text + "\n  " + line)
}
