//! Simulated work of a loader's worker for a sample, in place of decoding and augmentation.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Arithmetic that keeps one core busy for some time.
#[derive(Clone, Copy, Debug)]
pub struct Work(u64);

impl Work {
    /// Calibrates the work to take this time on an idle core, with the fastest of five tries.
    pub fn for_duration(time: Duration) -> Self {
        const ROUNDS: u64 = 2_000_000;
        let round = || {
            let begin = Instant::now();
            Self(ROUNDS).run();
            begin.elapsed()
        };
        let least = (0..5).map(|_| round()).min().unwrap_or_default().max(Duration::from_nanos(1));
        Self((ROUNDS as f64 * time.as_secs_f64() / least.as_secs_f64()) as u64)
    }

    /// Does the work.
    pub fn run(self) {
        let mut state = 1_u64;
        for _ in 0..self.0 {
            state = black_box(state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1));
        }
    }
}
