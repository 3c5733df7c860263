use std::cell::RefCell;
use std::fs;

use gpu_tuned_core::Bytes;
use gpu_tuned_observe::bench::{Feed, Figures, Outcome, Setup};
use tempfile::TempDir;

use super::super::super::{MeasureError, Memory, Step};
use super::super::journal::Journal;
use super::super::journal::tests::{figures, header, setup};
use super::super::runner::StepRunner;
use super::Sweep;

const MIB: u64 = 1 << 20;

/// Steps that take 100 MiB and 10 for each sample, and do what a device would.
struct Fake {
    room: Bytes,
    /// True if steps have dry runs, as on a GPU.
    is_gpu: bool,
    /// Batch that fails, with its message.
    fails: Option<(usize, &'static str)>,
    has_preparation: bool,
    ran: RefCell<Vec<String>>,
}

fn fake(is_gpu: bool, room_mib: u64) -> Fake {
    let room = Bytes::from_mib(room_mib);
    Fake { room, is_gpu, fails: None, has_preparation: true, ran: RefCell::default() }
}

impl Fake {
    fn say(&self, what: &str, step: Step) {
        self.ran.borrow_mut().push(format!("{what} {}", step.batch));
    }

    fn takes(step: Step) -> Memory {
        let reserved_bytes = Bytes((100 + 10 * step.batch as u64) * MIB);
        Memory { reserved_bytes, in_use_bytes: Some(Bytes(MIB)) }
    }
}

impl StepRunner for Fake {
    fn room(&self) -> Result<Bytes, MeasureError> {
        Ok(self.room)
    }

    fn foresee(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        if !self.is_gpu {
            return Ok(None);
        }
        self.say("dry", step);
        Ok(Some(Self::takes(step)))
    }

    fn probe(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        if self.is_gpu {
            return Ok(None);
        }
        self.say("probe", step);
        Ok(Some(Self::takes(step)))
    }

    fn run(&self, step: Step) -> Result<Figures, MeasureError> {
        self.say("run", step);
        match self.fails {
            Some((batch, message)) if batch == step.batch => {
                Err(MeasureError::Step { step, message: message.to_owned() })
            }
            _ => Ok(figures(Some(Self::takes(step).reserved_bytes))),
        }
    }

    fn run_fed(&self, step: Step, feed: Feed) -> Result<Option<Figures>, MeasureError> {
        self.say(&format!("feed by {}", feed.workers), step);
        Ok(self.has_preparation.then(|| figures(None)))
    }
}

/// Outcomes of the configurations, and results on record afterwards.
struct Ran {
    known: Vec<(Setup, Outcome)>,
    folder: TempDir,
}

fn run(fake: &Fake, known: &[(Setup, Outcome)], setups: &[Setup]) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(&folder.path().join("results")).expect("it is opened");
    let begin = super::super::journal::tests::begin();
    journal.begin(header(), begin).expect("it is written");
    let climb = Sweep {
        runner: fake,
        largest: 512,
        checkpointing: &[false, true],
        known: known.to_vec(),
        journal: &mut journal,
        after_output: &|| (),
    };
    climb.run(setups).expect("nothing but steps fails");
    Ran { known: journal.known(0, &header()).expect("it is read"), folder }
}

impl Ran {
    fn outcomes(&self) -> Vec<String> {
        self.known.iter().map(|(setup, outcome)| format!("{}: {outcome}", setup.batch)).collect()
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("results")).expect("the results");
        text.lines().map(|line| line.chars().skip(2).take_while(|c| *c != '"').collect()).collect()
    }
}

#[test]
fn what_would_take_too_much_is_told_by_smaller_batches_and_not_run() {
    let setups = [8, 16, 32, 64].map(setup);
    for (is_gpu, before) in
        [(true, ["dry 8", "run 8", "dry 16", "run 16"]), (false, ["probe 1", "probe 2", "run 8", "run 16"])]
    {
        let fake = fake(is_gpu, 300);
        let ran = run(&fake, &[], &setups);
        assert_eq!(*fake.ran.borrow(), before, "32 takes 420 MiB");
        let reported = ["8: 815 samples/s", "16: 815 samples/s", "32: does not fit: needs 420.0 MiB of 300.0 MiB"];
        assert_eq!(ran.outcomes()[..3], reported);
        assert!(ran.outcomes()[3].contains("740.0 MiB"), "{:?}", ran.outcomes());
    }
}

#[test]
fn a_first_batch_that_a_dry_run_says_is_too_large_is_not_run() {
    let fake = fake(true, 300);
    assert!(run(&fake, &[], &[setup(64)]).outcomes()[0].contains("does not fit"));
    assert_eq!(*fake.ran.borrow(), ["dry 64"]);
}

#[test]
fn what_is_on_record_is_not_run_again_and_tells_what_others_take() {
    let known = |batch: u64| {
        let taken = Bytes((100 + 10 * batch) * MIB);
        (setup(batch), Outcome::Measured(figures(Some(taken))))
    };
    let died = (setup(4), Outcome::Died { how: "signal 9".to_owned() });
    let misfit = Outcome::DoesNotFit { needed_bytes: Bytes(2), available_bytes: Bytes(1) };
    let fake = fake(false, 300);
    let known = [died, known(8), known(16), (setup(18), misfit)];
    let ran = run(&fake, &known, &[4, 8, 16, 18, 32].map(setup));
    // A batch that did not fit then may fit now.
    assert_eq!(*fake.ran.borrow(), ["run 18"]);
    assert!(ran.outcomes()[1].contains("420.0 MiB"), "{:?}", ran.outcomes());
}

#[test]
fn a_step_that_fails_is_the_end_of_its_setup_alone() {
    let fake = Fake { fails: Some((16, "no such image")), ..fake(true, 9000) };
    let fed = Setup { feed: Some(Feed { workers: 2, prefetch: 1 }), ..setup(16) };
    let ran = run(&fake, &[], &[setup(8), setup(16), fed, setup(32)]);
    let wanted = ["8: 815 samples/s", "16: failed: no such image", "16: failed: no such image", "32: 815 samples/s"];
    assert_eq!(ran.outcomes(), wanted);
    assert!(!fake.ran.borrow().iter().any(|ran| ran.starts_with("feed")));
    let each = ["started", "ended"];
    assert_eq!(ran.lines(), [&["header", "begin"][..], &each, &each, &each, &each].concat());
}

#[test]
fn where_memory_runs_out_the_rest_is_left_to_another_process() {
    let fake = Fake { fails: Some((16, "out of device memory allocating 4096 bytes")), ..fake(true, 9000) };
    let setups = [8, 16, 32].map(setup);
    let ran = run(&fake, &[], &setups);
    assert_eq!(ran.outcomes(), ["8: 815 samples/s", "16: out of memory: out of device memory allocating 4096 bytes"]);
    let next = run(&fake, &ran.known, &setups);
    assert_eq!(next.outcomes(), ["32: 815 samples/s"]);
}

#[test]
fn what_cannot_be_asked_of_the_program_is_said_and_not_run() {
    let fake = Fake { has_preparation: false, ..fake(true, 90_000) };
    let fed = Setup { feed: Some(Feed { workers: 1, prefetch: 1 }), ..setup(8) };
    let outcomes = run(&fake, &[], &[setup(8), fed, setup(1024)]).outcomes();
    assert!(outcomes[1].contains("host_batch"), "{outcomes:?}");
    assert_eq!(outcomes[2], "1024: not run: a step has 512 samples");
}
