//! A recording in place of this machine.

use std::collections::BTreeSet;
use std::path::Path;

use gpu_tuned_observe::recording::Record;

use super::args::MonitorArgs;
use super::output::Output;
use super::screen;
use super::seen::Seen;
use crate::args::Common;
use crate::error::Error;
use crate::process::Stop;

/// Shows a recording; `None` when the reader has closed the output.
pub(super) fn show(
    common: &Common,
    args: &MonitorArgs,
    path: &Path,
    records: Vec<Record>,
    is_screen: bool,
) -> Result<Option<Seen>, Error> {
    let records = chosen(args, records)?;
    let mut seen = Seen::before(&records);
    if is_screen {
        for record in &records {
            seen.observe(record);
        }
        let stop = Stop::on_signals()?;
        return screen::replayed(common, &seen, path, &stop).map(|()| Some(seen));
    }
    // For people, the summary is enough.
    let mut output = Output::new(common.json, args)?;
    for record in &records {
        seen.observe(record);
        if (common.json || args.csv.is_some()) && !output.write(record, &seen)? {
            return Ok(None);
        }
    }
    Ok(Some(seen))
}

/// Records without those of other GPUs than the requested ones.
fn chosen(args: &MonitorArgs, mut records: Vec<Record>) -> Result<Vec<Record>, Error> {
    let there = gpus(&records);
    if let Some(wanted) = args.gpus.iter().find(|wanted| !there.contains(wanted)) {
        let there = there.iter().map(u32::to_string).collect();
        return Err(Error::NoGpu { wanted: *wanted, whose: "recording has", there });
    }
    let is_wanted = |gpu: u32| args.gpus.is_empty() || args.gpus.contains(&gpu);
    records.retain(|record| !matches!(record, Record::Gpu(sample) if !is_wanted(sample.gpu)));
    for record in &mut records {
        if let Record::Start(start) = record {
            start.gpus.retain(|gpu| is_wanted(gpu.gpu));
        }
    }
    Ok(records)
}

fn gpus(records: &[Record]) -> BTreeSet<u32> {
    let of = |record: &Record| match record {
        Record::Start(start) => start.gpus.iter().map(|gpu| gpu.gpu).collect(),
        Record::Gpu(sample) => vec![sample.gpu],
        _ => Vec::new(),
    };
    records.iter().flat_map(of).collect()
}
