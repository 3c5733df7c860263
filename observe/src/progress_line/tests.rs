use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpu_tuned_core::Bytes;
use indicatif::{InMemoryTerm, ProgressDrawTarget, TermLike as _};

use super::{Output, ProgressLine};
use crate::log;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// A process has one line that other output is printed around.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line on a terminal of so many columns, as a terminal emulator shows it.
fn on_terminal(steps: Option<u64>, columns: u16) -> (ProgressLine, InMemoryTerm) {
    let terminal = InMemoryTerm::new(6, columns);
    // Without a limit of redraws in real time: the clock of the tests is another.
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal.clone()), 255);
    (ProgressLine::with_output(steps, Output::terminal(target)), terminal)
}

#[test]
fn the_line_has_the_figures_of_the_recent_steps() {
    let _alone = alone();
    let (line, terminal) = on_terminal(Some(600), 120);
    let mut line = line.steps_per_epoch(60).memory_total(Some(Bytes(24 << 30)));
    let reserved = || Some(Bytes(6 << 30));
    // Kernels are compiled for two minutes, and two steps a second follow.
    line.step_at(seconds(120.0), 512, Some(2.319_61), reserved);
    assert_eq!(terminal.contents(), "step 1/600, epoch 1/10, 6.0 GiB of 24.0 GiB reserved, loss 2.3196");
    for step in 1..=60 {
        line.step_at(seconds(120.0 + f64::from(step) / 2.0), 512, Some(0.25), reserved);
    }
    assert_eq!(
        terminal.contents(),
        "step 61/600, epoch 2/10, 1,024 samples/s, 6.0 GiB of 24.0 GiB reserved, loss 0.2500, 4:30 left"
    );
    // Half the speed: half a minute later the line has the new one alone.
    for step in 1..=31 {
        line.step_at(seconds(150.0 + f64::from(step)), 512, Some(1.5e-5), reserved);
    }
    assert_eq!(
        terminal.contents(),
        "step 92/600, epoch 2/10, 512 samples/s, 6.0 GiB of 24.0 GiB reserved, loss 1.500e-5, 8:28 left"
    );
    line.step_at(seconds(200.0), 512, Some(f64::NAN), reserved);
    assert!(terminal.contents().contains("loss NaN"), "{}", terminal.contents());
}

#[test]
fn what_is_unknown_is_left_out() {
    let _alone = alone();
    let (line, terminal) = on_terminal(None, 120);
    let mut line = line.resumed_after(1_000);
    for step in 0..4 {
        line.step_at(seconds(f64::from(step) * 3600.0), 9, None, || None);
    }
    assert_eq!(terminal.contents(), "step 1,004, 0.003 samples/s".replace("0.003", "2.5e-3"));
    // Two steps at the same time have no speed.
    let (mut line, terminal) = on_terminal(Some(100_000), 120);
    line.step_at(seconds(1.0), 9, None, || None);
    line.step_at(seconds(1.0), 9, None, || None);
    assert_eq!(terminal.contents(), "step 1/100,000");
    // Days are hours.
    line.step_at(seconds(2.0), 9, None, || None);
    assert_eq!(terminal.contents(), "step 3/100,000, 18.0 samples/s, 13:53:19 left");
}

#[test]
fn a_terminal_has_one_line_that_is_redrawn_and_stays_at_the_end() {
    let _alone = alone();
    let (mut line, terminal) = on_terminal(Some(3), 30);
    line.step_at(seconds(1.0), 8, Some(1.0), || None);
    assert_eq!(terminal.contents(), "step 1/3, loss 1.0000");
    // Too soon for a redraw, except for the last step.
    line.step_at(seconds(1.05), 8, Some(2.0), || None);
    assert_eq!(terminal.contents(), "step 1/3, loss 1.0000");
    line.suspend(|| {
        assert_eq!(terminal.contents(), "", "the program prints here");
        terminal.write_line("a line of the program").expect("memory");
    });
    assert_eq!(terminal.contents(), "a line of the program\nstep 1/3, loss 1.0000");
    line.step_at(seconds(1.1), 8, Some(3.0), || None);
    // A line that is longer than the terminal is wide does not wrap.
    assert_eq!(terminal.contents(), "a line of the program\nstep 3/3, 160 samples/s, loss");
    drop(line);
    assert_eq!(terminal.contents(), "a line of the program\nstep 3/3, 160 samples/s, loss");
}

#[test]
fn lines_of_the_log_are_printed_around_the_line() {
    let _alone = alone();
    let (mut line, terminal) = on_terminal(Some(3), 60);
    line.step_at(seconds(1.0), 8, None, || None);
    terminal.moves_since_last_check();
    log::print("a line of the log, on the real standard error");
    let moves = terminal.moves_since_last_check();
    assert!(moves.contains("Clear") && moves.contains("step 1/3"), "{moves}");
    drop(line);
    terminal.moves_since_last_check();
    log::print("nothing is redrawn any more");
    assert_eq!(terminal.moves_since_last_check(), "");
    assert_eq!(terminal.contents(), "step 1/3");
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn a_file_has_a_line_every_half_minute() {
    let print = |text: &str| LINES.lock().expect("no panic").push(text.to_owned());
    let mut line = ProgressLine::with_output(Some(1000), Output::Plain(print));
    let mut printed_at = Vec::new();
    for second in 1..=100 {
        line.step_at(seconds(f64::from(second)), 4, Some(0.5), || None);
        let mut lines = LINES.lock().expect("no panic");
        printed_at.extend(lines.drain(..).map(|text| (second, text)));
    }
    let line = |step, left| format!("step {step}/1,000, 4.00 samples/s, loss 0.5000, {left} left");
    assert_eq!(printed_at, [(30, line(30, "16:10")), (60, line(60, "15:40")), (90, line(90, "15:10"))]);
}

#[test]
fn memory_is_queried_once_a_second_at_most_and_only_for_a_line_that_is_shown() {
    let queries = Cell::new(0);
    let reserved = || {
        queries.set(queries.get() + 1);
        Some(Bytes(1 << 30))
    };
    let run = |output| {
        let mut line = ProgressLine::with_output(Some(100_000), output);
        queries.set(0);
        // Ten seconds with a step each millisecond.
        (0..10_000).for_each(|step| line.step_at(seconds(f64::from(step) / 1000.0), 1, None, reserved));
        queries.get()
    };
    let _alone = alone();
    let terminal = InMemoryTerm::new(1, 40);
    let target = ProgressDrawTarget::term_like_with_hz(Box::new(terminal), 255);
    assert_eq!(run(Output::terminal(target)), 10);
    assert_eq!(run(Output::Plain(|_| {})), 0);
    assert_eq!(run(Output::Off), 0);
}
