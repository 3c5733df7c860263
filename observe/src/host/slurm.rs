//! Limits of a Slurm job on its node. A cluster may enforce them without control groups.

use super::{Limits, MemoryLimit};

/// Reads the limits from Slurm's variables. Amounts of memory are in MiB; 0 is all of the node.
pub(super) fn limits(variable: impl Fn(&str) -> Option<String>) -> Limits {
    let number = |name: &str| variable(name)?.trim().parse().ok().filter(|number: &u64| *number > 0);
    let cores_on_node = number("SLURM_CPUS_ON_NODE");
    let cores = number("SLURM_CPUS_PER_TASK").or(cores_on_node);
    let amounts = [
        ("SLURM_MEM_PER_NODE", Some(1)),
        ("SLURM_MEM_PER_CPU", cores_on_node.or(cores)),
        ("SLURM_MEM_PER_GPU", number("SLURM_GPUS_ON_NODE")),
    ];
    let limit = |(name, count): (&'static str, Option<u64>)| {
        let limit = number(name)?.checked_mul(count?)?.checked_mul(1 << 20)?;
        Some(MemoryLimit { name, limit, used: 0 })
    };
    Limits { memory: amounts.into_iter().find_map(limit).into_iter().collect(), cores: cores.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use super::limits;

    #[test]
    fn a_job_has_its_part_of_the_node() {
        for (variables, cores, mib) in [
            (&[][..], None, None),
            (&[("SLURM_CPUS_PER_TASK", "4"), ("SLURM_CPUS_ON_NODE", "32")], Some(4), None),
            (&[("SLURM_CPUS_ON_NODE", "32")], Some(32), None),
            (&[("SLURM_MEM_PER_NODE", "16384")], None, Some(16_384)),
            // `--mem=0` is all of the node.
            (&[("SLURM_MEM_PER_NODE", "0")], None, None),
            (&[("SLURM_MEM_PER_CPU", "2048"), ("SLURM_CPUS_ON_NODE", "8")], Some(8), Some(16_384)),
            (&[("SLURM_MEM_PER_CPU", "2048"), ("SLURM_CPUS_PER_TASK", "4")], Some(4), Some(8192)),
            (&[("SLURM_MEM_PER_GPU", "65536"), ("SLURM_GPUS_ON_NODE", "2")], None, Some(131_072)),
            (&[("SLURM_MEM_PER_GPU", "65536")], None, None),
            (&[("SLURM_CPUS_PER_TASK", "many"), ("SLURM_MEM_PER_NODE", "-1")], None, None),
            (&[("SLURM_MEM_PER_NODE", "18446744073709551615")], None, None),
        ] {
            let value =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            let limits = limits(value);
            assert_eq!(limits.cores.first().copied(), cores, "{variables:?}");
            let memory = limits.memory.first().map(|memory| (memory.limit >> 20, memory.used));
            assert_eq!(memory, mib.map(|mib: u64| (mib, 0)), "{variables:?}");
        }
    }
}
