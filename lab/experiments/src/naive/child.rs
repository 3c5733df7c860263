//! A part in a process of its own, which is ended when its time is over.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::mpsc::{RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::ValueEnum;
use hardware_tests::line::say;
use serde::Serialize;
use serde_json::Value;

use super::{Arguments, Model, Part};

/// Less is too little to begin.
const LEAST: f64 = 1.0;

/// Reason why a part is incomplete.
#[derive(Serialize)]
struct PartFailure {
    run: &'static str,
    model: Model,
    part: String,
    message: String,
}

/// Runs a part for at most `most` seconds, with `allotted` seconds for optional measurements. Forwards lines as they
/// come, and returns them.
pub(super) fn run(
    arguments: &Arguments,
    model: Model,
    part: Part,
    most: f64,
    allotted: f64,
) -> anyhow::Result<Vec<Value>> {
    let (lines, broken) = if most < LEAST {
        (Vec::new(), Some("no time is left".to_owned()))
    } else {
        let mut command = Command::new(env::current_exe().context("where is this program?")?);
        command.args(words(arguments, model, part, allotted));
        lines_of(command, Duration::from_secs_f64(most))?
    };
    if let Some(message) = broken {
        say("broken", &PartFailure { run: "naive", model, part: word(&part), message })?;
    }
    Ok(lines)
}

/// Forwards the output of a process, and returns its lines and its failure, if any.
fn lines_of(mut command: Command, most: Duration) -> anyhow::Result<(Vec<Value>, Option<String>)> {
    let end = Instant::now() + most;
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("no further process")?;
    let output = BufReader::new(process.stdout.take().context("BUG: it is piped")?);
    let (sender, printed) = channel();
    // The thread ends with the process, which closes the output.
    thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let mut lines = Vec::new();
    loop {
        match printed.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                lines.extend(serde_json::from_str::<Value>(&line).ok());
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                process.kill().context("a part does not end")?;
                process.wait().context("a part does not end")?;
                return Ok((lines, Some(format!("ended after {:.0} s: no more time was left", most.as_secs_f64()))));
            }
        }
    }
    let status = process.wait().context("a part does not end")?;
    Ok((lines, (!status.success()).then(|| status.to_string())))
}

/// Arguments of the process.
fn words(arguments: &Arguments, model: Model, part: Part, allotted: f64) -> Vec<String> {
    let Arguments { small, seconds, budget, precision, gpu, settings, .. } = arguments;
    let mut words: Vec<String> = ["naive", "--model"].map(str::to_owned).into();
    words.extend([word(&model), "--part".to_owned(), word(&part)]);
    let numbers = [("seconds", *seconds), ("budget", *budget), ("allotted", allotted)];
    words.extend(numbers.map(|(name, number)| format!("--{name}={number}")));
    words.extend([format!("--precision={precision}"), format!("--gpu={gpu}")]);
    words.extend(settings.as_ref().map(|settings| format!("--settings={settings}")));
    words.extend(small.then(|| "--small".to_owned()));
    words
}

fn word(of: &impl ValueEnum) -> String {
    of.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::{
        process::Command,
        time::{Duration, Instant},
    };

    use super::lines_of;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_was_printed_before_a_process_failed_or_was_ended_is_kept() {
        let (lines, broken) = lines_of(shell("echo '{\"a\": 1}'; echo words; exit 3"), Duration::from_mins(1)).unwrap();
        assert_eq!(lines, [serde_json::json!({"a": 1})]);
        assert!(broken.is_some_and(|message| message.contains('3')));
        let begin = Instant::now();
        let script = "echo '{\"a\": 2}'; exec sleep 60";
        let (lines, broken) = lines_of(shell(script), Duration::from_millis(500)).unwrap();
        assert!(lines.len() == 1 && broken.is_some() && begin.elapsed() < Duration::from_secs(30));
        assert_eq!(lines_of(shell("true"), Duration::from_mins(1)).unwrap(), (Vec::new(), None));
    }
}
