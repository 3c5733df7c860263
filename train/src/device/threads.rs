//! The threads that Burn's CPU backend computes with: rayon's global pool.

/// Rayon's own variable for the size of its global pool.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Sizes the global pool, unless the user's environment sets its size, or the program has created the pool.
pub fn limit(threads: u64) {
    if std::env::var_os(VARIABLE).is_some() {
        tracing::debug!("{VARIABLE} is set, so that {threads} planned threads are left alone");
        return;
    }
    let threads = usize::try_from(threads).unwrap_or(usize::MAX);
    if let Err(error) = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global() {
        tracing::debug!("{threads} threads are planned, but the pool is there already: {error}");
    }
}
