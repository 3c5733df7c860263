//! Second start of a program, in f32.
//!
//! A program that leaves the precision to the planner may have a model that is not ready for 16 bits. Burn fixes the float
//! type of a device before the first tensor, so a process cannot change it once it has a model. The program therefore starts
//! again, in the same process.

#[cfg(feature = "burn")]
use std::path::PathBuf;
#[cfg(feature = "burn")]
use std::sync::OnceLock;
use std::{env, process};

/// Variable with the process and the reason. Children of the program ignore it, because they have other processes.
const VARIABLE: &str = "GPU_TUNED_NOT_READY";

/// Working directory of the first start, for relative paths in the arguments.
#[cfg(feature = "burn")]
static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Keeps the working directory for a second start.
#[cfg(feature = "burn")]
pub(crate) fn keep_folder() {
    if let Ok(folder) = env::current_dir() {
        FOLDER.get_or_init(|| folder);
    }
}

/// Returns why this process started again.
pub(crate) fn reason() -> Option<String> {
    let value = env::var(VARIABLE).ok()?;
    let (process, reason) = value.split_once(' ')?;
    (process == process::id().to_string()).then(|| reason.to_owned())
}

/// Handler of a model that is not ready for 16 bits; none where a process cannot be replaced.
#[cfg(all(unix, feature = "burn"))]
pub(crate) const HANDLER: Option<fn(&str) -> !> = Some(in_f32);
#[cfg(all(not(unix), feature = "burn"))]
pub(crate) const HANDLER: Option<fn(&str) -> !> = None;

/// Starts this program again, with the same arguments, to train in f32 for the reason.
#[cfg(all(unix, feature = "burn"))]
fn in_f32(reason: &str) -> ! {
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;
    use std::sync::Mutex;

    use gpu_tuned_observe::log::warn_user;

    // Ranks are threads: the first one starts the program again, and the others wait for that.
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock();
    // The path of the program may have another file by now.
    let this = Path::new("/proc/self/exe").to_owned();
    let program = if this.exists() { this } else { env::current_exe().unwrap_or(this) };
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(folder) = FOLDER.get() {
        command.current_dir(folder);
    }
    warn_user(&format!("{reason}\n  the precision is left to the planner: the program starts again and trains in f32"));
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
