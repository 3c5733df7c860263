//! Launchers around a program that trains in one process.

use std::env;
use std::process::Command;

use gpu_tuned::{Options, StartError};

/// Environment variable with the options of the program.
const OPTIONS: &str = "PROGRAM_OPTIONS";

/// Names and values of environment variables.
type Variables<'v> = &'v [(&'v str, &'v str)];

const RANK_OF_TORCHRUN: Variables =
    &[("RANK", "1"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")];

config! { Config, mlp(widths = [3, 2]), global_batch = 24, target = "generic" }

/// A program that prints the result of its start.
#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let cpu = Options::default().cpu();
    let options = match env::var(OPTIONS).as_deref() {
        Err(_) => cpu,
        Ok("independent") => cpu.independent(),
        #[cfg(feature = "distributed")]
        Ok("independent at last") => cpu.distributed().independent(),
        #[cfg(feature = "distributed")]
        Ok("if launched") => cpu.distributed_if_launched(),
        Ok(other) => panic!("{other}"),
    };
    own_process::give(options.start(Config::default()).map_or_else(|error| error.to_string(), |_| "trains".to_owned()));
}

/// Returns the result of a start with these variables.
fn started(variables: Variables) -> String {
    let mut command: Command = own_process::command(program);
    own_process::result(command.envs(variables.iter().copied()))
}

#[test]
fn copies_of_a_launch_are_refused() {
    let launches: [(Variables, usize, &str); 7] = [
        // Unknown launchers.
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "4")], 4, "PMI_SIZE"),
        (&[("PMIX_RANK", "2"), ("PMIX_NAMESPACE", "job")], 3, "PMIX_RANK"),
        (&[("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")], 2, "PMI_SIZE"),
        (RANK_OF_TORCHRUN, 2, "WORLD_SIZE"),
        // The address is missing, and the copies are there.
        (&[("RANK", "0"), ("WORLD_SIZE", "3")], 3, "WORLD_SIZE"),
        (&[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")], 2, "OMPI_COMM_WORLD_SIZE"),
        (&[("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "3"), ("SLURM_NTASKS", "4")], 4, "SLURM_NTASKS"),
    ];
    for (variables, world_size, variable) in launches {
        assert_eq!(started(variables), StartError::Copies { world_size, variable }.to_string());
    }
    let message = started(RANK_OF_TORCHRUN);
    let remedy = if cfg!(feature = "distributed") {
        "start the session with `Options::distributed` or `Options::distributed_if_launched`"
    } else {
        "enable feature `distributed` of gpu-tuned and start the session with `Options::distributed`"
    };
    let expected = format!(
        "a launcher started 2 processes (WORLD_SIZE), and each would train its own copy of the model: {remedy}, or for separate \
         runs call `Options::independent` or set GPU_TUNED_INDEPENDENT=1"
    );
    assert_eq!(message, expected);
}

#[test]
fn a_process_that_is_no_copy_trains() {
    let cases: [Variables; 6] = [
        &[],
        &[("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")],
        // A batch script, and an array of jobs.
        &[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0"), ("SLURM_ARRAY_TASK_ID", "3")],
        &[("SLURM_STEP_ID", "4294967291"), ("SLURM_NTASKS", "8"), ("SLURM_PROCID", "0")],
        &[("MASTER_ADDR", "node-a"), ("MASTER_PORT", "29500"), ("WORLD_SIZE", "4")],
        &[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("JOB_COMPLETION_INDEX", "3")],
    ];
    for variables in cases {
        assert_eq!(started(variables), "trains", "{variables:?}");
    }
}

#[test]
fn separate_runs_are_asked_for() {
    let with = |more: (&'static str, &'static str)| started(&[RANK_OF_TORCHRUN, &[more]].concat());
    assert_eq!(with((OPTIONS, "independent")), "trains");
    assert_eq!(with(("GPU_TUNED_INDEPENDENT", "1")), "trains");
    assert!(with(("GPU_TUNED_INDEPENDENT", "0")).starts_with("a launcher started 2 processes"));
    assert_eq!(with(("GPU_TUNED_INDEPENDENT", "yes")), "GPU_TUNED_INDEPENDENT is `yes`: expected 1 or 0");
}

#[cfg(feature = "distributed")]
#[test]
fn separate_runs_of_a_program_for_ranks_are_asked_for() {
    let with = |more: &[(&'static str, &'static str)]| started(&[RANK_OF_TORCHRUN, more].concat());
    assert_eq!(with(&[(OPTIONS, "independent at last")]), "trains");
    assert_eq!(with(&[(OPTIONS, "if launched"), ("GPU_TUNED_INDEPENDENT", "1")]), "trains");
}

/// Each would train a copy in the same folder.
#[cfg(feature = "distributed")]
#[test]
fn a_program_for_ranks_does_not_start_under_an_unknown_launcher() {
    let with = |more: &[(&'static str, &'static str)]| started(&[&[(OPTIONS, "if launched")], more].concat());
    assert!(
        with(&[("PMI_RANK", "0"), ("PMI_SIZE", "4")]).starts_with("an unknown launcher started at least 4 processes")
    );
    assert!(with(&[("JOB_COMPLETION_INDEX", "0")]).starts_with("WORLD_SIZE is not set, but JOB_COMPLETION_INDEX is"));
    assert_eq!(with(&[("PMI_RANK", "0"), ("PMI_SIZE", "4"), ("GPU_TUNED_INDEPENDENT", "1")]), "trains");
    assert_eq!(with(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), "trains");
}
