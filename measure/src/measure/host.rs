use std::time::{Duration, Instant};

/// Time limit of preparations.
const SPEND: Duration = Duration::from_millis(300);

/// Milliseconds that this thread takes for a sample, a median over preparations of so many samples at a time.
pub(super) fn ms_per_sample(prepare: &dyn Fn(usize), samples: usize) -> f64 {
    prepare(samples);
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || begin.elapsed() < SPEND {
        let start = Instant::now();
        prepare(samples);
        times.push(start.elapsed().as_secs_f64() * 1e3 / samples as f64);
    }
    super::times::median(&mut times)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::ms_per_sample;

    #[test]
    fn it_is_the_time_of_one_sample() {
        let (begin, prepared) = (Instant::now(), Cell::new(0));
        let prepare = |samples: usize| {
            prepared.set(prepared.get() + samples);
            thread::sleep(Duration::from_millis(2 * samples as u64));
        };
        let ms = ms_per_sample(&prepare, 5);
        // A median is at most twice the mean.
        let mean = begin.elapsed().as_secs_f64() * 1e3 / prepared.get() as f64;
        assert!(ms >= 2.0 && ms <= 2.0 * mean, "{ms}, on average {mean}");
    }
}
