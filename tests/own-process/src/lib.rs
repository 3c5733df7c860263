//! Tests in processes of their own.
//!
//! All integration tests of a crate share one program, and its tests share one process. A test that depends on the
//! process's environment, its allocator or settings made once per process starts the program again with one test.

use std::env;
use std::fmt::Display;
use std::process::{Command, Output};

/// Environment variable that marks the process of one test.
const ALONE: &str = "OWN_PROCESS_TEST";
/// Prefix of the line that holds a result, between the lines of the test harness.
const RESULT: &str = "own-process result: ";

/// Returns the command that runs `test`, and no other test, in a new process of this program.
///
/// The test may be ignored. Its output is not captured by the harness.
///
/// # Panics
/// If the path of this program is unknown.
pub fn command(test: impl Fn()) -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of this program"));
    command.args(arguments(test));
    command
}

/// Returns the arguments with which this program runs `test` and no other test.
pub fn arguments(test: impl Fn()) -> [&'static str; 5] {
    ["--exact", name(&test), "--include-ignored", "--nocapture", "--test-threads=1"]
}

/// Returns the name that the harness gives to `test`: its path without the crate.
fn name<T>(_: &T) -> &'static str {
    let path = std::any::type_name::<T>();
    path.split_once("::").map_or(path, |(_, path)| path)
}

/// Runs `body`, the whole of `test`, in a process of its own.
///
/// # Panics
/// If the test fails or does not run in the new process.
pub fn alone(test: impl Fn(), body: impl FnOnce()) {
    if env::var_os(ALONE).is_some() {
        return body();
    }
    let output = run(command(&test).env(ALONE, "1"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{} did not run: {text}", name(&test));
}

/// Runs the command and returns its output.
///
/// # Panics
/// If the command fails, with all of its output.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes| String::from_utf8_lossy(bytes);
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Returns what the test in the new process passed to [`give`].
///
/// # Panics
/// If the test fails or gives no result.
pub fn result(command: &mut Command) -> String {
    let output = run(command);
    let text = String::from_utf8_lossy(&output.stdout);
    let result = text.lines().find_map(|line| line.strip_prefix(RESULT));
    result.unwrap_or_else(|| panic!("{command:?} gave no result: {text}")).to_owned()
}

/// Gives a result of one line to the process that started this one with [`result`].
pub fn give(result: impl Display) {
    println!("\n{RESULT}{result}");
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const WORD: &str = "OWN_PROCESS_WORD";
    static RUNS: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn a_body_runs_alone_and_elsewhere() {
        alone(a_body_runs_alone_and_elsewhere, || {
            RUNS.fetch_add(1, Ordering::Relaxed);
            assert!(env::args().any(|argument| argument == "tests::a_body_runs_alone_and_elsewhere"));
        });
        let runs = usize::from(env::var_os(ALONE).is_some());
        assert_eq!(RUNS.load(Ordering::Relaxed), runs);
    }

    #[test]
    #[ignore = "started by other tests"]
    fn repeats_a_word() {
        give(env::var(WORD).expect("a word"));
    }

    #[test]
    fn a_result_comes_back() {
        assert_eq!(result(command(repeats_a_word).env(WORD, "seven times 7")), "seven times 7");
    }

    #[test]
    #[should_panic(expected = "a word")]
    fn a_failure_is_shown_with_its_output() {
        result(&mut command(repeats_a_word));
    }

    #[test]
    #[should_panic(expected = "did not run")]
    fn a_function_that_is_no_test_is_an_error() {
        fn no_test() {}
        alone(no_test, || ());
    }
}
