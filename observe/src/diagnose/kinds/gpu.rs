//! Lowered clocks, slow PCIe links, and GPUs with little to do.

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity, WhatIf};
use crate::diagnose::finding::{percent, seconds};
use crate::diagnose::run_stats::GpuStats;
use crate::recording::Throttle;
use crate::stats::{mean, median};

/// Part of the time with lowered clocks that is worth a finding, by power and by temperature.
const OFTEN_BY_POWER: f64 = 0.2;
const OFTEN_BY_HEAT: f64 = 0.05;
/// A power limit below this part of the default was lowered by somebody.
const LOWERED: f64 = 0.95;
/// Exponent of the clock over the power: power grows with about the cube of the clock.
const CLOCK_BY_POWER: f64 = 1.0 / 3.0;
/// Clock over the highest clock that warm cards sustain without throttling.
const SUSTAINED: f64 = 0.9;

const HEAT: [Throttle; 2] = [Throttle::ThermalSoftware, Throttle::ThermalHardware];
const BRAKE: [Throttle; 2] = [Throttle::PowerBrake, Throttle::Hardware];

pub(super) fn power(input: &DiagnosisInput<'_>) -> Option<Finding> {
    input.stats.gpus.iter().find_map(|gpu| brake(input, gpu).or_else(|| cap(input, gpu)))
}

/// A power limit that is reached and is lower than the default.
fn cap(input: &DiagnosisInput<'_>, gpu: &GpuStats<'_>) -> Option<Finding> {
    let share = gpu.throttled(&[Throttle::PowerCap]);
    let default = f64::from(gpu.gpu.default_power_limit_mw?);
    let limit = gpu.mean(|sample| sample.power_limit_mw.map(f64::from))?;
    if share < OFTEN_BY_POWER || limit >= LOWERED * default {
        return None;
    }
    let drawn = gpu.mean(|sample| sample.power_mw.map(f64::from));
    let (clock, _) = gpu.clocks(&[Throttle::PowerCap]);
    let most = clock.zip(gpu.gpu.max_sm_clock_mhz).map_or(f64::INFINITY, |(clock, max)| f64::from(max) / clock);
    // The higher clock helps only in the part of the time with lowered clocks.
    let faster = 1.0 + ((default / limit).powf(CLOCK_BY_POWER).min(most) - 1.0) * share;
    let watts = |milliwatts: f64| format!("{:.0} W", milliwatts / 1e3);
    let headline = format!(
        "a power limit of {} lowers the clocks of {}: its default is {}",
        watts(limit),
        gpu.name(),
        watts(default)
    );
    let change = Change::new(format!("raise the limit to {}, if power supply and cooling allow it", watts(default)))
        .by(format!("sudo nvidia-smi -i {} -pl {:.0}", gpu.gpu.gpu, default / 1e3));
    let how = format!("the device's part {faster:.2} times as fast: clocks go with the cube root of the power");
    let prediction = input.model.as_ref().and_then(|model| input.predict(model.with_faster_device(faster), how));
    let words = format!(
        "clocks lowered {} of the time{}, {}",
        percent(share),
        drawn.map_or_else(String::new, |drawn| format!(", drawing {}", watts(drawn))),
        input.range()
    );
    let figures =
        [("throttled_share", share), ("power_limit_w", limit / 1e3), ("default_power_limit_w", default / 1e3)];
    let finding = Finding::new(Kind::PowerCap, Severity::Warning, headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

/// Hardware that slows down because the power supply fails.
fn brake(input: &DiagnosisInput<'_>, gpu: &GpuStats<'_>) -> Option<Finding> {
    let share = gpu.throttled(&BRAKE);
    if share < OFTEN_BY_POWER {
        return None;
    }
    let headline = format!("the hardware slows {} down for want of power", gpu.name());
    let change = Change::new("check the power supply, its cables and the server's power budget: no setting fixes this");
    let words = format!("clocks lowered {} of the time, {}", percent(share), input.range());
    let finding = Finding::new(Kind::PowerCap, Severity::Critical, headline, change);
    Some(
        finding
            .with_evidence(words, [("throttled_share", share)])
            .with_prediction(at_full_clock(input, gpu, &BRAKE, share)),
    )
}

pub(super) fn thermal(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let gpu = input.stats.gpus.iter().find(|gpu| gpu.throttled(&HEAT) >= OFTEN_BY_HEAT)?;
    let share = gpu.throttled(&HEAT);
    let prediction = at_full_clock(input, gpu, &HEAT, share);
    let severity = prediction.as_ref().map_or(Severity::Warning, Prediction::severity).min(Severity::Warning);
    let headline = format!("{} is too hot: its clocks are lowered {} of the time", gpu.name(), percent(share));
    let change = Change::new(
        "cool it: fans, dust, airflow between cards, the room; until then a lower power limit keeps the clocks steadier",
    );
    let (clock, _) = gpu.clocks(&HEAT);
    let hottest = gpu.samples.iter().filter_map(|sample| sample.temperature_c).max();
    let at = hottest.map_or_else(String::new, |hottest| format!(", at up to {hottest} degrees Celsius"));
    let of = clock.zip(gpu.gpu.max_sm_clock_mhz);
    let of = of.map_or_else(String::new, |(clock, max)| format!(", at {clock:.0} of {max} MHz"));
    let words = format!("clocks lowered {} of the time, {}{at}{of}", percent(share), input.range());
    let figures = [
        ("throttled_share", share),
        ("temperature_c", hottest.map_or(f64::NAN, f64::from)),
        ("sm_clock_mhz", clock.unwrap_or(f64::NAN)),
    ];
    let finding = Finding::new(Kind::ThermalThrottle, severity, headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

/// Predicts the speed at the GPU's clock without throttling; where that was not sampled, at the clock that cards sustain.
fn at_full_clock(
    input: &DiagnosisInput<'_>,
    gpu: &GpuStats<'_>,
    reasons: &[Throttle],
    share: f64,
) -> Option<Prediction> {
    let model = input.model.as_ref()?;
    let (low, free) = gpu.clocks(reasons);
    let sustained = gpu.gpu.max_sm_clock_mhz.map(|max| SUSTAINED * f64::from(max));
    let (low, full) = (low?, free.or(sustained)?);
    // The device did its work at two clocks. All of the work is then done at the higher one.
    let faster = (full / (share * low + (1.0 - share) * full)).max(1.0);
    let how = format!(
        "the device's part {faster:.2} times as fast: {full:.0} MHz in place of {low:.0} MHz for {} of the time",
        percent(share)
    );
    input.predict(model.with_faster_device(faster), how)
}

/// Gigabytes per second of a lane of generations 1 to 6, by the PCIe specification.
const LANE_GB_S: [f64; 6] = [0.25, 0.5, 0.985, 1.969, 3.938, 7.563];
/// Bandwidth that copies reach, over that of the link.
const REACHED: f64 = 0.8;
/// Bandwidth over the possible one, below which a link is reduced.
const REDUCED: f64 = 0.9;
/// Samples under load, at least: fewer may show the link on its way up.
const MIN_SAMPLES: usize = 5;

/// A link's generation and lanes.
type Link = (u32, u32);

pub(super) fn pcie(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (gpu, now, possible) = input.stats.gpus.iter().find_map(reduced)?;
    let (rate, best) = (gb_per_s(now)?, gb_per_s(possible)?);
    let headline = format!(
        "the link to {} is reduced: PCIe {} x{} where {} x{} is possible",
        gpu.name(),
        now.0,
        now.1,
        possible.0,
        possible.1
    );
    let change = Change::new(
        "reseat the card or use another slot, check risers and the firmware's settings for the slot (lanes, generation); \
         `nvidia-smi -q -d PCIE` shows the link",
    )
    .by("nvidia-smi -q -d PCIE");
    let words = format!("under load, {}: {rate:.1} GB/s of {best:.1} GB/s", input.range());
    let figures = [
        ("pcie_generation", f64::from(now.0)),
        ("pcie_lanes", f64::from(now.1)),
        ("link_gb_s", rate),
        ("possible_link_gb_s", best),
    ];
    let finding = |severity| Finding::new(Kind::PcieReduced, severity, headline, change).with_evidence(words, figures);
    let traffic = gpu.mean(|sample| sample.pcie_to_gpu_bytes_per_s.map(|bytes| bytes as f64));
    let Some((model, bytes_per_s)) = input.model.as_ref().zip(traffic) else {
        return Some(finding(Severity::Warning));
    };
    let was = model.as_is();
    let transfer = (bytes_per_s * model.parts.seconds / (rate * 1e9 * REACHED)).min(model.parts.seconds);
    let faster = rate / best;
    // Copies overlap with the step unless the training thread makes them, or the loader waits for them.
    let loader = if transfer >= 0.5 * was.loader { was.loader * faster } else { was.loader };
    let serial = was.serial - model.parts.upload * (1.0 - faster);
    let how = format!(
        "copies take {} of a step of {}, and {faster:.2} of that on the full link",
        seconds(transfer),
        seconds(model.parts.seconds)
    );
    let prediction = input.predict(WhatIf { loader, serial, ..was }, how)?;
    Some(finding(prediction.severity()).with_prediction(prediction))
}

/// Returns the links, now and possible, of a GPU whose link is reduced under load. Idle links slow down by themselves. A GPU
/// with unified memory has no link: a GB10 reports generation 1 and one lane.
fn reduced<'a>(gpu: &'a GpuStats<'a>) -> Option<(&'a GpuStats<'a>, Link, Link)> {
    if gpu.has_unified_memory() {
        return None;
    }
    let possible = (gpu.gpu.max_pcie_generation?, gpu.gpu.max_pcie_lanes?);
    let links: Vec<Link> =
        gpu.loaded().filter_map(|sample| Some((sample.pcie_generation?, sample.pcie_lanes?))).collect();
    let of = |part: fn(&Link) -> u32| median(links.iter().map(|link| f64::from(part(link)))).map(|part| part as u32);
    let now = (of(|link| link.0)?, of(|link| link.1)?);
    let is_reduced = links.len() >= MIN_SAMPLES && gb_per_s(now)? < REDUCED * gb_per_s(possible)?;
    is_reduced.then_some((gpu, now, possible))
}

fn gb_per_s((generation, lanes): Link) -> Option<f64> {
    let lane = LANE_GB_S.get(generation.checked_sub(1)? as usize)?;
    Some(lane * f64::from(lanes))
}

/// Part of the time in which a GPU that does not idle is busy.
const BUSY: f64 = 0.7;
/// Part of the time in which a GPU that mostly idles is busy.
const MOSTLY_IDLE: f64 = 0.4;
/// CPU time in percent of a thread that all else waits for.
const FULL_THREAD: f64 = 90.0;
/// Part of the cores that are busy when all are.
const ALL_CORES: f64 = 0.9;
/// SM activity below which a GPU is mostly empty.
const MOSTLY_EMPTY: f64 = 0.35;
/// Power over the limit below which a GPU is mostly empty while kernels run.
const LITTLE_POWER: f64 = 0.4;
/// Part of the time in which kernels run, for the power to count.
const RUNS: f64 = 0.8;

pub(super) fn idle(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let stats = &input.stats;
    if stats.steps.is_ok() || stats.run.is_some_and(|run| !run.device.is_gpu) {
        return None;
    }
    let busy = stats.busy().filter(|busy| *busy < BUSY)?;
    let thread = mean(stats.host.iter().filter_map(|sample| sample.process.as_ref()?.busiest_thread_percent));
    let cores = stats.busy_cores().zip(stats.cores());
    let why = match (thread, cores) {
        (_, Some((busy, cores))) if busy >= ALL_CORES * cores => {
            "all CPU cores are busy, most likely with the loader: prepare samples once and keep them"
        }
        (Some(thread), _) if thread >= FULL_THREAD => {
            "one thread is busy all the time: it launches kernels, or prepares batches without workers; try larger batches, \
             or more workers"
        }
        (Some(_), _) => "no thread is busy: the program waits for storage, a lock or the device",
        _ => "the recording does not show what the program waits for",
    };
    let severity = if busy < MOSTLY_IDLE { Severity::Critical } else { Severity::Warning };
    let headline = format!("the GPU idles {} of the time", percent(1.0 - busy));
    let change = Change::new(format!(
        "{why}; record the program's steps to find out: with `gpu-tuned`, run it with GPU_TUNED_RECORD=run.jsonl"
    ));
    let mut finding = Finding::new(Kind::GpuIdle, severity, headline, change)
        .with_evidence(format!("busy {} of the time, {}", percent(busy), input.range()), [("gpu_busy_share", busy)]);
    if let Some((busy, cores)) = cores {
        let words = format!("the program keeps {busy:.1} of {cores:.0} CPU cores busy");
        finding = finding.with_evidence(words, [("busy_cores", busy), ("cores", cores)]);
    }
    if let Some(thread) = thread {
        let words = format!("its busiest thread works {} of the time", percent(thread / 100.0));
        finding = finding.with_evidence(words, [("busiest_thread_share", thread / 100.0)]);
    }
    Some(finding)
}

pub(super) fn model_too_small(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref().filter(|_| input.stats.is_on_gpu())?;
    let busy = input.stats.busy()?;
    let (name, share, most, of_what) = if let Some(activity) = input.stats.sm_activity() {
        ("sm_activity_share", activity, MOSTLY_EMPTY, "of its SMs work")
    } else {
        let power = power_share(input).filter(|_| busy >= RUNS)?;
        ("power_share", power, LITTLE_POWER, "of its power is drawn while kernels run")
    };
    if share >= most {
        return None;
    }
    let headline = format!("the model is too small for this GPU: {} {of_what}", percent(share));
    let room = (0.8 / share).floor().clamp(1.0, 16.0);
    let change = Change::new(
        "nothing is wrong; a larger model (wider, deeper, longer sequences, larger patches) or several runs side by side \
         would take little more time",
    );
    let how =
        format!("about {room:.0} times the work in each kernel fits beside the present work, at about the same speed");
    let prediction = Prediction::new(Quantity::SamplesPerS, model.rate_now(), model.rate_now(), how);
    let words =
        format!("kernels run {} of the time, and {} {of_what}, {}", percent(busy), percent(share), input.range());
    let finding = Finding::new(Kind::ModelTooSmall, Severity::Hint, headline, change);
    let figures = [("gpu_busy_share", busy), (name, share), ("room_times", room)];
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

fn power_share(input: &DiagnosisInput<'_>) -> Option<f64> {
    let gpu = input.stats.gpus.first()?;
    gpu.mean(|sample| Some(f64::from(sample.power_mw?) / f64::from(sample.power_limit_mw?.max(1))))
}
