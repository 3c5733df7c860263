//! Sums of processes by NCCL beside a fake on the CPU: values, lost ranks, and libraries that fail.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::thread;
use std::time::{Duration, Instant};

use fake_nccl::Fake;
use gpu_tuned_kernels::cublaslt::Memory;
use gpu_tuned_kernels::find::LoadError;
use gpu_tuned_kernels::nccl::{Communicator, Nccl, NcclError, Number, UniqueId};

/// Identifier for the process of another rank, in hexadecimal.
const ID: &str = "NCCL_TEST_ID";

/// Enough for a process to start on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn opened(fake: &Fake) -> &'static Nccl {
    Box::leak(Box::new(Nccl::load(&fake.path()).expect("a library")))
}

/// Starts `test`, the second rank, in a process.
fn start(test: impl Fn(), id: UniqueId) -> Child {
    own_process::command(test).env(ID, text(id)).stdout(Stdio::null()).spawn().expect("a process")
}

fn text(id: UniqueId) -> String {
    id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id(text: &str) -> Option<UniqueId> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("a byte");
    UniqueId::from_bytes(&(0..text.len()).step_by(2).map(byte).collect::<Vec<_>>())
}

/// The identifier in the process of a second rank.
fn id_of_first() -> Option<UniqueId> {
    id(&env::var(ID).ok()?)
}

fn wait_for(communicator: &Communicator) -> Result<(), NcclError> {
    let begin = Instant::now();
    while !communicator.is_ready()? {
        assert!(begin.elapsed() < PATIENCE, "the ranks do not come together");
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn joined(library: &'static Nccl, id: UniqueId, rank: usize) -> Communicator {
    let communicator = library.join(id, rank, 2).expect("a communicator");
    wait_for(&communicator).expect("all ranks");
    communicator
}

fn memory<T>(numbers: &mut [T]) -> Memory {
    Memory { address: numbers.as_mut_ptr().addr() as u64, bytes: size_of_val(numbers) as u64 }
}

fn sum(
    communicator: &Communicator,
    read: Memory,
    written: Memory,
    number: Number,
    count: usize,
) -> Result<(), NcclError> {
    // SAFETY: the fake works on the memory of the test, which stays until the call is over.
    unsafe { communicator.sum(read, written, number, count, null_mut()) }
}

/// Sums of rank 0, and of rank 1 with other numbers: in place, and to other memory in bf16.
fn sums(communicator: &Communicator, own: f32) -> (Vec<f32>, Vec<u16>) {
    let mut numbers = vec![own, 2.0 * own, 0.5, -8.0];
    let in_place = memory(&mut numbers);
    // The last number is not summed.
    sum(communicator, in_place, in_place, Number::F32, 3).expect("a sum");
    let (mut read, mut written) = ([own, 1.0].map(bf16), [0; 2]);
    sum(communicator, memory(&mut read), memory(&mut written), Number::Bf16, 2).expect("a sum");
    assert_eq!(read, [own, 1.0].map(bf16));
    (numbers, written.to_vec())
}

const fn bf16(number: f32) -> u16 {
    (number.to_bits() >> 16) as u16
}

#[test]
#[ignore = "a rank of another test"]
fn second_rank_that_sums() {
    let Some(id) = id_of_first() else { return };
    let communicator = joined(opened(&Fake::new()), id, 1);
    assert_eq!(sums(&communicator, 4.0), (vec![5.0, 10.0, 1.0, -8.0], [5.0, 2.0].map(bf16).to_vec()));
}

#[test]
fn two_processes_sum() {
    let library = opened(&Fake::new());
    let id = library.unique_id().expect("an identifier");
    let mut second = start(second_rank_that_sums, id);
    let communicator = joined(library, id, 0);
    assert_eq!(sums(&communicator, 1.0), (vec![5.0, 10.0, 1.0, -8.0], [5.0, 2.0].map(bf16).to_vec()));
    assert!(second.wait().expect("an exit").success());
}

#[test]
#[ignore = "a rank of another test"]
fn second_rank_that_is_lost() {
    let Some(id) = id_of_first() else { return };
    joined(opened(&Fake::new()), id, 1);
}

#[test]
fn an_abort_ends_a_sum_that_waits_for_a_lost_rank() {
    let library = opened(&Fake::new());
    let id = library.unique_id().expect("an identifier");
    let mut second = start(second_rank_that_is_lost, id);
    let communicator = joined(library, id, 0);
    assert!(second.wait().expect("an exit").success());
    let mut numbers = vec![1.0_f32; 3];
    let place = memory(&mut numbers);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| sum(&communicator, place, place, Number::F32, 3));
        thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished(), "the sum has no second rank");
        let begin = Instant::now();
        communicator.abort().expect("an abort");
        assert_eq!(waiting.join().expect("no panic"), Err(NcclError::Aborted));
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    });
    assert_eq!(communicator.is_ready(), Err(NcclError::Aborted));
    assert_eq!(sum(&communicator, place, place, Number::F32, 3), Err(NcclError::Aborted));
    communicator.abort().expect("a second abort does nothing");
    assert_eq!(numbers, [1.0; 3]);
}

#[test]
#[ignore = "a rank of another test"]
fn first_rank_that_is_lost() {
    if env::var_os(FIRST).is_none() {
        return;
    }
    let library = opened(&Fake::new());
    let id = library.unique_id().expect("an identifier");
    println!("{FIRST} {}", text(id));
    joined(library, id, 0);
}

/// Set in the process of the first rank, and before its identifier.
const FIRST: &str = "NCCL_TEST_FIRST";

#[test]
fn a_sum_whose_connection_breaks_is_an_error() {
    let mut command = own_process::command(first_rank_that_is_lost);
    let mut first = command.env(FIRST, "1").stdout(Stdio::piped()).spawn().expect("a process");
    // Open until the process has ended, which prints.
    let mut lines = BufReader::new(first.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
    let text = lines.find_map(|line| Some(line.split_once(FIRST)?.1.trim().to_owned()));
    let id = id(&text.expect("an identifier")).expect("128 bytes");
    let communicator = joined(opened(&Fake::new()), id, 1);
    assert!(first.wait().expect("an exit").success());
    let mut numbers = vec![1.0_f32; 3];
    let place = memory(&mut numbers);
    let failure = sum(&communicator, place, place, Number::F32, 3).expect_err("the first rank is lost");
    assert!(failure.to_string().contains("remote process exited"), "{failure}");
    assert_eq!(communicator.is_ready(), Err(failure));
    communicator.abort().expect("an abort");
}

#[test]
fn an_abort_ends_a_join_that_waits_for_a_rank() {
    let library = opened(&Fake::new());
    let id = library.unique_id().expect("an identifier");
    let communicator = library.join(id, 1, 2).expect("a communicator");
    thread::sleep(Duration::from_millis(100));
    assert_eq!(communicator.is_ready(), Ok(false));
    communicator.abort().expect("an abort");
    assert_eq!(communicator.is_ready(), Err(NcclError::Aborted));
}

#[test]
fn numbers_that_exceed_a_memory_are_not_summed() {
    let library = opened(&Fake::new());
    let communicator = library.join(library.unique_id().expect("an identifier"), 0, 1).expect("a communicator");
    wait_for(&communicator).expect("the only rank");
    let (mut small, mut large) = (vec![1.0_f32; 3], vec![1.0_f32; 4]);
    let (small, large) = (memory(&mut small), memory(&mut large));
    let refused = Err(NcclError::TooLarge { needed: 16, found: 12 });
    assert_eq!(sum(&communicator, small, large, Number::F32, 4), refused);
    assert_eq!(sum(&communicator, large, small, Number::F32, 4), refused);
    assert_eq!(sum(&communicator, large, small, Number::F32, 3), Ok(()));
}

#[test]
fn failing_calls_are_named_with_the_reasons_of_the_library() {
    let fake = Fake::new();
    let library = opened(&fake);
    let id = library.unique_id().expect("an identifier");
    let communicator = library.join(id, 0, 1).expect("a communicator");
    wait_for(&communicator).expect("the only rank");
    let mut numbers = vec![1.0_f32; 3];
    let place = memory(&mut numbers);
    let message = |failure: NcclError| failure.to_string();
    let system = "failed: unhandled system error (run with NCCL_DEBUG=INFO for details) (2): of the fake";
    fake.behave("ncclGetUniqueId");
    let failure = library.unique_id().expect_err("a failure");
    assert_eq!(message(failure), format!("ncclGetUniqueId of NCCL {system}"));
    fake.behave("ncclCommInitRankConfig");
    let failure = library.join(id, 0, 1).expect_err("a failure");
    assert_eq!(message(failure), format!("ncclCommInitRankConfig of NCCL {system}"));
    fake.behave("ncclAllReduce");
    let failure = sum(&communicator, place, place, Number::F32, 3).expect_err("a failure");
    let usage = "failed: invalid usage (run with NCCL_DEBUG=WARN for details) (5): of the fake";
    assert_eq!(message(failure), format!("ncclAllReduce of NCCL {usage}"));
}

#[test]
fn an_nccl_whose_communicators_block_is_refused() {
    let fake = Fake::new();
    assert_eq!(opened(&fake).version(), 22_803);
    fake.behave("version=21310");
    let failure = Nccl::load(&fake.path()).expect_err("an old version");
    let expected = LoadError::Version { library: "NCCL", path: fake.path(), found: 21_310, oldest: 21_400 };
    assert_eq!(failure, expected);
}

#[test]
fn a_missing_nccl_is_named_by_both_of_its_files() {
    let program = env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(own_process::arguments(process_without_nccl)).env("GPU_TUNED_LIBRARIES", "/nonexistent");
    own_process::run(&mut command);
}

#[test]
#[ignore = "needs a variable"]
fn process_without_nccl() {
    if env::var_os("GPU_TUNED_LIBRARIES").is_none() {
        return;
    }
    let message = gpu_tuned_kernels::find::nccl().expect_err("no library").to_string();
    assert!(message.starts_with("NCCL (`libnccl.so.2` or `libnccl.so`) was not found"), "{message}");
    assert!(message.contains("pip install nvidia-nccl"), "{message}");
}
