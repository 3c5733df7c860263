//! The parts in a process of their own, which is killed where one of them hangs.

use std::env::current_exe;
use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::ValueEnum;

use super::{Arguments, Part};
use crate::catching::Failure;

/// Runs all parts; a process that hangs or dies loses the part that it was at, and another takes the rest.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut parts = &arguments.parts[..];
    while !parts.is_empty() {
        let (mut child, lines) = spawn(arguments, parts)?;
        let mut begin = Instant::now();
        while let Some((part, rest)) = parts.split_first() {
            let line = lines.recv_timeout(Duration::from_secs(arguments.part_seconds));
            parts = rest;
            if let Ok(line) = line {
                writeln!(stdout().lock(), "{line}")?;
                begin = Instant::now();
                continue;
            }
            child.kill().ok();
            let message = format!("no result within {} s, or the process died", arguments.part_seconds);
            arguments.print(*part, begin, Err(&Failure { out_of_memory: false, message }))?;
            break;
        }
        ended(&mut child)?;
    }
    Ok(())
}

fn spawn(arguments: &Arguments, parts: &[Part]) -> anyhow::Result<(Child, Receiver<String>)> {
    let name = |part: &Part| part.to_possible_value().map(|value| value.get_name().to_owned());
    let model = arguments.model.to_possible_value().context("BUG: it has a name")?;
    let number = |value: usize| value.to_string();
    let mut child = Command::new(current_exe()?)
        .args(["ranks", "--here", "--model", model.get_name()])
        .args(["--gpus", &number(arguments.gpus), "--batch", &number(arguments.batch)])
        .args(["--accumulate", &number(arguments.accumulate), "--steps", &number(arguments.steps)])
        .args(["--repeats", &number(arguments.repeats)])
        .args(["--parts", &parts.iter().filter_map(name).collect::<Vec<_>>().join(",")])
        .stdout(Stdio::piped())
        .spawn()?;
    let out = BufReader::new(child.stdout.take().context("BUG: it is piped")?);
    let (sender, receiver) = channel();
    // It ends with the process.
    thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    Ok((child, receiver))
}

/// Waits for a process that is through, but not for ever.
fn ended(child: &mut Child) -> anyhow::Result<()> {
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > Duration::from_secs(20) {
            eprintln!("the process did not end by itself and is killed");
            child.kill()?;
            child.wait()?;
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
