//! End of the process after the end of its group, wherever its threads are.

use std::process;
use std::thread;
use std::time::Duration;

use crate::ended::Ended;
use crate::limits::Limits;

/// Exit code of a process whose group ended: "temporary failure", on which launchers restart.
pub const EXIT_CODE: i32 = 75;

/// Time for the last message and for destructors.
pub(crate) const DESTRUCTORS: Duration = Duration::from_secs(3);

/// Ends the process after [`Limits::grace`]. A thread in NCCL cannot be interrupted.
pub(crate) fn arm(ended: Ended, limits: &Limits) {
    let (grace, hook) = (limits.grace, limits.exit_hook.clone());
    let body = move || {
        thread::sleep(grace);
        match hook {
            Some(hook) => hook(&ended),
            None => exit(&ended),
        }
    };
    if thread::Builder::new().name("gpu-tuned exit".to_owned()).spawn(body).is_err() {
        eprintln!("gpu-tuned: no thread to wait for the end of this process, so that it ends now");
        process::abort();
    }
}

fn exit(ended: &Ended) -> ! {
    let message = format!(
        "gpu-tuned: this process ends with exit code {EXIT_CODE}, because the group of ranks has ended: {ended}"
    );
    // A full pipe and a destructor may block for ever.
    let exiting = thread::Builder::new().spawn(move || {
        eprintln!("{message}");
        process::exit(EXIT_CODE)
    });
    if exiting.is_ok() {
        thread::sleep(DESTRUCTORS);
    }
    process::abort();
}
