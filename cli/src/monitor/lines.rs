//! Samples as lines, for pipes and logs.

use gpu_tuned_observe::recording::{GpuSample, HostSample, Record, StepRecord};

use super::amounts::{gib, rate, reasons, short, size};
use super::seen::{Seen, Track};

/// Line of a record that is in `seen`, if it has one.
pub(super) fn line(record: &Record, seen: &Seen) -> Option<String> {
    let time = |at: f64| time(at - seen.begun);
    match record {
        Record::Gpu(sample) => Some(format!("{}  {}\n", time(sample.at), gpu(sample, seen))),
        Record::Host(sample) => Some(format!("{}  {}\n", time(sample.at), host(sample, seen))),
        Record::Step(record) if record.rank == 0 => Some(format!("{}  {}\n", time(record.at), step(record))),
        Record::Run(run) => {
            Some(format!("{}  training `{}` begins: process {}\n", time(run.at), run.workload, run.pid))
        }
        Record::Value(value) => Some(format!("{}  {} = {}\n", time(value.at), value.name, short(value.value))),
        _ => None,
    }
}

/// A time; negative before the start.
fn time(seconds: f64) -> String {
    format!("{:>8.1} s", if seconds.abs() < 0.05 { 0.0 } else { seconds })
}

fn gpu(sample: &GpuSample, seen: &Seen) -> String {
    let track = seen.gpus.iter().find(|track| (track.gpu.gpu, track.gpu.mig_slot) == (sample.gpu, sample.mig_slot));
    let mut parts = vec![format!("{:<7}", track.map_or_else(|| format!("GPU {}", sample.gpu), Track::number))];
    if let Some(trouble) = &sample.trouble {
        parts.push(trouble.clone());
        return parts.join("  ");
    }
    parts.extend(sample.utilisation_percent.map(|percent| format!("{percent:>3.0} %")));
    parts.extend(sample.sm_activity_percent.map(|percent| format!("SM {percent:>3.0} %")));
    let total = track.and_then(|track| track.gpu.memory_total_bytes);
    parts.extend(
        sample.memory_used_bytes.map(|used| of(gib(used as f64), total.map(|total| gib(total as f64)), "GiB", 1)),
    );
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1e3;
    parts.extend(sample.power_mw.map(|power| of(watts(power), sample.power_limit_mw.map(watts), "W", 0)));
    parts.extend(sample.sm_clock_mhz.map(|clock| format!("{clock} MHz")));
    parts.extend(sample.temperature_c.map(|celsius| format!("{celsius} °C")));
    let traffic = sample.pcie_to_gpu_bytes_per_s.zip(sample.pcie_from_gpu_bytes_per_s);
    parts.extend(traffic.map(|(to, from)| format!("PCIe {} to, {} from", rate(to as f64), rate(from as f64))));
    if !sample.throttle.is_empty() {
        parts.push(format!("throttled: {}", reasons(sample)));
    }
    parts.join("  ")
}

fn host(sample: &HostSample, seen: &Seen) -> String {
    let mut parts = vec!["host   ".to_owned()];
    parts.extend(sample.cpu_percent.map(|percent| format!("{percent:>3.0} %")));
    let total = Some(seen.start.memory_bytes).filter(|total| *total > 0).map(|total| gib(total as f64));
    parts.extend(sample.memory_used_bytes.map(|used| of(gib(used as f64), total, "GiB", 1)));
    if let Some(process) = &sample.process {
        parts.push(format!("process {}", process.pid));
        parts.extend(process.cpu_percent.map(|percent| format!("{percent:.0} %")));
        parts.extend(process.memory_bytes.map(size));
        parts.extend(process.busiest_thread_percent.map(|percent| format!("busiest thread {percent:.0} %")));
    }
    parts.join("  ")
}

fn step(step: &StepRecord) -> String {
    let rate = (step.seconds > 0.0).then(|| format!("  {} samples/s", short(step.samples as f64 / step.seconds)));
    let loss = step.loss.map(|loss| format!("  loss {}", short(loss)));
    format!("step {}{}{}", step.step, rate.unwrap_or_default(), loss.unwrap_or_default())
}

/// A part, with the whole where that is known.
fn of(part: f64, all: Option<f64>, unit: &str, digits: usize) -> String {
    let all = all.map(|all| format!("/{all:.digits$}")).unwrap_or_default();
    format!("{part:.digits$}{all} {unit}")
}
