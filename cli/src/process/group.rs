//! Process groups and the signals that reach them.

#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Term,
    Cont,
    Kill,
    /// A signal that we got.
    Passed(i32),
}

/// Sends a signal to a process group. Returns true if that worked.
#[cfg(unix)]
pub(super) fn send(signal: Signal, group: u32) -> bool {
    use rustix::process::{Signal as Number, kill_process_group};
    let number = match signal {
        Signal::Term => Some(Number::TERM),
        Signal::Cont => Some(Number::CONT),
        Signal::Kill => Some(Number::KILL),
        Signal::Passed(number) => Number::from_named_raw(number),
    };
    number_of(group).zip(number).is_some_and(|(group, number)| kill_process_group(group, number).is_ok())
}

/// Without process groups, no signal is sent.
#[cfg(not(unix))]
pub(super) fn send(_: Signal, _: u32) -> bool {
    false
}

#[cfg(unix)]
fn number_of(group: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(group).ok()?)
}

/// State and group of a process, from Linux's `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    group: u32,
}

fn state(process: u32) -> Option<Stat> {
    parsed(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Returns true if a process is stopped, as by the terminal.
pub(super) fn is_stopped(process: u32) -> bool {
    state(process).is_some_and(|stat| stat.state == 'T')
}

/// Zombies do not run: in containers nobody reaps them.
const fn runs(stat: Stat) -> bool {
    !matches!(stat.state, 'Z' | 'X')
}

/// Returns true if a process runs, or where that is unknown.
pub(crate) fn is_running(process: u32) -> bool {
    !cfg!(target_os = "linux") || state(process).is_some_and(runs)
}

/// Parses `4711 (name) state parent group …`; a name may contain brackets.
fn parsed(stat: &str) -> Option<Stat> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, group: fields.nth(1)?.parse().ok()? })
}

/// Returns true if any process of a group runs.
#[cfg(target_os = "linux")]
pub(super) fn has_members(group: u32) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut stats = processes.flatten().filter_map(number).filter_map(state);
    stats.any(|stat| stat.group == group && runs(stat))
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn has_members(group: u32) -> bool {
    number_of(group).is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
}

#[cfg(not(unix))]
pub(super) fn has_members(_: u32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{Stat, parsed};

    #[test]
    fn names_may_have_brackets_and_spaces() {
        let stat = "4711 (a) b (c) T 4000 4242 4000 34816 4711 4194304";
        assert_eq!(parsed(stat), Some(Stat { state: 'T', group: 4242 }));
        assert_eq!(parsed("4711"), None);
    }
}
