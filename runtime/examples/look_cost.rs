//! What one look of the monitor costs: processor time and time on the clock, on the machine that this runs on.
//!
//! ```text
//! cargo run --release -p gpu-tuned --example look_cost -- 200 100
//! ```
//!
//! makes 200 looks, 100 ms apart, at the GPUs, the host and this process, and prints what they took. A look that asks a GPU
//! for its PCIe throughput waits 40 ms for it without working.

use std::time::{Duration, Instant};
use std::{env, fs, thread};

use gpu_tuned::monitor::{Options, Sampler};

fn main() {
    let number = |place| env::args().nth(place).and_then(|text| text.parse().ok());
    let (looks, pause): (u32, u64) = (number(1).map_or(100, |looks| looks as u32), number(2).unwrap_or(100));
    let mut sampler = Sampler::open(&Options::default());
    let start = sampler.start();
    println!("{} GPUs and slices; {}", start.gpus.len(), start.trouble.join("; "));
    let (mut walls, before) = (Vec::new(), worked());
    for _ in 0..looks {
        let begin = Instant::now();
        let records = sampler.look();
        walls.push(begin.elapsed());
        drop(records);
        thread::sleep(Duration::from_millis(pause));
    }
    walls.sort_unstable();
    let in_ms = |time: Duration| time.as_secs_f64() * 1e3;
    if let Some(worked) = before.zip(worked()).map(|(before, after)| after.saturating_sub(before)) {
        println!("processor time of a look: {:.3} ms", in_ms(worked / looks));
    }
    let at = |share: f64| walls[((walls.len() - 1) as f64 * share) as usize];
    println!(
        "time of a look: median {:.3} ms, 95% {:.3} ms, most {:.3} ms",
        in_ms(at(0.5)),
        in_ms(at(0.95)),
        in_ms(at(1.0))
    );
}

/// What this thread has spent on a processor, where Linux tells.
fn worked() -> Option<Duration> {
    let told = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}
