//! Second start of a program, in f32.
//!
//! A program that leaves the precision to the planner may have a model that is not ready for 16 bits. Burn fixes the float
//! type of a device before the first tensor, so a process cannot change it once it has a model. The program therefore starts
//! again, in the same process.

use std::{env, process};

/// Variable with the process and the reason. Children of the program ignore it, because they have other processes.
const VARIABLE: &str = "GPU_TUNED_NOT_READY";

/// Returns why this process started again.
pub(crate) fn reason() -> Option<String> {
    let value = env::var(VARIABLE).ok()?;
    let (process, reason) = value.split_once(' ')?;
    (process == process::id().to_string()).then(|| reason.to_owned())
}

/// Handler of a model that is not ready for 16 bits; none where a process cannot be replaced.
#[cfg(feature = "burn")]
pub(crate) const HANDLER: Option<fn(&str) -> !> = {
    #[cfg(unix)]
    {
        Some(in_f32)
    }
    #[cfg(not(unix))]
    {
        None
    }
};

/// Starts this program again, with the same arguments, to train in f32 for the reason.
#[cfg(all(unix, feature = "burn"))]
fn in_f32(reason: &str) -> ! {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use gpu_tuned_observe::log::warn_user;

    warn_user(&format!("{reason}\n  the precision is left to the planner: the program starts again and trains in f32"));
    let program = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    let error = command.args(arguments).env(VARIABLE, format!("{} {reason}", process::id())).exec();
    warn_user(&format!("the program cannot start again: {error}; set precision = \"f32\""));
    process::exit(1)
}

#[cfg(all(test, unix, feature = "burn"))]
mod tests {
    use std::process::Stdio;

    use super::{in_f32, reason};

    #[test]
    #[ignore = "started by the test below"]
    fn starts_again() {
        match reason() {
            None => in_f32("running statistics\nin 16 bits"),
            Some(reason) => own_process::give(format!("{} {reason:?}", std::process::id())),
        }
    }

    #[test]
    fn the_process_stays_and_has_the_reason() {
        let mut command = own_process::command(starts_again);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process");
        let process = child.id();
        let output = child.wait_with_output().expect("it ends");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{stdout}");
        assert!(stdout.contains(&format!("{process} {:?}", "running statistics\nin 16 bits")), "{stdout}");
    }
}
