//! Steps that were taken both dry and executed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::Bytes;

use super::data::Results;
use super::subject::Run;

/// How many held the same bytes both ways.
#[derive(Default)]
pub(super) struct Pairs {
    all: usize,
    same: usize,
    /// The most that an executed step held beyond its dry run, and a dry run beyond its step.
    more: Bytes,
    less: Bytes,
}

impl Pairs {
    /// Each dry run with what was executed last before it: kernels of other runs may have been tuned otherwise.
    pub(super) fn of(results: &Results) -> Self {
        let mut pairs = Self::default();
        let mut executed: BTreeMap<(&str, Run), Bytes> = BTreeMap::new();
        for line in results.traced().chain(&results.pairs) {
            let Some(held) = line.reserved() else { continue };
            let step = (line.model.as_str(), Run::of(line));
            if line.was_executed() == Some(true) {
                executed.insert(step, held);
            } else if let Some(held_then) = executed.get(&step) {
                pairs.add(*held_then, held);
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
                "\nNo step is on record both dry and executed, but for [measured micro-batches](#at-measured-micro-batches)."
            )?,
            _ if same == all => {
                writeln!(text, "\nAll {all} pairs of dry and executed steps held the same bytes.")?;
            }
            _ => writeln!(
                text,
                "\nOf {all} pairs of dry and executed steps {same} held the same bytes; executed ones held up to {:.0} MiB more, and \
                 up to {:.0} MiB less.",
                more.mib(),
                less.mib()
            )?,
        }
        Ok(())
    }
}
