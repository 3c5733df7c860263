//! Time of one plan.

use std::cell::RefCell;
use std::time::Instant;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan;
use gpu_tuned_core::plan::{PlanError, plan_ranks};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal};

use super::workloads::{goals_of, workloads};
use super::{free_memory, profiles, runner};

/// Plans of each pair. The fastest counts, because other processes disturb it least.
const REPEATS: usize = 7;

fn print(what: &str, mut times_us: Vec<f64>) {
    times_us.sort_by(f64::total_cmp);
    let Some(last) = times_us.len().checked_sub(1) else { return };
    let [median, p99, most] = [last / 2, last * 99 / 100, last].map(|index| times_us[index]);
    println!("{what}: {} pairs, median {median:.1} us, p99 {p99:.1} us, most {most:.1} us", times_us.len());
}

/// `cargo test --release -p gpu-tuned-core --lib time_of -- --ignored --nocapture`
#[test]
#[ignore = "prints times, which say nothing on a busy machine"]
fn time_of_one_plan() {
    for (steps, largest_share) in [("steps of up to 2000 samples", 2_000), ("steps of up to 2^27 samples", 1 << 27)] {
        for has_global_batch in [true, false] {
            let (planned, refused) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
            let cases = (workloads(), goals_of(largest_share), free_memory());
            let outcome = runner(200).run(&cases, |(workload, mut goal, free)| {
                goal.global_batch = goal.global_batch.filter(|_| has_global_batch);
                for device in profiles(free) {
                    let repeats = (0..REPEATS).map(|_| {
                        let start = Instant::now();
                        let planned = plan(&device, &workload, &goal);
                        (start.elapsed().as_secs_f64() * 1e6, planned)
                    });
                    let (time_us, outcome) = repeats.min_by(|a, b| a.0.total_cmp(&b.0)).expect("there are repeats");
                    match outcome {
                        Ok(_) => planned.borrow_mut().push(time_us),
                        Err(PlanError::DoesNotFit(_)) => refused.borrow_mut().push(time_us),
                        Err(_) => {}
                    }
                }
                Ok(())
            });
            outcome.expect("nothing is asserted");
            println!("{}", if has_global_batch { steps } else { "no global batch" });
            print("  planned", planned.take());
            print("  does not fit", refused.take());
        }
    }
}

#[test]
#[ignore = "prints times, which say nothing on a busy machine"]
fn time_of_plans_for_many_ranks() {
    let workload = Transformer::new(12, 768, 50_257, 1024).workload();
    let device = DeviceFacts::nominal(ProfileTable::builtin().get("h100-sxm5-80gb").expect("shipped"));
    for ranks in [1, 8, 1024, 10_240] {
        let goal = Goal { world_size: ranks, global_batch: Some(64 * ranks), shard_optimizer: true, ..Goal::default() };
        let unlike = |rank: u64| DeviceFacts { memory_available: Bytes((70 << 30) + (rank << 18)), ..device.clone() };
        let devices: Vec<_> = (0..ranks).map(unlike).collect();
        let ms = |planned: &dyn Fn()| {
            let start = Instant::now();
            planned();
            start.elapsed().as_secs_f64() * 1e3
        };
        let one = ms(&|| drop(plan(&device, &workload, &goal).expect("it fits")));
        let of = |unequal| Goal { unequal, ..goal.clone() };
        let [equal, unequal] =
            [false, true].map(|unequal| ms(&|| drop(plan_ranks(&devices, &workload, &of(unequal)).expect("it fits"))));
        println!("{ranks} ranks: one plan {one:.2} ms, all ranks {equal:.1} ms, unequal shares {unequal:.1} ms");
    }
}
