//! The threads that Burn's CPU backend computes with: rayon's global pool.

/// Rayon's own variable for the size of its global pool.
const VARIABLE: &str = "RAYON_NUM_THREADS";

/// Gives the global pool so many threads, unless the user's environment says how many, or the program has made the pool.
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
