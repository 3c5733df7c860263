//! Ranks on several GPUs: throughput, gradients and failures.

mod faults;
mod gradients;
mod model;
mod throughput;
mod watched;

use std::io::{Write, stdout};
use std::time::Instant;

use anyhow::ensure;
use burn::tensor::Device;
use clap::{Args, ValueEnum};
use gpu_tuned::burn::{Place, cpu, open};
use serde::Serialize;

use crate::catching::{Failure, catching};
use model::Shape;

/// Options of `ranks`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The model
    #[arg(long, default_value = "transformer")]
    model: Shape,
    /// Number of GPUs
    #[arg(long, default_value_t = 2)]
    gpus: usize,
    /// Samples in a micro-batch of a rank
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Micro-batches of a rank in a step
    #[arg(long, default_value_t = 1)]
    accumulate: usize,
    /// Steps in each turn of the throughput
    #[arg(long, default_value_t = 15)]
    steps: usize,
    /// Turns of one GPU and of all
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Samples of the step for comparing gradients; an odd number gives uneven ranks
    #[arg(long, default_value_t = 5)]
    samples: usize,
    /// Parts to run
    #[arg(long, value_delimiter = ',', default_value = "throughput,oom,panic,rescue,gradients")]
    parts: Vec<Part>,
    /// A part that takes longer is killed, and the next one begun
    #[arg(long, default_value_t = 150)]
    part_seconds: u64,
    /// Runs the parts here rather than in a process that can be killed
    #[arg(long, hide = true)]
    here: bool,
}

/// The parts; each prints one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    /// Samples per second of one GPU and of all, in turns
    Throughput,
    /// Out of memory on the last rank for every micro-batch
    Oom,
    /// The last rank panics
    Panic,
    /// Memory runs out on the last rank, and is enough for smaller micro-batches
    Rescue,
    /// Gradients of a step: of ranks, of one rank, and in fp64 on the CPU
    Gradients,
}

#[derive(Serialize)]
struct Line<'a> {
    part: Part,
    model: Shape,
    gpus: usize,
    batch: usize,
    accumulate: usize,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a Failure>,
}

/// Prints a line for every part, even if others fail.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let sizes = [arguments.gpus, arguments.batch, arguments.accumulate, arguments.samples];
    ensure!(!sizes.contains(&0), "nothing to train with");
    if arguments.here { arguments.run_here() } else { watched::run(arguments) }
}

impl Arguments {
    fn run_here(&self) -> anyhow::Result<()> {
        // Before the first tensor: the reference is computed in f64.
        let reference = cfg!(feature = "cuda").then(gradients::reference_device).transpose()?;
        let devices = self.devices()?;
        for part in &self.parts {
            let begin = Instant::now();
            let outcome = catching(|| match part {
                Part::Throughput => json(&throughput::measure(self, &devices)?),
                Part::Oom | Part::Panic | Part::Rescue => json(&faults::inject(self, *part, &devices)),
                Part::Gradients => json(&gradients::compare(self, &devices, reference.as_ref())?),
            });
            self.print(*part, begin, outcome.as_ref())?;
        }
        Ok(())
    }

    /// All of them, without autodiff.
    fn devices(&self) -> anyhow::Result<Vec<Device>> {
        if !cfg!(feature = "cuda") {
            return Ok(vec![cpu(); self.gpus]);
        }
        (0..self.gpus).map(|index| Ok(open(&Place::Index(index), None)?.device)).collect()
    }

    fn print(&self, part: Part, begin: Instant, outcome: Result<&serde_json::Value, &Failure>) -> anyhow::Result<()> {
        let line = Line {
            part,
            model: self.model,
            gpus: self.gpus,
            batch: self.batch,
            accumulate: self.accumulate,
            seconds: begin.elapsed().as_secs_f64(),
            result: outcome.ok().cloned(),
            failure: outcome.err(),
        };
        let mut out = stdout().lock();
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        Ok(out.flush()?)
    }
}

fn json<T: Serialize>(result: &T) -> anyhow::Result<serde_json::Value> {
    Ok(serde_json::to_value(result)?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, Part, faults, gradients, throughput};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn small() -> Arguments {
        let words =
            ["ranks", "--model", "small", "--batch", "4", "--accumulate", "2", "--steps", "2", "--repeats", "2"];
        Command::parse_from(words).arguments
    }

    #[test]
    fn both_ways_are_timed_in_turns() {
        let arguments = small();
        let measured = throughput::measure(&arguments, &arguments.devices().unwrap()).unwrap();
        assert_eq!((measured.one.len(), measured.all.len()), (2, 2));
        assert!(measured.ratio > 0.0);
    }

    #[test]
    fn faults_of_one_rank_end_all_or_are_overcome() {
        let arguments = small();
        let devices = arguments.devices().unwrap();
        let inject = |part| faults::inject(&arguments, part, &devices);
        let (oom, panic, rescue) = (inject(Part::Oom), inject(Part::Panic), inject(Part::Rescue));
        assert!(oom.error.as_deref().is_some_and(|error| error.contains("out of memory")), "{oom:?}");
        assert!(oom.seconds_to_end < Some(10.0) && oom.others.iter().all(|other| other.contains("rank 1 failed")));
        assert!(panic.error.as_deref().is_some_and(|error| error.contains("rank 1 panicked")), "{panic:?}");
        assert!(
            rescue.error.is_none() && rescue.rescues == [0, 1] && rescue.parameters_equal == Some(true),
            "{rescue:?}"
        );
    }

    #[test]
    fn gradients_of_ranks_are_those_of_one() {
        let arguments = small();
        for samples in [5, 24] {
            let arguments = super::Arguments { samples, ..arguments.clone() };
            let compared = gradients::compare(&arguments, &arguments.devices().unwrap(), None).unwrap();
            assert!(compared.ranks_and_one < 1e-4, "{compared:?}");
        }
    }
}
