//! Ranks in processes of their own, which are killed and stopped.

use std::env;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_ranks::{EXIT_CODE, Group, Launch, Limits, Terms};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::free_port;

/// Activity of the ranks after they have joined.
const TASK: &str = "RANKS_TEST_TASK";
const JOINED: &str = "joined a group";
/// Longest time until all other ranks have ended.
const BOUND: Duration = Duration::from_secs(30);
/// Time after which a rank gives up its test, whose process may have been killed.
const ABANDONED: Duration = Duration::from_mins(2);

#[test]
#[ignore = "started by other tests"]
fn rank() {
    let launch = Launch::from_env().unwrap().unwrap();
    let mut limits = Limits::default();
    if let Some(seconds) = env::var_os("RANKS_TEST_JOIN") {
        limits.join = Duration::from_secs(seconds.to_str().unwrap().parse().unwrap());
    }
    let group = Group::join(&launch, Terms::default(), limits).unwrap_or_else(|error| panic!("{error}"));
    group.barrier().unwrap();
    println!("\n{JOINED}");
    match env::var(TASK).unwrap().as_str() {
        "finish" => group.finish().unwrap(),
        // Like a thread in NCCL, which asks no group.
        "hang" => {
            thread::sleep(ABANDONED);
            panic!("the group has not ended");
        }
        "exchange" => {
            let begin = Instant::now();
            while begin.elapsed() < ABANDONED {
                group.sum(vec![1.0; 1000]).unwrap_or_else(|ended| panic!("{ended}"));
            }
        }
        task => panic!("unknown task {task}"),
    }
}

/// User that has no files.
#[cfg(target_os = "linux")]
const NOBODY: u32 = 65_534;

/// Without a secret, another user of the host cannot become a rank, and rank 0 of another user gets none.
#[cfg(target_os = "linux")]
#[test]
fn another_user_cannot_join_without_a_secret() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can start a process as another user");
        return;
    }
    for stranger in 0..2 {
        let port = free_port();
        let start = |number: usize| {
            let mut command = rank_command(number, 2, port, "finish");
            // The member gives up while rank 0 is there.
            command.env("RANKS_TEST_JOIN", ["5", "1"][number]);
            if number == stranger {
                command.uid(NOBODY).gid(NOBODY);
            }
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut ranks = Ranks((0..2).map(start).collect());
        let deadline = Instant::now() + BOUND;
        let [root, member] = [0, 1].map(|rank| ranks.end(rank, deadline));
        assert!(root.0 != Some(0) && member.0 != Some(0), "{root:?} {member:?}");
        let other =
            |user, own| format!("the other side is a process of user {user}, not {own}, and there is no secret");
        let (at_root, at_member) = if stranger == 1 { (NOBODY, 0) } else { (0, NOBODY) };
        assert!(root.1.contains(&other(at_root, at_member)), "{root:?} {member:?}");
        assert!(member.1.contains(&other(at_member, at_root)), "{root:?} {member:?}");
    }
}

/// Command of one of several ranks on this host.
fn rank_command(number: usize, world_size: usize, port: u16, task: &str) -> Command {
    let mut command: Command = own_process::command(rank);
    let variables =
        [("RANK", number), ("WORLD_SIZE", world_size), ("LOCAL_RANK", number), ("LOCAL_WORLD_SIZE", world_size)];
    command.envs(variables.map(|(name, value)| (name, value.to_string())));
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string()).env(TASK, task);
    command
}

/// With few open files, rank 0 waits for as many ranks as it can, and names the limit for more.
#[test]
fn a_limit_of_open_files_is_named_with_its_remedy() {
    let root = |world_size| {
        let command = rank_command(0, world_size, free_port(), "finish");
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n 100 && exec \"$0\" \"$@\""]).arg(command.get_program()).args(arguments);
        limited.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = limited.env("RANKS_TEST_JOIN", "1").output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(root(30).contains("1 of 30 ranks joined rank 0 on "), "{}", root(30));
    let expected = "rank 0 needs 164 open files for 100 ranks, but the hard limit is 100 (`ulimit -Hn`); raise it";
    assert!(root(100).contains(expected), "{}", root(100));
}

/// Processes that are killed with their owner.
struct Ranks(Vec<Child>);

impl Ranks {
    /// Starts ranks and waits until they have joined.
    fn start(world_size: usize, task: &str) -> Self {
        let port = free_port();
        let start = |number: usize| {
            let mut command = rank_command(number, world_size, port, task);
            // The kernel resumes stopped processes of this process's group once its shell has ended.
            command.process_group(0);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut ranks = Self((0..world_size).map(start).collect());
        for child in &mut ranks.0 {
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap() == JOINED));
            // The pipe stays open, and is read.
            thread::spawn(move || lines.for_each(drop));
        }
        ranks
    }

    fn signal(&self, rank: usize, signal: Signal) {
        let pid = Pid::from_raw(self.0[rank].id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for a rank to end, and returns its exit code and standard error.
    fn end(&mut self, rank: usize, deadline: Instant) -> (Option<i32>, String) {
        let child = &mut self.0[rank];
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "rank {rank} goes on");
            thread::sleep(Duration::from_millis(50));
        }
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (child.wait().unwrap().code(), text)
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Ended ones are no error.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn processes_finish_together() {
    let mut ranks = Ranks::start(4, "finish");
    let deadline = Instant::now() + BOUND;
    for rank in 0..4 {
        let (code, text) = ranks.end(rank, deadline);
        assert_eq!(code, Some(0), "{text}");
    }
}

/// Sends a signal to a rank, and checks that all others end in time with an error that names the rank.
fn check(task: &str, faulty: usize, signal: Signal, cause: &str) {
    let mut ranks = Ranks::start(3, task);
    // Exchanges are under way.
    thread::sleep(Duration::from_millis(300));
    let begin = Instant::now();
    ranks.signal(faulty, signal);
    for rank in (0..3).filter(|rank| *rank != faulty) {
        let (code, text) = ranks.end(rank, begin + BOUND);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{task}: rank {rank} ended {seconds:.1} s after {signal:?} of rank {faulty}");
        let expected = format!("rank {faulty} on ");
        assert!(text.contains(&expected) && text.contains(cause), "rank {rank}: {text}");
        // A program may end by itself once a call has returned the error.
        assert!(if task == "hang" { code == Some(EXIT_CODE) } else { code != Some(0) }, "rank {rank}: {code:?}");
    }
}

#[test]
fn killed_and_stopped_ranks_end_all_others() {
    // At one time: a stopped rank is noticed after 15 s.
    thread::scope(|scope| {
        scope.spawn(|| check("exchange", 1, Signal::KILL, "broke"));
        scope.spawn(|| check("exchange", 0, Signal::KILL, "broke"));
        scope.spawn(|| check("hang", 2, Signal::KILL, "broke"));
        scope.spawn(|| check("hang", 1, Signal::STOP, "silent for"));
        scope.spawn(|| check("hang", 0, Signal::STOP, "silent for"));
    });
}
