//! What a loader's worker does for a sample, in place of decoding and augmenting it.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Arithmetic that takes one core a while.
#[derive(Clone, Copy, Debug)]
pub struct Work(u64);

impl Work {
    /// As much as takes a core so long while nobody else uses it: the least of some tries.
    pub fn lasting(time: Duration) -> Self {
        const ROUNDS: u64 = 2_000_000;
        let round = || {
            let begin = Instant::now();
            Self(ROUNDS).done();
            begin.elapsed()
        };
        let least = (0..5).map(|_| round()).min().unwrap_or_default().max(Duration::from_nanos(1));
        Self((ROUNDS as f64 * time.as_secs_f64() / least.as_secs_f64()) as u64)
    }

    /// Does it.
    pub fn done(self) {
        let mut state = 1_u64;
        for _ in 0..self.0 {
            state = black_box(state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1));
        }
    }
}
