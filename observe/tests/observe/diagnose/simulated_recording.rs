//! The recording of a simulated run.

use gpu_tuned_core::Settings;
use gpu_tuned_observe::recording::{GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, Throttle};

use super::recorded::{GIB, Made};
use super::simulation::{CORES, Loop};

/// Samples of the GPU and the host in the time of a run.
const SAMPLES: u64 = 40;

impl Loop {
    /// Returns the records of the program and of a monitor.
    pub(super) fn recording(&self) -> Vec<Record> {
        let (steps, (worked, preparing)) = self.run();
        let mut records = vec![Record::Run(Box::new(self.start()))];
        if self.is_monitored {
            records.insert(0, Record::Start(self.machine()));
            let seconds = steps.last().map_or(0.0, |step| step.at);
            let launching: f64 = steps.iter().map(launching).sum();
            let cores = (preparing * self.computing + launching) / seconds;
            let every = seconds / SAMPLES as f64;
            let taken = |at: f64| steps.partition_point(|step| step.at <= at) as u64;
            let sample = |at: f64| self.sample((at - every, at), &worked, cores, taken(at));
            records.extend((1..=SAMPLES).flat_map(|number| sample(number as f64 * every)));
        }
        records.extend(steps.into_iter().map(|step| Record::Step(Box::new(step))));
        records
    }

    fn start(&self) -> Run {
        let mut run = Made::healthy().run;
        run.workload = "simulated".to_owned();
        (run.device.has_bf16, run.device.has_tf32) = (false, false);
        run.global_batch = Some(self.global_batch);
        run.settings = Some(Settings {
            batch_size: self.micro_batch,
            gradient_accumulation: self.global_batch.div_ceil(self.micro_batch),
            allow_tf32: true,
            gradient_checkpointing: self.checkpointing,
            prefetch_depth: self.depth,
            num_workers: self.workers,
            eval_batch_size: self.micro_batch,
            ..Settings::DEFAULT
        });
        run.memory_budget_bytes = Some(self.budget());
        run.memory_planned_bytes = Some(Self::reserved(self.micro_batch));
        run.expected = self.curve();
        run
    }

    fn machine(&self) -> Start {
        let mut start = Made::healthy().start;
        start.cores = CORES;
        (start.gpus[0].memory_total_bytes, start.gpus[0].max_sm_clock_mhz) = (Some(self.memory), Some(2200));
        start
    }

    fn sample(&self, (from, at): (f64, f64), worked: &[(f64, f64)], cores: f64, taken: u64) -> [Record; 2] {
        let within = |(begins, ends): &(f64, f64)| (ends.min(at) - begins.max(from)).max(0.0);
        let first = worked.partition_point(|(_, ends)| *ends < from);
        let busy: f64 = worked[first..].iter().take_while(|(begins, _)| *begins < at).map(within).sum();
        let mut gpu = GpuSample::new(at, 0);
        gpu.utilisation_percent = Some(100.0 * busy / (at - from));
        gpu.sm_clock_mhz = Some((1980.0 * self.clock) as u32);
        if self.clock < 1.0 {
            gpu.throttle = vec![Throttle::ThermalHardware];
        }
        let own = Self::reserved(self.micro_batch) + self.leak * taken + GIB / 2;
        gpu.memory_used_bytes = Some(own + self.ballast);
        let mut host = HostSample::new(at);
        let mut process = ProcessSample::new(7);
        process.cpu_percent = Some(100.0 * cores.min(CORES as f64));
        host.process = Some(process);
        [Record::Gpu(gpu), Record::Host(host)]
    }
}

fn launching(step: &StepRecord) -> f64 {
    let parts = [step.loss_cpu_s, step.backward_s, step.update_s];
    parts.into_iter().flatten().sum()
}
