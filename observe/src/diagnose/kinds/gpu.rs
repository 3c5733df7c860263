//! Low clocks, low power, slow PCIe links, and GPUs with little to do.

use gpu_tuned_core::telemetry::pcie_gb_s;

use super::{Change, DiagnosisInput, Finding, Kind, Prediction, Quantity, Severity, WhatIf};
use crate::diagnose::finding::{percent, seconds};
use crate::diagnose::run_stats::GpuStats;
use crate::recording::{GpuSample, Throttle};
use crate::stats::{mean, median};

/// Part of the time with lowered clocks that is worth a finding, by power and by temperature.
const OFTEN_BY_POWER: f64 = 0.2;
const OFTEN_BY_HEAT: f64 = 0.05;
/// A power limit below this part of the default was lowered by somebody.
const LOWERED: f64 = 0.95;
/// A power limit below this part of the default costs more speed than an administrator saves power for.
const FAR_BELOW: f64 = 0.7;
/// Power drawn over the limit, above which the limit is reached.
const AT_LIMIT: f64 = 0.95;
/// Part of the time that is most of it.
const MOSTLY: f64 = 0.5;
/// Exponent of the clock over the power: power grows with about the cube of the clock.
const CLOCK_BY_POWER: f64 = 1.0 / 3.0;
/// Clock over the highest clock that warm cards sustain without throttling.
const SUSTAINED: f64 = 0.9;

const HEAT: [Throttle; 2] = [Throttle::ThermalSoftware, Throttle::ThermalHardware];
const BRAKE: [Throttle; 2] = [Throttle::PowerBrake, Throttle::Hardware];

/// A GPU with a fault, and its figures.
type Faulty<'a, F> = (&'a GpuStats<'a>, F);

/// Returns the GPUs with a fault, in the driver's order, and the one whose figure is the lowest.
fn faulty<'a, F: Copy>(
    input: &'a DiagnosisInput<'_>,
    find: impl Fn(&'a GpuStats<'a>) -> Option<F>,
    figure: impl Fn(&F) -> f64,
) -> Option<(Vec<&'a GpuStats<'a>>, Faulty<'a, F>)> {
    let found: Vec<Faulty<'a, F>> = input.stats.boards.iter().filter_map(|gpu| Some((gpu, find(gpu)?))).collect();
    let worst = *found.iter().min_by(|(_, one), (_, other)| figure(one).total_cmp(&figure(other)))?;
    Some((found.into_iter().map(|(gpu, _)| gpu).collect(), worst))
}

/// Names GPUs: `GPU 0 (NVIDIA L4)`, `GPUs 0, 1 and 3`.
fn names(gpus: &[&GpuStats<'_>]) -> String {
    match gpus {
        [] => String::new(),
        [gpu] => gpu.name(),
        [rest @ .., last] => {
            let rest: Vec<_> = rest.iter().map(|gpu| gpu.gpu.gpu.to_string()).collect();
            format!("GPUs {} and {}", rest.join(", "), last.gpu.gpu)
        }
    }
}

/// A command for GPUs, with administrator rights: NVML changes nothing without them.
fn nvidia_smi(gpus: &[&GpuStats<'_>], options: &[&str]) -> String {
    let indices: Vec<_> = gpus.iter().map(|gpu| gpu.gpu.gpu.to_string()).collect();
    let indices = indices.join(",");
    let commands: Vec<_> = options.iter().map(|option| format!("sudo nvidia-smi -i {indices} {option}")).collect();
    commands.join("; ")
}

/// Names the GPU of the evidence, where there are several.
fn of_which(gpus: &[&GpuStats<'_>], worst: &GpuStats<'_>) -> String {
    if gpus.len() > 1 { format!("GPU {}: ", worst.gpu.gpu) } else { String::new() }
}

/// What lifts limits that a laptop's firmware sets: the driver refuses `nvidia-smi -pl` there.
const LAPTOP: &str = "connect the charger, choose the performance profile of the system, and start Dynamic Boost";
const DYNAMIC_BOOST: &str = "powerprofilesctl set performance; sudo systemctl enable --now nvidia-powerd";
/// Lists power limits and the reasons for low clocks.
const SHOW_LIMITS: &str = "nvidia-smi -q -d POWER,PERFORMANCE";

fn watts(milliwatts: f64) -> String {
    format!("{:.0} W", milliwatts / 1e3)
}

pub(super) fn power(input: &DiagnosisInput<'_>) -> Option<Finding> {
    brake(input).or_else(|| lowered_limit(input)).or_else(|| other_cap(input))
}

/// A GPU at its power limit.
#[derive(Clone, Copy)]
struct Capped {
    /// Part of the time at the limit.
    share: f64,
    limit_mw: f64,
    default_mw: f64,
    drawn_mw: Option<f64>,
}

impl Capped {
    /// Returns a limit that is reached and lower than the default, that of the driver or of the data sheet. Makers of
    /// laptops choose the limit, so their data sheet has none.
    fn below_default(gpu: &GpuStats<'_>) -> Option<Self> {
        let published = || gpu.profile().filter(|profile| !profile.mobile)?.board.tdp_w.map(|watts| watts * 1e3);
        let default_mw = gpu.gpu.default_power_limit_mw.map(f64::from).or_else(published)?;
        let limit_mw = gpu.under_load(|sample| sample.power_limit_mw)?;
        let drawn_mw = gpu.under_load(|sample| sample.power_mw);
        // Some drivers report no reason for low clocks.
        let clock = gpu.under_load(|sample| sample.sm_clock_mhz);
        let is_slow = clock.zip(gpu.max_clock()).is_none_or(|(clock, max)| clock < SUSTAINED * max);
        let is_reached = is_slow && drawn_mw.is_some_and(|drawn| drawn >= AT_LIMIT * limit_mw);
        let throttled = gpu.throttled(&[Throttle::PowerCap]);
        let share = if is_reached && throttled < OFTEN_BY_POWER { 1.0 } else { throttled };
        let is_found = share >= OFTEN_BY_POWER && limit_mw < LOWERED * default_mw;
        is_found.then_some(Self { share, limit_mw, default_mw, drawn_mw })
    }
}

/// A power limit that is reached and is lower than the default.
fn lowered_limit(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (gpus, (gpu, limit)) = faulty(input, Capped::below_default, |limit| limit.limit_mw / limit.default_mw)?;
    let Capped { share, limit_mw, default_mw, drawn_mw } = limit;
    let (clock, _) = gpu.clocks(&[Throttle::PowerCap]);
    let most = clock.zip(gpu.gpu.max_sm_clock_mhz).map_or(f64::INFINITY, |(clock, max)| f64::from(max) / clock);
    // The higher clock helps only in the part of the time with lowered clocks.
    let faster = 1.0 + ((default_mw / limit_mw).powf(CLOCK_BY_POWER).min(most) - 1.0) * share;
    let default = watts(default_mw);
    let headline =
        format!("a power limit of {} lowers the clocks of {}: its default is {default}", watts(limit_mw), names(&gpus));
    let change = if gpu.is_laptop() {
        Change::new(LAPTOP).by(DYNAMIC_BOOST)
    } else {
        Change::new(format!("raise the limit to {default}, if power supply and cooling allow it"))
            .by(nvidia_smi(&gpus, &[&format!("-pl {:.0}", default_mw / 1e3)]))
    };
    let how = format!("the device's part {faster:.2} times as fast: clocks go with the cube root of the power");
    let prediction = input.model.as_ref().and_then(|model| input.predict(model.with_faster_device(faster), how));
    let words = format!(
        "{}clocks lowered {} of the time{}, {}",
        of_which(&gpus, gpu),
        percent(share),
        drawn_mw.map_or_else(String::new, |drawn| format!(", drawing {}", watts(drawn))),
        input.range()
    );
    let figures =
        [("throttled_share", share), ("power_limit_w", limit_mw / 1e3), ("default_power_limit_w", default_mw / 1e3)];
    let severity = if limit_mw < FAR_BELOW * default_mw { Severity::Critical } else { Severity::Warning };
    let finding = Finding::new(Kind::PowerCap, severity, headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

/// A power cap far below the limit: that of the server, of a laptop's firmware, or of a power connector.
fn other_cap(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let find = |gpu: &GpuStats<'_>| {
        let share = gpu.throttled(&[Throttle::PowerCap]);
        let limit = gpu.under_load(|sample| sample.power_limit_mw)?;
        let drawn = gpu.under_load(|sample| sample.power_mw)?;
        // Work in bursts reaches the limit now and then, and draws less on average.
        let most = gpu.loaded().filter_map(|sample| sample.power_mw).max().map_or(drawn, f64::from);
        let (clock, _) = gpu.clocks(&[Throttle::PowerCap]);
        let is_slow = clock.zip(gpu.max_clock()).is_none_or(|(clock, max)| clock < LOW_IF_SET * max);
        (share >= MOSTLY && most < FAR_BELOW * limit && is_slow).then_some((share, drawn, limit))
    };
    let (gpus, (gpu, (share, drawn, limit))) = faulty(input, find, |(_, drawn, limit)| drawn / limit)?;
    let headline =
        format!("power of {} is capped at {}, far below its limit of {}", names(&gpus), watts(drawn), watts(limit));
    let change = if gpu.is_laptop() {
        Change::new(LAPTOP).by(DYNAMIC_BOOST)
    } else {
        Change::new(
            "check the power connectors of the card, the power supplies, and the power limits in the server's management \
             (BMC): no setting of the driver lifts this cap",
        )
        .by(SHOW_LIMITS)
    };
    let words = format!(
        "{}power cap active {} of the time, drawing {}, {}",
        of_which(&gpus, gpu),
        percent(share),
        watts(drawn),
        input.range()
    );
    let figures = [("throttled_share", share), ("power_w", drawn / 1e3), ("power_limit_w", limit / 1e3)];
    let prediction = at_full_clock(input, gpu, &[Throttle::PowerCap], share);
    let finding = Finding::new(Kind::PowerCap, Severity::Critical, headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

/// Hardware that slows down because power fails, or for a reason that it does not report.
fn brake(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let find = |gpu: &GpuStats<'_>| Some(gpu.throttled(&BRAKE)).filter(|share| *share >= OFTEN_BY_POWER);
    let (gpus, (gpu, share)) = faulty(input, find, |share| -share)?;
    let (why, what) = if gpu.throttled(&[Throttle::PowerBrake]) > 0.0 {
        ("for want of power", "check the power supply, its cables and the server's power budget: no setting fixes this")
    } else {
        (
            "and reports no reason",
            "check the power supply, its cables, the server's power budget and the cooling: no setting fixes this",
        )
    };
    let headline = format!("the hardware slows {} down {why}", names(&gpus));
    let words = format!("{}clocks lowered {} of the time, {}", of_which(&gpus, gpu), percent(share), input.range());
    let finding = Finding::new(Kind::PowerCap, Severity::Critical, headline, Change::new(what).by(SHOW_LIMITS));
    Some(
        finding
            .with_evidence(words, [("throttled_share", share)])
            .with_prediction(at_full_clock(input, gpu, &BRAKE, share)),
    )
}

pub(super) fn thermal(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let find = |gpu: &GpuStats<'_>| Some(gpu.throttled(&HEAT)).filter(|share| *share >= OFTEN_BY_HEAT);
    let (gpus, (gpu, share)) = faulty(input, find, |share| -share)?;
    let prediction = at_full_clock(input, gpu, &HEAT, share);
    let severity = prediction.as_ref().map_or(Severity::Warning, Prediction::severity).min(Severity::Warning);
    let are = if gpus.len() > 1 { "are" } else { "is" };
    let headline = format!("{} {are} too hot: clocks are lowered {} of the time", names(&gpus), percent(share));
    let change = Change::new(
        "cool it: fans, dust, airflow between cards, the room; until then a lower power limit keeps the clocks steadier",
    )
    .by("nvidia-smi -q -d TEMPERATURE,PERFORMANCE");
    let (clock, _) = gpu.clocks(&HEAT);
    let hottest = gpu.samples.iter().filter_map(|sample| sample.temperature_c).max();
    let at = hottest.map_or_else(String::new, |hottest| format!(", at up to {hottest} degrees Celsius"));
    let of = clock.zip(gpu.gpu.max_sm_clock_mhz);
    let of = of.map_or_else(String::new, |(clock, max)| format!(", at {clock:.0} of {max} MHz"));
    let which = of_which(&gpus, gpu);
    let words = format!("{which}clocks lowered {} of the time, {}{at}{of}", percent(share), input.range());
    let figures = [
        ("throttled_share", share),
        ("temperature_c", hottest.map_or(f64::NAN, f64::from)),
        ("sm_clock_mhz", clock.unwrap_or(f64::NAN)),
    ];
    let finding = Finding::new(Kind::ThermalThrottle, severity, headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

/// Clock over the highest clock, below which clocks that were set are low. Cards that are warm sustain more.
const LOW_IF_SET: f64 = 0.8;
/// Clock over the highest clock, below which clocks are low for no reason that the driver reports.
const LOW: f64 = 0.6;
/// Clock over the highest clock, below which a GPU is slower than half.
const VERY_LOW: f64 = 0.5;
/// Memory clock over the highest clock, below which the memory clock is low. CUDA programs run at 0.86 to 1 on GeForce
/// cards: in performance state 2.
const LOW_MEMORY: f64 = 0.8;

/// SM clocks that neither power nor heat lowers.
#[derive(Clone, Copy)]
struct Clocks {
    mhz: f64,
    max_mhz: f64,
    /// The driver reports that the clocks were set.
    are_set: bool,
}

impl Clocks {
    fn low(gpu: &GpuStats<'_>) -> Option<Self> {
        let is_set = |sample: &&GpuSample| sample.throttle.contains(&Throttle::ClockSetting);
        let is_free = |sample: &&GpuSample| sample.throttle.iter().all(|reason| *reason == Throttle::ClockSetting);
        let loaded = gpu.loaded().count();
        let free: Vec<_> = gpu.loaded().filter(is_free).collect();
        let clocks: Vec<_> = free.iter().filter_map(|sample| sample.sm_clock_mhz).map(f64::from).collect();
        let are_set = 2 * free.iter().copied().filter(|sample| is_set(sample)).count() >= free.len();
        let (mhz, max_mhz) = (median(clocks.iter().copied())?, gpu.max_clock()?);
        let most = if are_set { LOW_IF_SET } else { LOW };
        let is_usual = clocks.len() >= MIN_SAMPLES && 2 * free.len() >= loaded;
        (is_usual && mhz < most * max_mhz).then_some(Self { mhz, max_mhz, are_set })
    }
}

pub(super) fn low_clocks(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (gpus, (gpu, Clocks { mhz, max_mhz, are_set })) =
        faulty(input, Clocks::low, |clocks| clocks.mhz / clocks.max_mhz)?;
    let names = names(&gpus);
    let (headline, change) = if are_set {
        let headline = format!("the clocks of {names} are set to {mhz:.0} of {max_mhz:.0} MHz");
        (headline, "undo the setting, on the host: `-rgc` undoes `-lgc`, and `-rac` undoes `-ac`".to_owned())
    } else {
        let headline =
            format!("the clocks of {names} are {mhz:.0} of {max_mhz:.0} MHz under load: not by power or heat");
        let else_what = if gpu.is_laptop() { LAPTOP } else { "load the driver again, or reboot" };
        (headline, format!("undo locked clocks, on the host; if they stay low, {else_what}"))
    };
    let severity = if mhz < VERY_LOW * max_mhz { Severity::Critical } else { Severity::Warning };
    let figures = [("sm_clock_mhz", mhz), ("max_sm_clock_mhz", max_mhz)];
    let finding =
        Finding::new(Kind::LowClocks, severity, headline, Change::new(change).by(nvidia_smi(&gpus, &["-rgc", "-rac"])));
    Some(finding.with_evidence(with_state(input, &gpus, gpu, mhz / max_mhz), figures))
}

pub(super) fn low_memory_clock(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let find = |gpu: &GpuStats<'_>| {
        let (mhz, max_mhz) = (gpu.under_load(|sample| sample.memory_clock_mhz)?, gpu.max_memory_clock()?);
        (!gpu.has_unified_memory() && mhz < LOW_MEMORY * max_mhz).then_some((mhz, max_mhz))
    };
    let (gpus, (gpu, (mhz, max_mhz))) = faulty(input, find, |(mhz, max_mhz)| mhz / max_mhz)?;
    let headline = format!("the memory clock of {} is {mhz:.0} of {max_mhz:.0} MHz under load", names(&gpus));
    let else_what = if gpu.is_laptop() { LAPTOP } else { "load the driver again, or reboot" };
    let change = format!(
        "undo the setting, on the host: `-rmc` undoes `-lmc`, and `-rac` undoes `-ac`; if the clock stays low, {else_what}"
    );
    let severity = if mhz < VERY_LOW * max_mhz { Severity::Critical } else { Severity::Warning };
    let figures = [("memory_clock_mhz", mhz), ("max_memory_clock_mhz", max_mhz)];
    let change = Change::new(change).by(nvidia_smi(&gpus, &["-rmc", "-rac"]));
    let finding = Finding::new(Kind::LowMemoryClock, severity, headline, change);
    Some(finding.with_evidence(with_state(input, &gpus, gpu, mhz / max_mhz), figures))
}

/// Evidence of a low clock: its part of the highest one, and the performance state under load.
fn with_state(input: &DiagnosisInput<'_>, gpus: &[&GpuStats<'_>], worst: &GpuStats<'_>, share: f64) -> String {
    let state = worst.under_load(|sample| sample.performance_state);
    let state = state.map_or_else(String::new, |state| format!(", in performance state P{state:.0}"));
    let busy =
        worst.busy().map_or_else(String::new, |busy| format!(", while kernels run {} of the time", percent(busy)));
    format!("{}{} of the highest clock{state}{busy}, {}", of_which(gpus, worst), percent(share), input.range())
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

/// Bandwidth that copies reach, over that of the link.
const REACHED: f64 = 0.8;
/// Bandwidth over the possible one, below which a link is reduced.
const REDUCED: f64 = 0.9;
/// Samples under load, at least: fewer may show the link on its way up.
const MIN_SAMPLES: usize = 5;

type Link = (u32, u32);

pub(super) fn pcie(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (gpu, now, possible) = input.stats.boards.iter().find_map(reduced)?;
    let (rate, best) = (pcie_gb_s(now.0, now.1)?, pcie_gb_s(possible.0, possible.1)?);
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
         the command shows the link under load",
    )
    .by("nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,\
         pcie.link.width.max --format=csv");
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
    let is_reduced =
        links.len() >= MIN_SAMPLES && pcie_gb_s(now.0, now.1)? < REDUCED * pcie_gb_s(possible.0, possible.1)?;
    is_reduced.then_some((gpu, now, possible))
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
        .with_evidence(format!("busy {} of the time, {}", percent(busy), input.range()), [("gpu_busy_share", busy)])
        .with_busy_cores(cores);
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
