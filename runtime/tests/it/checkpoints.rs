//! Checkpoints of programs that are killed, stopped, or out of disk space: resumed runs end as one that was not interrupted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::store::ModuleRecord;
use burn::tensor::{Device, Tensor};
use gpu_tuned::{Checkpoint, CheckpointError, Checkpoints, Options, Session, Tuned};
use networks::{Rows, furthest, values};

config! { Whole, mlp(widths = [3, 64, 1]), global_batch = 8, target = "generic" }

config! { Sharded, mlp(widths = [3, 64, 1]), global_batch = 8, shard_optimizer = true, target = "generic" }

/// Five steps of 8 and one of 4, which is enough for four ranks.
const SAMPLES: usize = 44;
const EPOCHS: u64 = 5;
/// Not a divisor of the steps of an epoch.
const EVERY: u64 = 4;

#[derive(Module, Debug)]
struct Net {
    hidden: Linear,
    dropout: Dropout,
    out: Linear,
}

impl Net {
    fn new(device: &Device, dropout: f64) -> Self {
        let dropout = DropoutConfig::new(dropout).init();
        Self { hidden: LinearConfig::new(3, 64).init(device), dropout, out: LinearConfig::new(64, 1).init(device) }
    }

    /// Predicts the last column from the others.
    fn loss(&self, rows: Tensor<2>) -> Tensor<1> {
        let (input, target) = (rows.clone().narrow(1, 0, 3), rows.narrow(1, 3, 1));
        let hidden = self.dropout.forward(self.hidden.forward(input).tanh());
        (self.out.forward(hidden) - target).square().mean()
    }
}

fn row(index: usize) -> [f32; 4] {
    std::array::from_fn(|column| ((index * 4 + column) * 37 % 19) as f32 / 19.0 - 0.5)
}

/// A number that the test passes to the program.
fn number(name: &str) -> u64 {
    std::env::var(name).map(|text| text.parse().expect("a number")).unwrap_or_default()
}

/// A program that trains in folder `FOLDER`, and prints its parameters and values. Each loss goes to a file at once.
fn train<C: Tuned>(config: C) -> Result<String, CheckpointError> {
    let folder = PathBuf::from(std::env::var_os("FOLDER").expect("a folder"));
    let options = Options::default().cpu().distributed_if_launched().resume_or_start(folder.join("run"));
    let session = options.start(config).unwrap_or_else(|error| panic!("{error}"));
    let mut losses = File::options().create(true).append(true).open(folder.join("losses")).expect("a file");
    session.inner_device().seed(7);
    let checkpoints = session.checkpoints(folder.join("run"))?;
    let mut checkpoints = checkpoints.every_steps(EVERY).every_epochs(1).keep(2).keep_lowest("valid/loss");
    let dropout = number("DROPOUT_PERCENT") as f64 / 100.0;
    let mut trainer = checkpoints.trainer(&session, Net::new(&session.device(), dropout), AdamWConfig::new().init())?;
    let dataset = InMemDataset::new((0..SAMPLES).map(row).collect());
    let loader = session.loader(dataset, Rows::default()).shuffle(42);
    let held_out = Tensor::<1>::from_floats(row(99), &session.inner_device()).unsqueeze();
    while checkpoints.epoch() < EPOCHS {
        for batch in checkpoints.rest_of_epoch(&loader) {
            let step = trainer.step(0.01, batch.expect("a batch"), Net::loss).expect("a step");
            if session.is_first_rank() {
                writeln!(losses, "{} {}", checkpoints.steps(), step.loss.to_bits()).expect("it is written");
            }
            sleep(Duration::from_millis(number("STEP_MS")));
            checkpoints.step(&trainer)?;
        }
        let valid = trainer.model().valid().loss(held_out.clone()).into_scalar::<f32>();
        checkpoints.value("valid/loss", f64::from(valid));
        checkpoints.end_epoch(&trainer)?;
    }
    checkpoints.finish(&trainer)?;
    if number("EVALUATES") == 1 {
        let scores = checkpoints.values("valid/loss").count();
        drop(checkpoints);
        writeln!(losses, "{} {scores}", 1000).expect("it is written");
        sleep(Duration::from_secs(2));
        return Ok("evaluated".to_owned());
    }
    let bits: Vec<_> = values(trainer.model()).into_iter().map(f32::to_bits).collect();
    Ok(format!("{bits:?} {:?}", checkpoints.values("valid/loss").collect::<Vec<_>>()))
}

#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let trained = if number("SHARDED") == 1 { train(Sharded::default()) } else { train(Whole::default()) };
    match trained {
        Ok(result) => own_process::give(result),
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    }
}

/// Runs of the program in a folder.
struct Runs {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, u64)>,
}

impl Runs {
    fn new(variables: &[(&'static str, u64)]) -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), variables: variables.to_vec() }
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn command(&self) -> Command {
        let mut command = own_process::command(program);
        command.env("FOLDER", self.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.variables.iter().map(|(name, value)| (name, value.to_string())));
        command
    }

    fn start(&self) -> Child {
        self.command().spawn().expect("it starts")
    }

    /// Starts so many ranks.
    fn ranks(&self, ranks: usize) -> Vec<Child> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
        let rank = |rank: usize| {
            let numbers = [("RANK", rank), ("WORLD_SIZE", ranks), ("LOCAL_RANK", rank), ("LOCAL_WORLD_SIZE", ranks)];
            let mut command = self.command();
            command.envs(numbers.map(|(name, value)| (name, value.to_string())));
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string()).spawn().expect("it starts")
        };
        (0..ranks).map(rank).collect()
    }

    /// The result of the program, which goes on to the end.
    fn result(&self) -> String {
        own_process::result(&mut self.command())
    }

    /// Loss of each step. A step that several processes took had the same loss in each.
    fn losses(&self) -> BTreeMap<u64, u32> {
        let mut losses = BTreeMap::new();
        for line in fs::read_to_string(self.folder.path().join("losses")).expect("losses").lines() {
            let (step, loss) = line.split_once(' ').expect("two numbers");
            let (step, loss) = (step.parse().expect("a step"), loss.parse().expect("bits"));
            assert_eq!(*losses.entry(step).or_insert(loss), loss, "step {step} has two losses");
        }
        losses
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.run()).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("a name")).collect();
        names.retain(|name| name != ".lock");
        names.sort();
        names
    }

    /// Waits until the run has taken so many steps.
    fn wait_for_step(&self, step: usize) {
        let begin = Instant::now();
        let losses = || fs::read_to_string(self.folder.path().join("losses")).unwrap_or_default().lines().count();
        while losses() < step {
            assert!(begin.elapsed() < Duration::from_mins(1), "the run takes no steps");
            sleep(Duration::from_millis(5));
        }
    }
}

const DROPOUT: (&str, u64) = ("DROPOUT_PERCENT", 25);

fn signal(child: &Child, name: &str) {
    let command = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &command]).status().expect("a shell").success());
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn parameters(result: &str) -> Vec<f32> {
    let bits: Vec<u32> = serde_json::from_str(&result[..=result.find(']').expect("a list")]).expect("numbers");
    bits.into_iter().map(f32::from_bits).collect()
}

/// Results of all ranks, which are equal.
fn result_of(ranks: Vec<Child>) -> String {
    let outputs: Vec<_> = ranks.into_iter().map(|rank| rank.wait_with_output().expect("it ends")).collect();
    let result = |output: &Output| {
        assert!(output.status.success(), "{}", text(output));
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        stdout.lines().find_map(|line| line.strip_prefix("own-process result: ")).expect("a result").to_owned()
    };
    let results: Vec<_> = outputs.iter().map(result).collect();
    assert!(results.iter().all(|result| parameters(result) == parameters(&results[0])));
    results[0].clone()
}

/// Kills one process of a run at random times, and compares the end with that of a run that was not interrupted. `KILLS`
/// sets the number of kills.
fn check_kills(ranks: usize, variables: &[(&'static str, u64)]) {
    let start = |runs: &Runs| if ranks == 1 { vec![runs.start()] } else { runs.ranks(ranks) };
    let whole = Runs::new(variables);
    let begin = Instant::now();
    let expected = result_of(start(&whole));
    let longest = begin.elapsed();
    let mut kills: u32 = std::env::var("KILLS").map_or(6, |kills| kills.parse().expect("a number"));
    let (mut random, mut resumed) = (1_u32, 0);
    let mut draw = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random >> 16
    };
    while kills > 0 {
        let runs = Runs::new(variables);
        while kills > 0 {
            let mut processes = start(&runs);
            sleep(longest * draw() / 65_536);
            processes[draw() as usize % ranks].kill().expect("a child");
            if all_succeed(&mut processes) {
                break;
            }
            resumed += usize::from(Checkpoint::newest(runs.run()).expect("whole checkpoints").is_some());
            kills -= 1;
        }
        assert_eq!(result_of(start(&runs)), expected);
        assert_eq!(runs.losses(), whole.losses());
        assert_eq!(runs.names(), whole.names(), "nothing unfinished is left");
    }
    println!("{resumed} kills after a checkpoint");
    assert!(resumed > 0);
}

/// Waits for all ranks. As a launcher does, kills those that wait for one that will not join.
fn all_succeed(processes: &mut [Child]) -> bool {
    let end = Instant::now() + Duration::from_secs(2);
    let has_ended = |process: &mut Child| {
        while process.try_wait().expect("a child").is_none() {
            if Instant::now() > end {
                process.kill().expect("a child");
            }
            sleep(Duration::from_millis(5));
        }
        process.wait().expect("it has ended").success()
    };
    let ends: Vec<_> = processes.iter_mut().map(has_ended).collect();
    ends.iter().all(|is_success| *is_success)
}

#[test]
fn killed_runs_end_as_one_that_was_not_interrupted() {
    check_kills(1, &[DROPOUT]);
    let result = |variables| Runs::new(variables).result();
    assert_ne!(result(&[DROPOUT]), result(&[]), "dropout must matter");
}

#[test]
fn a_killed_rank_loses_no_whole_checkpoint() {
    check_kills(4, &[DROPOUT, ("SHARDED", 1)]);
}

#[test]
fn the_newest_and_the_best_are_kept() {
    let runs = Runs::new(&[]);
    runs.result();
    let newest = Checkpoint::newest(runs.run()).expect("whole").expect("one");
    assert_eq!((newest.steps(), newest.path().ends_with("step-00000030-epoch-0005")), (30, true));
    let scores: Vec<_> = newest.values("valid/loss").collect();
    assert_eq!(scores.iter().map(|(step, _)| *step).collect::<Vec<_>>(), [6, 12, 18, 24, 30]);
    let (best, _) = *scores.iter().min_by(|one, other| one.1.total_cmp(&other.1)).expect("five");
    let names = [best, 28, 30].map(|step| match step {
        28 => "step-00000028-epoch-0004".to_owned(),
        step => format!("step-{step:08}-epoch-{:04}", step / 6),
    });
    let mut names = names.to_vec();
    names.dedup();
    assert!(best < 28, "another run, whose best is not its newest: {scores:?}");
    assert_eq!(runs.names(), names);
}

/// Burn reads the records without this library.
#[test]
fn records_are_those_of_burn() {
    let runs = Runs::new(&[]);
    let result = runs.result();
    let path = Checkpoint::newest(runs.run()).expect("whole").expect("one").path().to_owned();
    let device = Device::flex();
    let record = ModuleRecord::load(path.join("model.bpk")).expect("Burn reads it");
    assert_eq!(values(&Net::new(&device, 0.0).load_record(record)), parameters(&result));
    AdamWConfig::new().init().load(path.join("optimizer.bpk")).expect("Burn reads it");
}

#[test]
fn a_damaged_checkpoint_is_passed_over_for_the_previous_one() {
    type Damage = fn(&Path);
    let whole = Runs::new(&[DROPOUT]);
    let expected = whole.result();
    let cases: [(&str, Damage); 5] = [
        ("model.bpk has 100 of", |last| cut_file(&last.join("model.bpk"))),
        ("optimizer.bpk is damaged", |last| {
            let mut bytes = fs::read(last.join("optimizer.bpk")).expect("a file");
            *bytes.last_mut().expect("bytes") ^= 1;
            fs::write(last.join("optimizer.bpk"), bytes).expect("it is written");
        }),
        ("checkpoint.json is damaged", |last| cut_file(&last.join("checkpoint.json"))),
        ("gpu-tuned-run.json: ", |last| fs::remove_file(last.join("gpu-tuned-run.json")).expect("a file")),
        ("checkpoint.json: ", |last| fs::remove_file(last.join("checkpoint.json")).expect("a file")),
    ];
    for (reason, damage) in cases {
        let last = whole.run().join(whole.names().last().expect("a checkpoint"));
        damage(&last);
        assert_eq!(Checkpoint::newest(whole.run()).expect("one is whole").expect("one").steps(), 28, "{reason}");
        let output = whole.start().wait_with_output().expect("it ends");
        assert!(output.status.success(), "{}", text(&output));
        let warned = text(&output);
        assert!(warned.contains("step-00000030-epoch-0005: ") && warned.contains(reason), "{reason}: {warned}");
        assert_eq!(whole.result(), expected, "{reason}");
    }
    for name in whole.names() {
        cut_file(&whole.run().join(name).join("model.bpk"));
    }
    let output = whole.start().wait_with_output().expect("it ends");
    assert!(!output.status.success() && text(&output).contains("is whole"), "{}", text(&output));
}

fn cut_file(path: &Path) {
    File::options().write(true).open(path).and_then(|file| file.set_len(100)).expect("a file");
}

/// A limit on the length of files stands for a full disk: the write fails after a part.
#[test]
fn a_full_disk_loses_nothing() {
    let expected = Runs::new(&[DROPOUT]).result();
    let runs = Runs::new(&[DROPOUT, ("STEP_MS", 50)]);
    let mut child = runs.start();
    runs.wait_for_step(10);
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let before = runs.names();
    let ordinary = runs.command();
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\""]).arg(ordinary.get_program());
    limited.args(ordinary.get_args()).envs(ordinary.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = limited.output().expect("a shell");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("no checkpoint was saved: "), "{}", text(&output));
    let kept: Vec<_> = before.iter().filter(|name| !name.ends_with(".partial")).cloned().collect();
    assert!(!kept.is_empty());
    assert!(kept.iter().all(|name| Path::new(&runs.run().join(name).join("checkpoint.json")).exists()), "{kept:?}");
    assert_eq!(runs.result(), expected);
}

#[test]
fn one_process_writes_to_a_folder() {
    let runs = Runs::new(&[("STEP_MS", 50)]);
    let mut first = runs.start();
    runs.wait_for_step(1);
    let second = runs.start().wait_with_output().expect("it ends");
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second).contains("another process is training"), "{}", text(&second));
    assert!(first.wait().expect("it ends").success(), "the first one goes on");
}

#[test]
fn a_signal_saves_and_ends_with_a_code_of_its_own() {
    let expected = Runs::new(&[DROPOUT]).result();
    for name in ["TERM", "USR1"] {
        let runs = Runs::new(&[DROPOUT, ("STEP_MS", 50)]);
        let child = runs.start();
        runs.wait_for_step(10);
        signal(&child, name);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(Checkpoints::EXIT_CODE), "{}", text(&output));
        let taken = runs.losses().len();
        let message = format!("stopped by SIG{name} after step {taken}, which is saved; the same command goes on");
        assert!(text(&output).contains(&message), "{}", text(&output));
        assert_eq!(runs.result(), expected, "{name}");
        assert_eq!(runs.losses().len(), 30);
    }
}

/// A program that has trained goes on after a warning of its end.
#[test]
fn after_the_last_step_sigterm_ends_the_process_and_sigusr1_does_not() {
    for (name, code) in [("TERM", None), ("USR1", Some(0))] {
        let runs = Runs::new(&[("EVALUATES", 1)]);
        let child = runs.start();
        runs.wait_for_step(31);
        signal(&child, name);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), code, "{name}: {}", text(&output));
    }
}

#[test]
fn ranks_stop_together_and_go_on_with_another_number() {
    for sharded in [0, 1] {
        let variables = [("SHARDED", sharded), ("STEP_MS", 30)];
        let expected = parameters(&Runs::new(&variables).result());
        for (one, other) in [(2, 2), (2, 1), (1, 4), (4, 2)] {
            let runs = Runs::new(&variables);
            let ranks = runs.ranks(one);
            runs.wait_for_step(9);
            // Any of them.
            signal(ranks.last().expect("a rank"), "USR1");
            for output in ranks.into_iter().map(|rank| rank.wait_with_output().expect("it ends")) {
                assert_eq!(output.status.code(), Some(Checkpoints::EXIT_CODE), "{}", text(&output));
            }
            let saved = runs.losses().len() as u64;
            assert_eq!(Checkpoint::newest(runs.run()).expect("whole").expect("one").steps(), saved);
            let result = result_of(runs.ranks(other));
            let off = furthest(&parameters(&result), &expected);
            assert!(off < 1e-4, "{one} ranks, then {other}: {off}");
            // Each step is taken once.
            let losses = fs::read_to_string(runs.folder.path().join("losses")).expect("losses");
            assert_eq!((losses.lines().count(), runs.losses().len()), (30, 30));
        }
    }
}

fn session(options: &Options) -> Session<Whole> {
    options.start(Whole::default()).expect("a session")
}

/// The first save waits. Later ones are written while training goes on, and are complete with a later step.
#[test]
fn a_save_does_not_stop_the_loop() {
    let folder = tempfile::tempdir().expect("a folder");
    let session = session(&Options::default().cpu().resume_or_start(folder.path()));
    let mut checkpoints = session.checkpoints(folder.path()).expect("a new folder").every_steps(1);
    let trainer = checkpoints.trainer(&session, Net::new(&session.device(), 0.0), AdamWConfig::new().init());
    let trainer = trainer.expect("a trainer");
    let newest = || Checkpoint::newest(folder.path()).expect("whole").expect("one").steps();
    let mut complete = Vec::new();
    for _ in 0..3 {
        checkpoints.step(&trainer).expect("a step");
        complete.push(newest());
    }
    assert_eq!(complete, [1, 1, 2]);
    checkpoints.finish(&trainer).expect("it is saved");
    assert_eq!(newest(), 3);
}

#[test]
fn the_time_limit_stops_a_program_that_wants_to_end_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = || session(&Options::default().cpu().resume_or_start(folder.path()));
    let (session, limit) = (run(), Duration::from_millis(1));
    let checkpoints = session.checkpoints(folder.path()).expect("a new folder");
    let mut checkpoints = checkpoints.time_limit(limit).exits(false);
    checkpoints.set_state(&vec!["a", "b"]).expect("it is JSON");
    let trainer = checkpoints.trainer(&session, Net::new(&session.device(), 0.0), AdamWConfig::new().init());
    let trainer = trainer.expect("a trainer");
    sleep(limit);
    let error = checkpoints.step(&trainer).expect_err("the time is over");
    assert!(matches!(error, CheckpointError::Stopped { steps: 1, failure: None, .. }), "{error}");
    drop(checkpoints);

    let again = run();
    let checkpoints = again.checkpoints(folder.path()).expect("one is whole");
    let state: Vec<String> = checkpoints.resumed().expect("it resumes").state().expect("a list");
    assert_eq!((state, checkpoints.steps()), (vec!["a".to_owned(), "b".to_owned()], 1));
    assert!(checkpoints.resumed().expect("it resumes").state::<u64>().is_err());
    drop(checkpoints);

    let error = self::session(&Options::default().cpu()).checkpoints(folder.path()).expect_err("a new run");
    assert!(matches!(error, CheckpointError::NotResumed { .. }), "{error}");
}
