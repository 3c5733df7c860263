use core::fmt;

use super::{Plan, with_interval};
use crate::Bytes;

/// The values with their reasons, the schedule and the memory: some twenty lines.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan for {}", self.device)?;
        for reason in &self.reasons {
            let value = self.settings.get(reason.setting);
            writeln!(f, "  {:<22} {value:>9}  {} ({})", reason.setting, reason.why, reason.provenance)?;
        }
        if let Some(threads) = self.cpu_threads {
            writeln!(f, "  {:<22} {threads:>9}  the cores that the workers leave", "cpu threads")?;
        }
        writeln!(f, "  {:<22} {:>9}  {}", "global batch", self.schedule.global_batch, self.schedule.sum())?;
        let memory = &self.memory;
        let total = memory.total();
        writeln!(f, "  {:<22} {total:>9}  of {}, {} headroom", "memory", memory.available, memory.headroom)?;
        for (item, bytes) in memory.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO) {
            writeln!(f, "    {item:<22}{bytes:>8}")?;
        }
        write!(
            f,
            "  {:<22} {:>9}  samples/s ({})",
            "speed",
            with_interval(self.samples_per_s, self.samples_per_s_interval),
            self.samples_per_s_provenance
        )?;
        for advice in &self.advice {
            write!(f, "\n  note: {advice}")?;
        }
        Ok(())
    }
}
