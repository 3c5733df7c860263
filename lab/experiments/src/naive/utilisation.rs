//! Utilisation of the GPU, from its driver.

use std::{
    env,
    path::Path,
    sync::{
        Mutex,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use gpu_tuned::Session;
use gpu_tuned_nvml::Gauge;
use serde::Serialize;

/// Variable with the path of the driver's library, as for the tested library.
const LIBRARY: &str = "GPU_TUNED_NVML_PATH";
/// Interval between two samples.
const EVERY: Duration = Duration::from_millis(100);
/// The driver's figure covers up to the last second.
const BEFORE: Duration = Duration::from_secs(1);

/// Samples the utilisation of a GPU.
pub(super) struct Watch(Mutex<Gauge>);

/// Share of the time in which a kernel was running, 0 to 1, over all samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Utilisation {
    mean: f64,
    median: f64,
    looks: usize,
}

impl Watch {
    /// The utilisation of a session's GPU; `None` without a driver.
    pub(super) fn for_session<C>(session: &Session<C>) -> Option<Self> {
        let gpu = &session.selection().gpu.as_ref()?.reading;
        let library = env::var_os(LIBRARY).filter(|path| !path.is_empty());
        let watch = Self(Mutex::new(Gauge::open(library.as_deref().map(Path::new), gpu).ok()?));
        watch.look().is_some().then_some(watch)
    }

    fn look(&self) -> Option<f64> {
        Some(f64::from(self.0.lock().ok()?.read().ok()?.utilisation_percent?) / 100.0)
    }

    /// Samples until `over` closes.
    #[expect(clippy::needless_pass_by_value, reason = "it is waited on until its sender is gone")]
    fn looks(&self, over: Receiver<()>) -> Vec<(Duration, f64)> {
        let begin = Instant::now();
        let mut looks = Vec::new();
        while over.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            looks.extend(self.look().map(|share| (begin.elapsed(), share)));
        }
        looks
    }
}

/// Does some work, and returns the utilisation meanwhile.
pub(super) fn watched<T>(watch: Option<&Watch>, work: impl FnOnce() -> T) -> (T, Option<Utilisation>) {
    let Some(watch) = watch else { return (work(), None) };
    thread::scope(|scope| {
        let (working, over) = channel();
        let looks = scope.spawn(move || watch.looks(over));
        let done = work();
        drop(working);
        (done, looks.join().ok().and_then(|looks| Utilisation::over(&looks)))
    })
}

impl Utilisation {
    fn over(looks: &[(Duration, f64)]) -> Option<Self> {
        let mut shares: Vec<f64> = looks.iter().filter(|(at, _)| *at > BEFORE).map(|(_, share)| *share).collect();
        shares.sort_by(f64::total_cmp);
        let middle = shares.get(shares.len() / 2)?;
        Some(Self { mean: shares.iter().sum::<f64>() / shares.len() as f64, median: *middle, looks: shares.len() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Utilisation, watched};

    #[test]
    fn the_time_before_the_work_does_not_count() {
        let looks: Vec<_> = [(200, 0.0), (900, 0.1), (1100, 0.8), (1200, 1.0), (1300, 0.9)]
            .map(|(ms, share)| (Duration::from_millis(ms), share))
            .to_vec();
        let found = Utilisation::over(&looks).unwrap();
        assert_eq!((found.median, found.looks), (0.9, 3));
        assert!((found.mean - 0.9).abs() < 1e-12);
        assert_eq!(Utilisation::over(&looks[..2]), None);
        assert_eq!(watched(None, || 7), (7, None));
    }
}
