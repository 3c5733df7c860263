//! Memory of steps that ran both dry and executed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::Results;
use super::subject::Run;

/// Differences between executed and dry steps.
#[derive(Default)]
pub(super) struct Pairs {
    all: usize,
    same: usize,
    /// Largest excess of an executed step over its dry run.
    more: Bytes,
    /// Largest excess of a dry run over its executed step.
    less: Bytes,
}

impl Pairs {
    /// Compares each dry run with the last executed step before it, because other runs may have autotuned other kernels.
    pub(super) fn new(results: &Results) -> Self {
        let mut pairs = Self::default();
        let mut executed: BTreeMap<(&str, Run), Bytes> = BTreeMap::new();
        for line in results.traced().chain(&results.pairs) {
            let Some(reserved) = line.reserved() else { continue };
            let step = (line.model.as_str(), Run::new(line));
            if line.was_executed() == Some(true) {
                executed.insert(step, reserved);
            } else if let Some(executed) = executed.get(&step) {
                pairs.add(*executed, reserved);
            }
        }
        pairs
    }

    fn add(&mut self, executed: Bytes, dry: Bytes) {
        self.all += 1;
        self.same += usize::from(executed == dry);
        self.more = self.more.max(executed - dry);
        self.less = self.less.max(dry - executed);
    }

    pub(super) fn note(&self, text: &mut String) -> Result<()> {
        let Self { all, same, more, less } = self;
        match all {
            0 => writeln!(
                text,
                "\nNo step ran both dry and executed, except at [measured micro-batches](#at-measured-micro-batches)."
            )?,
            _ if same == all => {
                writeln!(text, "\nAll {all} pairs of dry and executed steps reserved the same bytes.")?;
            }
            _ => writeln!(
                text,
                "\n{same} of {all} pairs of dry and executed steps reserved the same bytes. Executed steps reserved up to {:.0} MiB more, \
                 and up to {:.0} MiB less.",
                more.mib(),
                less.mib()
            )?,
        }
        Ok(())
    }
}
