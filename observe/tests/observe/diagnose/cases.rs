//! Runs in which a kind is found, and runs near them in which it is not.

use gpu_tuned_core::workload::Family;
use gpu_tuned_core::{Kernels, Precision};
use gpu_tuned_observe::diagnose::Kind;
use gpu_tuned_observe::recording::{GpuProcess, SlowestRank, Throttle};

use super::recorded::{GIB, Made};

/// A kind, a run in which it is found, and a run in which it is not.
type Case = (Kind, Made, Made);

/// Steps that wait `waited` seconds for the loader.
pub(super) fn waiting(made: Made, waited: f64) -> Made {
    made.each_step(|step| {
        step.seconds += waited;
        (step.waited_s, step.queued) = (Some(waited), Some(0));
    })
}

/// Steps in which the host works all the time.
fn launching(made: Made) -> Made {
    let made = made.each_step(|step| {
        (step.loss_s, step.loss_cpu_s) = (Some(0.04), Some(0.04));
        (step.backward_s, step.update_s, step.drain_s) = (Some(0.05), Some(0.009), Some(0.001));
    });
    made.each_sample(|sample| sample.utilisation_percent = Some(40.0))
}

pub(super) fn throttled(made: Made, by: Throttle, clock: u32) -> Made {
    made.each_sample(|sample| {
        sample.throttle = vec![by];
        sample.sm_clock_mhz = Some(clock);
    })
}

/// Memory in use that grows by `bytes` with each step until step `until`.
fn growing(made: Made, bytes: u64, until: u64) -> Made {
    made.each_step(|step| {
        let kept = bytes * step.step.min(until);
        step.in_use_bytes = step.in_use_bytes.map(|used| used + kept);
        step.reserved_bytes = step.reserved_bytes.map(|held| held + kept);
    })
}

pub(super) fn neighbour(made: Made, bytes: u64) -> Made {
    made.each_sample(|sample| {
        let mut other = GpuProcess::new(99);
        (other.name, other.memory_bytes) = (Some("python".to_owned()), Some(bytes));
        sample.processes.as_mut().unwrap().push(other);
        sample.memory_used_bytes = sample.memory_used_bytes.map(|used| used + bytes);
    })
}

/// A run of four ranks, of which rank 2 takes `times` as long as the others in every step but each `every`th.
fn with_slow_rank(made: Made, times: f64, every: u64) -> Made {
    made.each_step(|step| {
        let seconds = |rank| match rank {
            2 if step.step % every != 0 => 0.08 * times,
            rank => 0.08 + 1e-4 * ((rank + step.step) % 4) as f64,
        };
        step.slowest_rank = SlowestRank::of((0..4).map(|rank| (rank, "node7", seconds(rank))));
        let wait = 0.08 * (times - 1.0);
        (step.seconds, step.exchange_s) = (step.seconds + wait, Some(wait));
    })
}

/// A run of two ranks that take turns in being slow.
fn with_jitter(made: Made) -> Made {
    made.each_step(|step| {
        let seconds = |rank| if (step.step + rank) % 2 == 0 { 0.1 } else { 0.08 };
        step.slowest_rank = SlowestRank::of((0..2).map(|rank| (rank, "node7", seconds(rank))));
    })
}

/// The run on a GPU that shares the host's memory.
fn with_unified_memory(mut made: Made) -> Made {
    made.start.gpus.iter_mut().for_each(|gpu| gpu.unified_memory = true);
    made
}

/// A run with the session's loader.
pub(super) fn ours(made: Made) -> Made {
    made.each_step(|step| (step.prepared_s, step.prepared_cpu_s) = (Some(1e-3), Some(1e-3)))
}

pub(super) fn tiny(made: Made) -> Made {
    made.each_step(|step| (step.micro_batch, step.micro_batches) = (8, 16))
}

pub(super) fn computing(made: Made, percent: f64) -> Made {
    made.each_process(|process| process.cpu_percent = Some(percent))
}

/// Cases of the loader and the host.
fn of_the_host() -> Vec<Case> {
    let healthy = Made::healthy;
    let waits = |waited, percent| computing(waiting(healthy(), waited), percent);
    let turns = |waited| waiting(healthy().with_settings(|settings| settings.num_workers = 0), waited);
    let reading = |loss: f64, computes: f64, backward: f64| {
        healthy().each_step(move |step| {
            (step.loss_s, step.loss_cpu_s, step.backward_s) = (Some(loss), Some(computes), Some(backward));
            step.drain_s = Some(0.097 - loss - backward);
        })
    };
    let preparing = |seconds: f64, computing: f64| {
        waiting(healthy(), 0.1).each_step(move |step| {
            (step.prepared_s, step.prepared_cpu_s) = (Some(seconds), Some(computing));
        })
    };
    let outside = |seconds: f64| {
        healthy().each_step(move |step| (step.seconds, step.outside_s) = (step.seconds + seconds, Some(seconds)))
    };
    let uploading = |seconds: f64| {
        healthy().each_step(move |step| (step.seconds, step.upload_s) = (step.seconds + seconds, Some(seconds)))
    };
    let busy = |made: Made| made.each_sample(|sample| sample.utilisation_percent = Some(97.0));
    let frozen = |made: Made| made.started(|run| run.partly_frozen = true);
    vec![
        (Kind::LoaderBound, waits(0.1, 450.0), waits(0.003, 450.0)),
        (Kind::SlowStorage, waits(0.1, 60.0), waits(0.1, 450.0)),
        // Workers that have too much to do, that wait, or that idle.
        (Kind::LoaderBound, preparing(0.76, 0.7), preparing(0.76, 0.1)),
        (Kind::SlowStorage, preparing(0.76, 0.1), preparing(0.3, 0.1)),
        (Kind::LoaderBound, preparing(0.3, 0.1), preparing(0.76, 0.1)),
        (Kind::PrefetchMissing, turns(0.05), turns(0.002)),
        (Kind::PrefetchMissing, uploading(0.03), uploading(0.002)),
        // The device has no room for a step's batch. Larger micro-batches, which gain speed anyway, make room for it, but not
        // for a loader of the program's own.
        (Kind::PrefetchMissing, tiny(uploading(0.03)), ours(tiny(uploading(0.03)))),
        (Kind::HostSync, reading(0.04, 0.002, 0.002), reading(0.04, 0.038, 0.045)),
        // The thread spins: no pass launches for that long.
        (Kind::HostSync, reading(0.04, 0.04, 0.01), reading(0.01, 0.01, 0.02)),
        // The backward pass of a frozen model is shorter than the forward pass.
        (Kind::HostSync, reading(0.04, 0.04, 0.01), frozen(reading(0.04, 0.04, 0.01))),
        (Kind::SlowLoop, outside(0.05), outside(0.004)),
        (Kind::HostBound, launching(healthy()), busy(launching(healthy()))),
    ]
}

/// Steps of which these are skipped, with this loss.
fn skipping(steps: &'static [u64], loss: f64) -> Made {
    Made::healthy().each_step(|step| {
        step.applied = !steps.contains(&step.step);
        step.loss = Some(if step.applied { 1.5 } else { loss });
    })
}

/// Cases of settings.
fn of_settings() -> Vec<Case> {
    let healthy = Made::healthy;
    let of_size =
        |batch: u64| healthy().each_step(move |step| (step.micro_batch, step.micro_batches) = (batch, 128 / batch));
    let f32_with =
        |tf32| healthy().with_settings(|settings| (settings.precision, settings.allow_tf32) = (Precision::F32, tf32));
    let recomputing = |fits: bool| {
        let made = healthy().with_settings(|settings| settings.gradient_checkpointing = true);
        made.started(|run| {
            let mut with = run.expected.clone();
            for (with, without) in with.iter_mut().zip(&mut run.expected) {
                (with.checkpointing, with.samples_per_s) = (true, 0.8 * without.samples_per_s);
                without.fits = fits;
            }
            run.expected.extend(with);
        })
    };
    let without_bf16 = |made: Made| made.started(|run| run.device.has_bf16 = false);
    let using = |percent| {
        without_bf16(f32_with(true)).each_sample(move |sample| sample.tensor_activity_percent = Some(percent))
    };
    let of_family = |family| healthy().started(|run| run.family = Some(family));
    let measured = |speed_up| healthy().started(|run| run.library_speed_up = Some(speed_up));
    // The device works for less than half of a step.
    let waiting_longer = |made| waiting(made, 0.3).each_sample(|sample| sample.utilisation_percent = Some(24.0));
    let global = |batch| healthy().started(|run| run.global_batch = Some(batch));
    let built_for = |target: &str| healthy().started(|run| run.target = Some(target.to_owned()));
    let on_cpu = |features: &[&str], because: &str| {
        let features = features.iter().map(ToString::to_string).collect();
        healthy().started(|run| {
            (run.features, run.fallbacks) = (features, vec![format!("no usable GPU: {because}")]);
            (run.device.is_gpu, run.device.profile, run.device.name) = (false, None, "CPU".to_owned());
        })
    };
    let without_cuda = "this program is built without feature `cuda`";
    let empty = || healthy().each_sample(|sample| sample.sm_activity_percent = Some(15.0));
    let without_loss = |made: Made| made.each_step(|step| step.loss = None);
    let where_applied = |made: Made| made.each_step(|step| step.loss = step.loss.filter(|_| step.applied));
    vec![
        (Kind::BatchTooSmall, of_size(4), of_size(32)),
        (Kind::NotFinite, skipping(&[150, 151, 152, 153], 1.5), skipping(&[1, 2, 3, 4, 5, 150], 1.5)),
        (Kind::NotFinite, skipping(&[150], f64::NAN), skipping(&[150], 1.5)),
        (Kind::NotFinite, where_applied(skipping(&[150], 1.5)), without_loss(skipping(&[150], 1.5))),
        (Kind::NoAmp, f32_with(true), without_bf16(f32_with(true))),
        (Kind::NoTf32, without_bf16(f32_with(false)), without_bf16(f32_with(true))),
        (Kind::NoTf32, using(0.0), using(10.0)),
        (Kind::NoLibrary, of_family(Family::Transformer), of_family(Family::Other)),
        (Kind::NoLibrary, of_family(Family::Transformer), waiting_longer(of_family(Family::Transformer))),
        (Kind::NoLibrary, measured(1.9), measured(1.04)),
        (Kind::NoLibrary, measured(1.9), measured(1.9).with_settings(|settings| settings.kernels = Kernels::Library)),
        (Kind::NoAccumulation, global(512), global(130)),
        (Kind::NoAccumulation, global(512), global(512).each_step(|step| step.samples = 0)),
        (Kind::NeedlessCheckpointing, recomputing(true), recomputing(false)),
        (Kind::WrongTarget, built_for("rtx4090"), built_for("generic")),
        (Kind::NoCuda, on_cpu(&["h200"], without_cuda), on_cpu(&["h200", "cuda"], "CUDA_VISIBLE_DEVICES is empty")),
        // Recordings of older versions have the reason alone.
        (Kind::NoCuda, on_cpu(&[], without_cuda), on_cpu(&[], "CUDA_VISIBLE_DEVICES is empty")),
        (Kind::ModelTooSmall, empty(), waiting(empty(), 0.1)),
    ]
}

/// Cases of memory, and of ranks.
fn of_memory() -> Vec<Case> {
    let healthy = Made::healthy;
    let leaking = |until| growing(healthy(), 10 << 20, until);
    let fragmented = |gib: u64| healthy().each_step(move |step| step.reserved_bytes = Some(gib * GIB));
    let host_growing = |bytes: u64| {
        let mut made = healthy().each_step(|step| step.seconds = 1.0);
        for (number, sample) in (1..).zip(&mut made.host) {
            sample.process.as_mut().unwrap().memory_bytes = Some(4 * GIB + bytes * number);
        }
        made
    };
    let before = |gib: u64| {
        let mut made = healthy().each_sample(|sample| sample.processes = None);
        made.before = made.gpu[..3].to_vec();
        for sample in &mut made.before {
            (sample.at, sample.memory_used_bytes) = (-1.0, Some(gib * GIB));
        }
        made
    };
    let slow = |times, every| with_slow_rank(healthy(), times, every);
    vec![
        (Kind::MemoryLeak, leaking(u64::MAX), leaking(60)),
        (Kind::HostMemoryLeak, host_growing(100 << 20), host_growing(1000)),
        (Kind::Fragmentation, fragmented(40), fragmented(25)),
        (Kind::OtherProcess, neighbour(healthy(), 30 * GIB), neighbour(healthy(), GIB / 2)),
        (Kind::OtherProcess, before(50), before(1)),
        (Kind::OtherProcess, before(50), with_unified_memory(before(50))),
        (Kind::SlowRank, slow(1.5, 3), slow(1.05, 3)),
        (Kind::SlowRank, slow(1.5, 3), slow(1.5, 1)),
        (Kind::SlowRank, slow(1.5, 3), with_jitter(healthy())),
    ]
}

/// Cases of the machine.
fn of_the_machine() -> Vec<Case> {
    let healthy = Made::healthy;
    let lowered = |by, clock| throttled(healthy(), by, clock);
    let limited = |milliwatts| {
        lowered(Throttle::PowerCap, 1300).each_sample(move |sample| sample.power_limit_mw = Some(milliwatts))
    };
    // The figures of a GeForce RTX 4090: an NVML clock limit of 3,105 MHz, and 10,501 MHz for the memory.
    let geforce = |clock, memory_clock| {
        let mut made = healthy().each_sample(move |sample| {
            (sample.sm_clock_mhz, sample.memory_clock_mhz) = (Some(clock), Some(memory_clock));
            // A GPU that is slow draws little, and is not full by its power.
            (sample.power_mw, sample.power_limit_mw, sample.sm_activity_percent) = (Some(90_000), Some(450_000), None);
        });
        let gpu = &mut made.start.gpus[0];
        (gpu.max_sm_clock_mhz, gpu.max_memory_clock_mhz) = (Some(3105), Some(10_501));
        gpu.default_power_limit_mw = Some(450_000);
        made
    };
    let by = |made: Made, reasons: &[Throttle]| {
        let reasons = reasons.to_vec();
        made.each_sample(move |sample| sample.throttle.clone_from(&reasons))
    };
    let set = |clock| by(geforce(clock, 10_501), &[Throttle::ClockSetting]);
    let idle_clocks = |busy| geforce(300, 405).each_sample(move |sample| sample.utilisation_percent = Some(busy));
    let drawing = |milliwatts| {
        let made = by(geforce(1200, 10_501), &[Throttle::PowerCap]);
        made.each_sample(move |sample| sample.power_mw = Some(milliwatts))
    };
    let at_limit = |milliwatts| {
        geforce(2500, 10_501).each_sample(move |sample| {
            (sample.power_mw, sample.power_limit_mw) = (Some(149_000), Some(milliwatts));
        })
    };
    let fast = |made: Made| made.each_sample(|sample| sample.sm_clock_mhz = Some(2900));
    let bursts = |mut made: Made| {
        made.gpu.iter_mut().step_by(8).for_each(|sample| sample.power_mw = Some(440_000));
        made
    };
    let linked = |lanes, busy| {
        healthy().each_sample(move |sample| {
            (sample.pcie_lanes, sample.utilisation_percent) = (Some(lanes), Some(busy));
        })
    };
    let unloaded =
        |made: Made| made.each_sample(|sample| (sample.utilisation_percent, sample.sm_activity_percent) = (None, None));
    let idle =
        |percent| healthy().each_sample(move |sample| sample.utilisation_percent = Some(percent)).without_steps();
    vec![
        (Kind::LowClocks, geforce(300, 10_501), geforce(2600, 10_501)),
        (Kind::LowClocks, set(1500), set(2520)),
        (Kind::LowClocks, idle_clocks(96.0), idle_clocks(10.0)),
        // Power and heat are other findings.
        (Kind::LowClocks, geforce(300, 10_501), by(geforce(300, 10_501), &[Throttle::PowerCap])),
        (Kind::LowClocks, geforce(300, 10_501), by(geforce(300, 10_501), &[Throttle::ThermalHardware])),
        // In performance state 2, CUDA programs have a lower memory clock: 4,513 of 5,005 MHz on a GTX 1080.
        (Kind::LowMemoryClock, geforce(2600, 405), geforce(2600, 9501)),
        (Kind::LowMemoryClock, geforce(2600, 5001), with_unified_memory(geforce(2600, 5001))),
        (Kind::PowerCap, drawing(90_000), drawing(440_000)),
        (Kind::PowerCap, at_limit(150_000), at_limit(450_000)),
        (Kind::PowerCap, at_limit(150_000), fast(at_limit(150_000))),
        // Work in bursts: at the limit now and then, and at less on average.
        (Kind::PowerCap, drawing(90_000), bursts(drawing(200_000))),
        (Kind::PowerCap, limited(350_000), limited(700_000)),
        (Kind::PowerCap, lowered(Throttle::PowerBrake, 600), lowered(Throttle::SyncBoost, 600)),
        (Kind::ThermalThrottle, lowered(Throttle::ThermalSoftware, 1200), lowered(Throttle::PowerCap, 1200)),
        (Kind::PcieReduced, linked(4, 96.0), linked(16, 96.0)),
        // An idle link slows down by itself.
        (Kind::PcieReduced, linked(4, 96.0), linked(4, 10.0)),
        (Kind::PcieReduced, linked(1, 96.0), with_unified_memory(linked(1, 96.0))),
        // A GPU that reports no load may be idle, unless the run trains.
        (Kind::PcieReduced, unloaded(linked(4, 96.0)), unloaded(linked(4, 96.0)).without_steps()),
        (Kind::GpuIdle, idle(30.0), idle(90.0)),
    ]
}

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    [of_the_host(), of_settings(), of_memory(), of_the_machine()].concat()
}
