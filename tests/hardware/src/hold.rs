//! A process that leaves another one less of a GPU's memory: a smaller GPU, or somebody else's run.

use std::{fs, path::PathBuf, thread};

use anyhow::Context;
use clap::Args;
use gpu_tuned::Bytes;
use serde::Serialize;

use crate::{card::Card, line::say};

/// Options of `hold`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Memory left free on CUDA's first GPU, in MiB
    free_mib: u64,
    /// File written once the memory is allocated
    ready: Option<PathBuf>,
}

#[derive(Serialize)]
struct FreeMemory {
    /// Free bytes.
    free_bytes: u64,
}

/// Allocates all memory except for `free_mib` until the process is ended.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut card = Card::open(0)?;
    card.take_all_but(Bytes::from_mib(arguments.free_mib).0)?;
    let held = FreeMemory { free_bytes: card.free()? };
    if let Some(ready) = &arguments.ready {
        fs::write(ready, held.free_bytes.to_string()).with_context(|| format!("cannot write `{}`", ready.display()))?;
    }
    say("hold", &held)?;
    loop {
        thread::park();
    }
}
