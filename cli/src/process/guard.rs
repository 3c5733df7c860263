//! End of a process group with the command that started it, also after SIGKILL.

use std::process::{Child, Command, Stdio};

/// A shell that kills a process group once its standard input closes: when this process ends, for any reason.
///
/// `PR_SET_PDEATHSIG` would not reach grandchildren. The shell has a group of its own and ignores the signals that end all
/// processes of a terminal or a container.
pub(super) struct Guard(Child);

const SCRIPT: &str = "trap '' HUP INT QUIT TERM; read -r _; kill -s KILL -- \"-$0\"";

impl Guard {
    /// Starts a guard. Returns `None` without a shell.
    #[cfg(unix)]
    pub(super) fn new(group: u32) -> Option<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, &group.to_string()]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Self)
    }

    /// Without process groups there is nothing to guard.
    #[cfg(not(unix))]
    pub(super) fn new(_: u32) -> Option<Self> {
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The guard may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
