use proptest::prelude::*;

use super::*;

/// Looks up a variable in lists of `NAME=VALUE`; the last one counts.
fn lookup<'a>(variables: &'a [&str]) -> impl Fn(&str) -> Option<String> + use<'a> {
    let pairs = move || variables.iter().flat_map(|list| list.split(' ')).filter_map(|pair| pair.split_once('='));
    move |name| pairs().rfind(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

fn launch(variables: &[&str]) -> Result<Option<Launch>, LaunchError> {
    Launch::from_lookup(lookup(variables))
}

fn launched(variables: &[&str]) -> Launch {
    launch(variables).unwrap().unwrap()
}

const TORCHRUN: &str = "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node-a MASTER_PORT=29500";
const KUBEFLOW: &str = "RANK=1 WORLD_SIZE=3 MASTER_ADDR=job-master-0 MASTER_PORT=23456";
const SRUN: &str = "SLURM_STEP_ID=2 SLURM_JOB_ID=1000 SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_NNODES=2 \
                    SLURM_JOB_NODELIST=node[03-05,7],gpu1";
const MPIRUN: &str =
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2";
/// As MPICH 4.0 sets them.
const MPIEXEC: &str = "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2";
/// As HPE Cray's PALS sets them.
const PALS: &str = "PALS_RANKID=5 PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4 MASTER_ADDR=x1000c0s0b0n0";
/// A pod of an indexed job, with what its manifest adds.
const INDEXED: &str = "JOB_COMPLETION_INDEX=3 WORLD_SIZE=4 MASTER_ADDR=train-0.train";
/// The agent of torchrun occupies its port, and another one may have the next port.
const AGENT: &str = "TORCHELASTIC_USE_AGENT_STORE=True";

/// Returns the summary of a launch, or the text of its error.
fn summary(variables: &[&str]) -> String {
    match launch(variables) {
        Ok(None) => "none".to_owned(),
        Ok(Some(launch)) => {
            let Launch { rank, world_size, local_rank, local_world_size, address, port, launcher, .. } = launch;
            format!("{launcher} {rank}/{world_size} {local_rank}/{local_world_size:?} {address}:{port}")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn variables_of_each_launcher_are_read() {
    for (variables, more, expected) in [
        ("", "", "none"),
        (MPIEXEC, "", "mpiexec 1/2 1/Some(2) 127.0.0.1:29500"),
        (MPIEXEC, SRUN, "mpiexec 1/2 1/Some(2) 127.0.0.1:29500"),
        (MPIRUN, MPIEXEC, "mpirun 1/2 1/Some(2) 127.0.0.1:29500"),
        // srun with PMI: of Slurm, of Cray, and PMIx.
        (SRUN, "PMI_RANK=5 PMI_SIZE=8", "srun 5/8 1/None node03:28979"),
        (SRUN, PALS, "srun 5/8 1/None x1000c0s0b0n0:28979"),
        (SRUN, "PMIX_RANK=5", "srun 5/8 1/None node03:28979"),
        // A step with fewer tasks than its job, with `--preserve-env`.
        (SRUN, "SLURM_STEP_NUM_TASKS=6", "srun 5/6 1/None node03:28979"),
        (PALS, "", "mpiexec 5/8 1/Some(4) x1000c0s0b0n0:29500"),
        (INDEXED, "", "Kubernetes 3/4 0/None train-0.train:29500"),
        // torchrun in the pods of an indexed job.
        (INDEXED, TORCHRUN, "torchrun 3/4 1/Some(2) node-a:29500"),
        // One process of a launcher that is not known.
        ("PMI_RANK=0 PMI_SIZE=1", "", "none"),
        (TORCHRUN, "", "torchrun 3/4 1/Some(2) node-a:29500"),
        (TORCHRUN, AGENT, "torchrun 3/4 1/Some(2) node-a:27500"),
        // With `--standalone` that port is one of clients.
        (TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=True MASTER_PORT=43297", "torchrun 3/4 1/Some(2) node-a:24297"),
        (TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE=False", "torchrun 3/4 1/Some(2) node-a:29500"),
        (TORCHRUN, "GPU_TUNED_PORT=4000", "torchrun 3/4 1/Some(2) node-a:4000"),
        // IPv6, also as in URLs.
        (TORCHRUN, "MASTER_ADDR=fd77::1", "torchrun 3/4 1/Some(2) fd77::1:29500"),
        (TORCHRUN, "MASTER_ADDR=[fd77::1]", "torchrun 3/4 1/Some(2) fd77::1:29500"),
        (KUBEFLOW, "", "torchrun 1/3 0/None job-master-0:23456"),
        (SRUN, "", "srun 5/8 1/None node03:28979"),
        (SRUN, "SLURM_STEP_NODELIST=gpu1", "srun 5/8 1/None gpu1:28979"),
        (SRUN, "MASTER_ADDR=a MASTER_PORT=1234", "srun 5/8 1/None a:1234"),
        (SRUN, "SLURM_STEP_NUM_NODES=1", "srun 5/8 1/Some(8) 127.0.0.1:28979"),
        // A batch script, and an interactive shell.
        (SRUN, "SLURM_STEP_ID=", "none"),
        (SRUN, "SLURM_STEP_ID=4294967290", "none"),
        (MPIRUN, "", "mpirun 1/2 1/Some(2) 127.0.0.1:29500"),
        (MPIRUN, "PMIX_NAMESPACE=prterun-host-1@1", "mpirun 1/2 1/Some(2) 127.0.0.1:17282"),
        // Launchers that start others leave their own variables.
        (TORCHRUN, &[SRUN, MPIRUN].join(" "), "torchrun 3/4 1/Some(2) node-a:29500"),
        (MPIRUN, SRUN, "mpirun 1/2 1/Some(2) 127.0.0.1:29500"),
    ] {
        assert_eq!(summary(&[variables, more]), expected, "{variables} {more}");
    }
}

#[test]
fn errors_name_the_variable_its_value_and_a_remedy() {
    const NO_ADDRESS: &str = "MASTER_ADDR is not set, but mpiexec started ranks on several hosts; set it to the host of rank 0, \
                              for example with `mpiexec";
    for (variables, more, expected) in [
        (MPIEXEC, "MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0", &*format!("{NO_ADDRESS} -genv MASTER_ADDR HOST`")),
        (PALS, "MASTER_ADDR=", &format!("{NO_ADDRESS} --env MASTER_ADDR=HOST`")),
        (
            TORCHRUN,
            "RANK=",
            "RANK is not set, but WORLD_SIZE is; start the program through a launcher that sets both, such as \
             `cargo gpu-tuned launch`, or unset WORLD_SIZE",
        ),
        (TORCHRUN, "MASTER_PORT=", "MASTER_PORT is not set, but RANK is; start"),
        (TORCHRUN, "RANK=three", "RANK is `three`; set it to a whole number that is not negative and in range"),
        (TORCHRUN, "RANK=4", "RANK is 4, but WORLD_SIZE allows only numbers below 4; correct one of them"),
        (TORCHRUN, "LOCAL_RANK=2", "LOCAL_RANK is 2, but LOCAL_WORLD_SIZE allows only numbers below 2; correct"),
        (TORCHRUN, "LOCAL_RANK=", "LOCAL_RANK is not set, but RANK is; start"),
        (KUBEFLOW, "LOCAL_RANK=3", "LOCAL_RANK is 3, but WORLD_SIZE allows only numbers below 3; correct"),
        (
            TORCHRUN,
            "LOCAL_WORLD_SIZE=5",
            "LOCAL_WORLD_SIZE is 5, but has to be at least 1 and at most WORLD_SIZE, 4; correct",
        ),
        (
            TORCHRUN,
            "MASTER_PORT=65536",
            "MASTER_PORT is 65536, which is no port in 1 to 65535; set GPU_TUNED_PORT to a free port",
        ),
        (TORCHRUN, "MASTER_PORT=0", "MASTER_PORT is 0, which is no port"),
        (SRUN, "SLURM_LOCALID=", "SLURM_LOCALID is not set, but SLURM_PROCID is; start"),
        (
            SRUN,
            "SLURM_JOB_NODELIST=node[",
            "SLURM_JOB_NODELIST is `node[`, which is no list of hosts; set MASTER_ADDR to the host of rank 0",
        ),
        (
            MPIRUN,
            "OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0",
            "MASTER_ADDR is not set, but mpirun started ranks on several hosts; set it to the host of rank 0, for example with",
        ),
        (
            INDEXED,
            "WORLD_SIZE=",
            "WORLD_SIZE is not set, but JOB_COMPLETION_INDEX is; set WORLD_SIZE to the job's `completions`",
        ),
        (INDEXED, "MASTER_ADDR=", "MASTER_ADDR is not set, but Kubernetes started ranks"),
        (
            "PMI_RANK=0 PMI_SIZE=4",
            "",
            "an unknown launcher started at least 4 processes (PMI_SIZE is set), and each would train its own copy of the model; use",
        ),
        ("PMIX_RANK=0 PMIX_NAMESPACE=a", "", "an unknown launcher started at least 2 processes (PMIX_RANK"),
        ("MASTER_ADDR=node-a", "", "RANK is not set, but MASTER_ADDR is; start"),
        ("WORLD_SIZE=4", "", "RANK is not set, but WORLD_SIZE is; start"),
    ] {
        let found = summary(&[variables, more]);
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn processes_of_a_launch_are_counted_without_an_address() {
    for (variables, more, expected) in [
        (MPIEXEC, "", "2 by PMI_SIZE"),
        (SRUN, "PMI_RANK=5 PMI_SIZE=7", "8 by SLURM_NTASKS"),
        // Unknown launchers.
        ("PMI_RANK=5 PMI_SIZE=7", "", "7 by PMI_SIZE"),
        ("PMI_RANK=0 PMI_SIZE=1", "", "none"),
        ("PMIX_RANK=5", "", "6 by PMIX_RANK"),
        ("FLUX_JOB_SIZE=2 FLUX_TASK_RANK=0", "", "2 by FLUX_JOB_SIZE"),
        (PALS, "", "8 by PMI_SIZE"),
        (INDEXED, "", "4 by WORLD_SIZE"),
        ("RANK=0 WORLD_SIZE=2", "", "2 by WORLD_SIZE"),
        (TORCHRUN, "RANK=0 WORLD_SIZE=1", "1 by WORLD_SIZE"),
        // On several hosts without `MASTER_ADDR`.
        (MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE=1", "2 by OMPI_COMM_WORLD_SIZE"),
        (SRUN, "SLURM_STEP_NUM_TASKS=6", "6 by SLURM_STEP_NUM_TASKS"),
        // The innermost launcher counts.
        (TORCHRUN, SRUN, "4 by WORLD_SIZE"),
        (MPIRUN, SRUN, "2 by OMPI_COMM_WORLD_SIZE"),
        (MPIRUN, "WORLD_SIZE=9", "2 by OMPI_COMM_WORLD_SIZE"),
        // No launch of this process.
        ("", "", "none"),
        (SRUN, "SLURM_STEP_ID=", "none"),
        (SRUN, "SLURM_STEP_ID=4294967291 PMI_SIZE=8 PMIX_RANK=0", "none"),
        ("SLURM_JOB_ID=1 SLURM_NTASKS=8 SLURM_ARRAY_TASK_ID=3", "", "none"),
        ("MASTER_ADDR=node-a MASTER_PORT=29500", "", "none"),
        ("WORLD_SIZE=4", "", "none"),
        ("RANK=4 WORLD_SIZE=four", "", "none"),
        ("KUBERNETES_SERVICE_HOST=10.0.0.1 JOB_COMPLETION_INDEX=3 RANK=3", "", "none"),
    ] {
        let found = Launched::from_lookup(lookup(&[variables, more]));
        let found = found.map(|Launched { world_size, variable }| format!("{world_size} by {variable}"));
        assert_eq!(found.as_deref().unwrap_or("none"), expected, "{variables} {more}");
    }
}

/// Runs of each launcher, and what they have instead of an identifier.
#[test]
fn a_run_is_identified_by_its_launcher_or_by_name() {
    for (variables, more, expected) in [
        (SRUN, "", Some("1000.2")),
        (SRUN, "SLURM_STEP_ID=3", Some("1000.3")),
        (MPIRUN, "PMIX_NAMESPACE=prterun-host-1@1", Some("prterun-host-1@1")),
        (MPIRUN, "OMPI_MCA_ess_base_jobid=1641742337", Some("1641742337")),
        (TORCHRUN, "TORCHELASTIC_RUN_ID=run1", Some("run1")),
        // torchrun without `--rdzv-id`.
        (TORCHRUN, "TORCHELASTIC_RUN_ID=none", None),
        (PALS, "PALS_APID=f8d2", Some("f8d2")),
        (KUBEFLOW, "", None),
        (INDEXED, "", None),
        (MPIEXEC, "hydra_pmi_proxy=4711-12", Some("4711-12")),
        // Each host has a proxy of its own.
        (MPIEXEC, "hydra_pmi_proxy=4711-12 PMI_SIZE=4 MASTER_ADDR=a", None),
        (SRUN, "GPU_TUNED_RUN_ID=mine", Some("mine")),
    ] {
        assert_eq!(launched(&[variables, more]).run.as_deref(), expected, "{variables} {more}");
    }
}

/// Runs beside each other on one host.
#[test]
fn steps_and_runs_beside_each_other_have_ports_of_their_own() {
    let steps = ["0", "1", "2", "10"].map(|step| launched(&[SRUN, &format!("SLURM_STEP_ID={step}")]).port);
    let agents =
        ["29500", "29501", "29502"].map(|port| launched(&[TORCHRUN, AGENT, &format!("MASTER_PORT={port}")]).port);
    let proxies = ["4711-12", "4712-12"].map(|proxy| launched(&[MPIEXEC, &format!("hydra_pmi_proxy={proxy}")]).port);
    let all: Vec<_> = [&steps[..], &agents, &[29_500, 29_501, 29_502], &proxies].concat();
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len(), "{all:?}");
}

#[test]
fn a_secret_is_read_and_hidden() {
    let launch = launched(&[TORCHRUN, "GPU_TUNED_SECRET=word"]);
    assert_eq!(launch.secret, Some(Secret::new("word")));
    assert!(!format!("{launch:?}").contains("word"));
}

#[cfg(unix)]
#[test]
fn a_secret_is_read_from_a_file_that_is_closed_to_others() {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};

    let folder = env::temp_dir().join(format!("gpu-tuned-secret-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder).unwrap();
    let file = folder.join("secret");
    let path = file.display().to_string();
    let named = format!("GPU_TUNED_SECRET_FILE={path}");
    let error = |found: &str| {
        let error = launch(&[TORCHRUN, &named]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("GPU_TUNED_SECRET_FILE names {path}, which {found}")), "{error}");
    };
    error("cannot be read: ");
    let mut new = fs::OpenOptions::new();
    let new = new.write(true).create_new(true).mode(0o600).open(&file).unwrap();
    error("is empty");
    std::io::Write::write_all(&mut &new, b" word\n").unwrap();
    assert_eq!(launched(&[TORCHRUN, &named]).secret, Some(Secret::new("word")));
    assert_eq!(launched(&[TORCHRUN, &named, "GPU_TUNED_SECRET=other"]).secret, Some(Secret::new("other")));
    for mode in [0o604, 0o640, 0o622] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        error(&format!("others may use (mode {mode:04o}): set it to 0600"));
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn one_host_is_recognised() {
    for (variables, more, expected) in [
        (TORCHRUN, "", false),
        (TORCHRUN, "LOCAL_WORLD_SIZE=4", true),
        (KUBEFLOW, "MASTER_ADDR=localhost", true),
        (KUBEFLOW, "MASTER_ADDR=::1", true),
        (MPIRUN, "", true),
    ] {
        assert_eq!(launched(&[variables, more]).is_one_host(), expected, "{variables} {more}");
    }
}

#[test]
fn the_first_host_of_a_list_is_found() {
    let lists = [
        ("node[03-05,7],gpu1", Some("node03")),
        ("gpu1,node[1-2]", Some("gpu1")),
        ("a-1.b_c", Some("a-1.b_c")),
        ("rack[1-2]n[007,9]x", Some("rack1n007x")),
        ("node[", None),
        ("node[]", None),
        ("node[a-b]", None),
        ("node]", None),
        ("a b", None),
        (",a", None),
        ("", None),
    ];
    for (list, first) in lists {
        assert_eq!(first_host(list).as_deref(), first, "{list}");
    }
}

/// Variables that are read.
const NAMES: &str = "PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR \
    MASTER_PORT TORCHELASTIC_USE_AGENT_STORE GPU_TUNED_PORT GPU_TUNED_SECRET SLURM_STEP_ID SLURM_JOB_ID \
    SLURM_JOBID SLURM_PROCID SLURM_NTASKS SLURM_LOCALID SLURM_NNODES SLURM_STEP_NUM_NODES SLURM_STEP_NODELIST \
    SLURM_JOB_NODELIST SLURM_NODELIST OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK \
    OMPI_COMM_WORLD_LOCAL_SIZE PMIX_NAMESPACE GPU_TUNED_RUN_ID TORCHELASTIC_RUN_ID PMIX_RANK PMI_LOCAL_RANK PMI_LOCAL_SIZE SLURM_STEP_NUM_TASKS \
    JOB_COMPLETION_INDEX";

proptest! {
    #[test]
    fn any_variables_give_a_launch_none_or_an_error_that_names_one(
        values in prop::collection::hash_map(
            prop::sample::select(NAMES.split(' ').collect::<Vec<_>>()),
            prop_oneof![
                4 => (0_u32..9).prop_map(|number| number.to_string()),
                1 => any::<u64>().prop_map(|number| number.to_string()),
                1 => any::<String>(),
                1 => Just("node[03-05],gpu1".to_owned()),
                1 => Just("True".to_owned()),
            ],
            0..36_usize,
        ),
    ) {
        match Launch::from_lookup(|name| values.get(name).cloned()) {
            Ok(None) => {}
            Ok(Some(launch)) => {
                prop_assert!(launch.rank < launch.world_size && launch.local_rank < launch.world_size);
                prop_assert!(launch.local_world_size.is_none_or(|size| (launch.local_rank + 1..=launch.world_size).contains(&size)));
                prop_assert!(launch.port > 0 && !launch.address.is_empty());
            }
            Err(error) => {
                let text = error.to_string();
                prop_assert!(NAMES.split(' ').any(|name| text.contains(name)), "{}", text);
            }
        }
    }

    /// Each rank of a launcher gets its own number, and all get the same address and port.
    #[test]
    fn ranks_of_a_job_agree(launcher in 0..5_usize, hosts in 1..4_usize, per_host in 1..4_usize, job in any::<u32>()) {
        let world_size = hosts * per_host;
        let launches: Vec<_> = (0..world_size).map(|rank| {
            let Names { launcher, rank: name, world_size: sizes, local_rank, local_world_size, .. } = &LAUNCHERS[launcher];
            let own = format!(
                "{name}={rank} {}={world_size} {local_rank}={} {local_world_size}={per_host}",
                sizes[0],
                rank % per_host
            );
            let more = match launcher {
                Launcher::Slurm => {
                    format!("SLURM_STEP_ID=0 SLURM_JOB_ID={job} SLURM_NODELIST=n[1-9] SLURM_NNODES={hosts}")
                }
                Launcher::OpenMpi | Launcher::Mpich | Launcher::Cray => format!("PMIX_NAMESPACE={job} MASTER_ADDR=n1"),
                _ => "MASTER_ADDR=n1 MASTER_PORT=29500".to_owned(),
            };
            launched(&[&own, &more])
        }).collect();
        for (rank, launch) in launches.iter().enumerate() {
            let expected = Launch { rank, local_rank: rank % per_host, ..launches[0].clone() };
            prop_assert_eq!(launch, &expected);
            prop_assert_eq!(launch.is_one_host(), hosts == 1);
        }
    }

    #[test]
    fn lists_of_hosts_give_their_first(
        prefix in "[a-z][a-z0-9.-]{0,8}",
        first in 0..1000_u32,
        more in 0..1000_u32,
        width in 1..5_usize,
        rest in "(,[a-z]{1,5}){0,3}",
    ) {
        let list = format!("{prefix}[{first:0width$}-{:0width$},{more}]{rest}", first + more);
        prop_assert_eq!(first_host(&list), Some(format!("{prefix}{first:0width$}")));
        prop_assert_eq!(first_host(&format!("{prefix}{rest}")), Some(prefix));
    }

    #[test]
    fn any_text_gives_a_host_name_or_nothing(list in "[a-z0-9,\\[\\]-]{0,20}|.*") {
        if let Some(host) = first_host(&list) {
            prop_assert!(host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)));
        }
    }
}
