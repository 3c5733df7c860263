//! The cost of one sample of the monitor on this machine: CPU time and elapsed time.
//!
//! ```text
//! cargo run --release --manifest-path lab/Cargo.toml -p experiments --example sample_cost -- 200 100
//! ```
//!
//! takes 200 samples of GPUs, host and this process, 100 ms apart, and prints their cost. A sample that reads the PCIe
//! throughput of a GPU waits 40 ms for the driver.

use std::time::{Duration, Instant};
use std::{env, fs, thread};

use gpu_tuned::monitor::{Options, Sampler};

fn main() {
    let number = |place| env::args().nth(place).and_then(|text| text.parse().ok());
    let (samples, pause): (u32, u64) = (number(1).map_or(100, |samples| samples as u32), number(2).unwrap_or(100));
    let mut machine = Sampler::open(&Options::default());
    let start = machine.start();
    println!("{} GPUs and MIG slices; {}", start.gpus.len(), start.trouble.join("; "));
    let (mut times, before) = (Vec::new(), cpu_time());
    for _ in 0..samples {
        let begin = Instant::now();
        drop(machine.sample());
        times.push(begin.elapsed());
        thread::sleep(Duration::from_millis(pause));
    }
    times.sort_unstable();
    let in_ms = |time: Duration| time.as_secs_f64() * 1e3;
    if let Some(worked) = before.zip(cpu_time()).map(|(before, after)| after.saturating_sub(before)) {
        println!("CPU time of a sample: {:.3} ms", in_ms(worked / samples));
    }
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        "time of a sample: median {:.3} ms, 95% {:.3} ms, max {:.3} ms",
        in_ms(at(0.5)),
        in_ms(at(0.95)),
        in_ms(at(1.0))
    );
}

/// Returns the CPU time of this thread, on Linux.
fn cpu_time() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
