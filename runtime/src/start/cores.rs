//! CPU cores that Burn's CUDA backend needs.

/// Threads that are busy in a step, for each GPU: the program's, the one that fuses operations, and the one that launches
/// kernels. Each spins while it waits for another.
const THREADS: u64 = 3;

/// The warning for a process with fewer cores than busy threads.
pub(super) fn too_few(cores: u64, gpus: u64) -> Option<String> {
    let least = THREADS * gpus;
    (cores < least).then(|| {
        let cores = if cores == 1 { "1 CPU core is".to_owned() } else { format!("{cores} CPU cores are") };
        let gpus = if gpus == 1 { "a GPU".to_owned() } else { format!("{gpus} GPUs") };
        format!(
            "{cores} too few for {gpus}: threads of Burn wait by spinning, and steps may take several times as long. Give \
             the process at least {least} cores (affinity, CPU quota, SLURM_CPUS_PER_TASK)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::too_few;

    #[test]
    fn three_cores_for_each_gpu_are_enough() {
        assert_eq!((too_few(3, 1), too_few(24, 8), too_few(1, 0)), (None, None, None));
        let warning = too_few(2, 1).expect("two are too few");
        assert!(warning.starts_with("2 CPU cores are too few for a GPU: "), "{warning}");
        assert!(warning.contains("at least 3 cores"), "{warning}");
        let warning = too_few(1, 2).expect("one is too few");
        assert!(warning.starts_with("1 CPU core is too few for 2 GPUs: "), "{warning}");
    }
}
