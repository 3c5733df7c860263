//! Time of one plan.

use std::cell::RefCell;
use std::time::Instant;

use gpu_tuned_core::plan;
use gpu_tuned_core::plan::PlanError;

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
