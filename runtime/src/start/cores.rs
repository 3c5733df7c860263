//! CPU cores that Burn's CUDA backend needs.

/// Threads of a process that are busy in a step: the program's, the one that fuses operations, and the one that launches
/// kernels. Each spins while it waits for another.
const THREADS: u64 = 3;

/// The warning for a process with fewer cores than busy threads.
pub(super) fn too_few(cores: u64) -> Option<String> {
    (cores < THREADS).then(|| {
        let cores = if cores == 1 { "1 CPU core is".to_owned() } else { format!("{cores} CPU cores are") };
        format!(
            "{cores} too few for a GPU: threads of Burn wait by spinning, and steps may take several times as long. Give \
             each process at least {THREADS} cores (affinity, CPU quota, SLURM_CPUS_PER_TASK)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::too_few;

    #[test]
    fn three_cores_are_enough() {
        assert_eq!((too_few(3), too_few(24)), (None, None));
        let warning = too_few(2).expect("two are too few");
        assert!(warning.starts_with("2 CPU cores are too few for a GPU: "), "{warning}");
        assert!(warning.contains("at least 3 cores"), "{warning}");
        assert!(too_few(1).expect("one is too few").starts_with("1 CPU core is too few for a GPU: "));
    }
}
