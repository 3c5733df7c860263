//! Trains the digits network and prints its accuracy on the validation images.

use anyhow::Context;
use clap::Parser;
use digits::{
    config::TrainingConfig,
    data::Digits,
    model::ModelConfig,
    training::{Outcome, subject, train},
};
use gpu_tuned::{Bytes, Options, Session};
use tracing_subscriber::EnvFilter;

/// Trains a small convolutional network on 1,797 handwritten digits.
#[derive(Parser)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Arguments {
    /// Passes over the training images
    #[arg(long)]
    epochs: Option<usize>,
    /// Learning rate of the first step
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Seed of the initial weights and of the order of the images
    #[arg(long)]
    seed: Option<u64>,
    /// Samples in one micro-batch, instead of the planned number
    #[arg(long)]
    batch_size: Option<usize>,
    /// Train on the CPU, even if there are GPUs
    #[arg(long)]
    cpu: bool,
    /// Fail if the compiled settings do not suit this machine
    #[arg(long)]
    strict: bool,
    /// Probe the precision of the device's fp32 products before training
    #[arg(long)]
    probe_tf32: bool,
    /// Print one line of JSON instead of the report
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn config(&self) -> TrainingConfig {
        let mut config = TrainingConfig::new(ModelConfig::new());
        config.num_epochs = self.epochs.unwrap_or(config.num_epochs);
        config.learning_rate = self.learning_rate.unwrap_or(config.learning_rate);
        config.seed = self.seed.unwrap_or(config.seed);
        config.batch_size = self.batch_size.unwrap_or(config.batch_size);
        config
    }

    fn options(&self) -> Options {
        let options = Options::default().strict(self.strict);
        if self.cpu { options.cpu() } else { options }
    }
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let data = Digits::load().context("the digits in this program are damaged")?;
    let session = arguments.options().start(arguments.config())?;
    session.measure_if_asked("digits", &subject(&data, session.config()))?;
    if !arguments.json {
        println!("{session}\n");
    }
    if let Some(probe) = arguments.probe_tf32.then(|| session.probe_tf32()).flatten() {
        eprintln!("{}", probe.context("the device could not be probed")?);
    }
    let outcome = train(&session, &data).context("training stopped")?;
    println!("{}", if arguments.json { json(&outcome, &session) } else { sentence(&outcome, &session) });
    Ok(())
}

/// Memory reserved by Burn; `None` for a device without a memory pool, such as the CPU.
fn reserved(session: &Session<TrainingConfig>) -> Option<Bytes> {
    session.inner_device().memory_pool_usage().map(|usage| Bytes(usage.bytes_reserved))
}

fn sentence(outcome: &Outcome, session: &Session<TrainingConfig>) -> String {
    let Outcome { steps_per_epoch, optimizer_steps, accuracy, seconds } = *outcome;
    let memory = &session.plan().memory;
    let planned = memory.total() - memory.context - memory.kernels;
    let reserved = reserved(session).map(|taken| format!("\nmemory pools reserve {taken}; planned {planned}"));
    format!(
        "validation accuracy {:.2}% after {optimizer_steps} steps ({steps_per_epoch} an epoch) of {} samples in {seconds:.1} s",
        accuracy * 100.0,
        session.schedule().global_batch
    ) + &reserved.unwrap_or_default()
}

fn json(outcome: &Outcome, session: &Session<TrainingConfig>) -> String {
    serde_json::json!({
        "session": session,
        "epochs": session.config().num_epochs,
        "steps_per_epoch": outcome.steps_per_epoch,
        "optimizer_steps": outcome.optimizer_steps,
        "accuracy": outcome.accuracy,
        "seconds": outcome.seconds,
        "reserved_bytes": reserved(session),
    })
    .to_string()
}
