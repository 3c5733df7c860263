//! Ranks that `launch` starts: variables, output, and exit codes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::project::{Project, Ran};

/// The command with so many ranks of a shell program.
pub(crate) fn launch(project: &Project, ranks: u32, options: &[&str], program: &str) -> Command {
    let ranks = ranks.to_string();
    project.command(&[&["launch", "--ranks", &ranks], options, &["--", "sh", "-c", program]].concat())
}

fn ran(ranks: u32, program: &str) -> Ran {
    Ran::of(&mut launch(&Project::new("bare"), ranks, &[], program))
}

/// Lines by rank, without the rank.
fn by_rank(text: &str) -> BTreeMap<u32, Vec<&str>> {
    let mut ranks = BTreeMap::<_, Vec<_>>::new();
    for line in text.lines() {
        let (rank, line) = line.strip_prefix('[').and_then(|line| line.split_once("] ")).expect(line);
        ranks.entry(rank.parse().expect(line)).or_default().push(line);
    }
    ranks
}

#[test]
fn ranks_get_the_variables_of_torchrun_and_a_secret_of_this_start() {
    let program = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR; echo $MASTER_PORT; \
                   echo $(stat -c %a $GPU_TUNED_SECRET_FILE) $(cat $GPU_TUNED_SECRET_FILE) $GPU_TUNED_SECRET_FILE; \
                   echo ${GPU_TUNED_PORT-unset} ${GPU_TUNED_SECRET-unset} ${GPU_TUNED_RUN_ID-unset}";
    let project = Project::new("bare");
    let start = |options: &[&str]| {
        let mut command = launch(&project, 3, options, program);
        Ran::of(command.env("GPU_TUNED_PORT", "29500").env("GPU_TUNED_SECRET", "outer")).ended(0)
    };
    let (first, second) = (start(&[]), start(&["--run-id", "mine"]));
    let (first, second) = (by_rank(&first), by_rank(&second));
    for rank in 0..3 {
        let [variables, port, secret, outer] = first[&rank][..] else { panic!("four lines: {first:?}") };
        assert_eq!(variables, format!("{rank} 3 {rank} 3 127.0.0.1"));
        assert!(port.parse::<u16>().expect("a port") > 0);
        assert_eq!([port, secret, outer], [first[&0][1], first[&0][2], "unset unset unset"]);
        let [mode, text, file] = secret.split(' ').collect::<Vec<_>>()[..] else { panic!("a file: {secret}") };
        assert!(mode == "600" && text.len() == 64 && !second[&rank][2].contains(text), "{secret}");
        assert!(!Path::new(file).exists(), "{file} is left");
        assert_eq!(second[&rank][3], "unset unset mine");
    }
}

/// As `srun cargo gpu-tuned launch` with several tasks would.
#[test]
fn one_of_several_processes_of_a_launcher_starts_no_ranks() {
    let project = Project::new("bare");
    let tasks = |independent: Option<&str>| {
        let mut command = launch(&project, 1, &[], "echo trains");
        command.envs([("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_PROCID", "1")]);
        Ran::of(command.envs(independent.map(|value| ("GPU_TUNED_INDEPENDENT", value))))
    };
    let refused = tasks(None).refused(2);
    assert!(refused.contains("a launcher started 2 processes of this command (SLURM_STEP_NUM_TASKS)"), "{refused}");
    assert_eq!(tasks(Some("1")).ended(0), "[0] trains\n");
}

#[test]
fn without_a_number_there_is_a_rank_for_each_gpu() {
    let project = Project::new("bare");
    let args = ["launch", "--", "sh", "-c", "echo $WORLD_SIZE"];
    assert_eq!(project.run(&args).ended(0), "[0] 1\n");
    let text = project.on("watch/eight-h200", &args).ended(0);
    assert_eq!(by_rank(&text), (0..8).map(|rank| (rank, vec!["8"])).collect());
}

#[test]
fn much_output_at_once_stays_in_whole_lines_and_in_order() {
    let count = 20_000;
    let long = "x".repeat(100);
    let program = format!("i=0; while [ $i -lt {count} ]; do echo $i {long}; i=$((i + 1)); done");
    let text = ran(3, &program).ended(0);
    let expected: Vec<_> = (0..count).map(|number| format!("{number} {long}")).collect();
    let ranks = by_rank(&text);
    assert_eq!(ranks.len(), 3);
    assert!(ranks.values().all(|lines| *lines == expected));
}

#[test]
fn the_last_line_needs_no_end_and_bytes_are_passed_on() {
    let project = Project::new("bare");
    let Output { stdout, stderr, .. } =
        launch(&project, 1, &[], r"printf 'a\377\n\nb'; printf 'c\376' >&2").output().expect("it runs");
    assert_eq!(stdout, b"[0] a\xff\n[0] \n[0] b\n");
    assert_eq!(stderr, b"[0] c\xfe\n");
}

#[test]
fn ranks_end_with_the_reader_of_their_output() {
    let project = Project::new("bare");
    let mut command = launch(&project, 2, &[], "exec yes");
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let mut first = [0; 6];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("a line");
    assert_eq!(&first[3..], b" y\n");
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 13));
}

#[test]
fn with_json_standard_output_is_the_document_only() {
    let ran = Ran::of(&mut launch(&Project::new("bare"), 2, &["--json"], "echo out"));
    assert_eq!(by_rank(&ran.stderr), [(0, vec!["out"]), (1, vec!["out"])].into());
    let document = ran.json(0);
    assert_eq!((&document["ranks"], &document["restarts"]), (&2.into(), &0.into()));
}

#[test]
fn the_first_failure_ends_all_with_its_code() {
    let ran = ran(3, "if [ $RANK = 1 ]; then echo mistake >&2; exit 7; fi; exec sleep 1000");
    let mut errors: Vec<_> = ran.stderr.lines().collect();
    // The end of a rank may be noticed before its last line.
    errors[..2].sort_unstable();
    assert_eq!(
        errors,
        [
            "[1] mistake",
            "note: rank 1 failed; ending the others",
            "error: rank 1 failed: exit status 7",
            "  help: its messages begin with `[1]`; --restarts NUMBER starts all ranks again",
        ]
    );
    ran.ended(7);
}

#[test]
fn a_rank_that_a_signal_ends_has_the_code_of_shells() {
    let killed = ran(2, "if [ $RANK = 0 ]; then kill -KILL $$; fi; exec sleep 1000");
    assert!(killed.stderr.contains("error: rank 0 failed: signal: 9 (SIGKILL), the usual end"), "{}", killed.stderr);
    killed.ended(137);
}

/// Code 75 is of a rank that ends because of another.
#[test]
fn the_rank_that_failed_by_itself_is_named_though_it_ends_later() {
    let ran = ran(3, "case $RANK in 0) exit 75;; 1) sleep 0.5; exit 9;; esac; exec sleep 1000");
    assert!(ran.stderr.contains("error: rank 1 failed: exit status 9\n"), "{}", ran.stderr);
    ran.ended(9);
}

#[test]
fn after_a_failure_all_start_again_and_no_more_often_than_asked_for() {
    let project = Project::new("bare");
    let file = project.path("starts").display().to_string();
    let program = format!("if [ $RANK = 0 ]; then exec sleep 1000; fi; echo start >> {file}; exit 75");
    let ran = Ran::of(&mut launch(&project, 2, &["--restarts", "2"], &program));
    assert_eq!(project.read("starts"), "start\n".repeat(3));
    assert!(ran.stderr.contains("note: rank 1 failed: exit status 75; restart 2 of 2\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: rank 1 failed: exit status 75, after 2 restarts\n"), "{}", ran.stderr);
    ran.ended(75);
    let program = format!("echo start >> {file}; [ $(wc -l < {file}) -ge 5 ]");
    let document = Ran::of(&mut launch(&project, 1, &["--restarts", "9", "--json"], &program)).json(0);
    assert_eq!(document["restarts"], 1);
}

#[test]
fn the_first_rank_has_the_standard_input() {
    let project = Project::new("bare");
    project.write("input", "a line\n");
    let mut command = launch(&project, 2, &[], "cat");
    command.stdin(fs::File::open(project.path("input")).expect("the file"));
    assert_eq!(Ran::of(&mut command).ended(0), "[0] a line\n");
}

#[cfg(target_os = "linux")]
#[test]
fn programs_keep_their_colors_on_a_terminal_only() {
    let project = Project::new("bare");
    let program = "echo ${CLICOLOR_FORCE-unset} ${NO_COLOR-unset}";
    let on_terminal = |color: &[&str]| {
        let mut terminal = crate::started::on_terminal(&launch(&project, 1, color, &format!("'{program}'")));
        for name in ["NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR", "CI"] {
            terminal.env_remove(name);
        }
        Ran::of(terminal.env("TERM", "xterm")).ended(0)
    };
    assert_eq!(on_terminal(&[]), "\u{1b}[2m[0]\u{1b}[0m 1 unset\r\n");
    assert_eq!(on_terminal(&["--color", "never"]), "[0] unset 1\r\n");
    assert_eq!(Ran::of(&mut launch(&project, 1, &[], program)).ended(0), "[0] unset unset\n");
}

#[cfg(unix)]
#[test]
fn a_limit_of_open_files_is_raised_or_named() {
    let project = Project::new("bare");
    let limited = |limit: &str| {
        let command = launch(&project, 100, &[], "ulimit -Sn");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
        shell.arg(command.get_program()).args(command.get_args());
        shell.current_dir(command.get_current_dir().expect("the folder of the project"));
        shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Ran::of(&mut shell)
    };
    let raised = limited("-Sn 100").ended(0);
    assert_eq!(by_rank(&raised).into_values().collect::<Vec<_>>(), vec![vec!["264"]; 100]);
    let refused = limited("-n 200");
    assert!(
        refused.stderr.starts_with("error: 100 ranks need 264 open files, but the hard limit is 200\n"),
        "{}",
        refused.stderr
    );
}
