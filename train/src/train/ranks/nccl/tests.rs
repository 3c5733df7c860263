//! Communicators of the fake NCCL, and the end of their ranks.

use std::time::Instant;

use fake_nccl::Fake;
use gpu_tuned_kernels::nccl::{Nccl, UniqueId};

use super::*;
use crate::train::ranks::tests::threads::{TestRank, run_all};

/// Time in which the end of a rank is that of all.
const LIMIT: Duration = Duration::from_secs(5);

fn opened(fake: &Fake) -> &'static Nccl {
    Box::leak(Box::new(Nccl::load(&fake.path()).expect("a library")))
}

fn joined(library: &'static Nccl, id: UniqueId, rank: &TestRank) -> Result<Collectives, CollectivesError> {
    Collectives::new(library.join(id, rank.index(), 2)?, &rank.rank().peers)
}

#[test]
fn a_join_ends_with_the_ranks() {
    let library = opened(&Fake::new());
    let id = library.unique_id().expect("an identifier");
    let seconds = run_all(2, 1, move |rank| {
        let begin = Instant::now();
        if rank.index() == 1 {
            thread::sleep(Duration::from_millis(200));
            rank.rank().fail(&CollectivesError::Identifier);
        } else {
            let error = joined(library, id, rank).expect_err("the second rank does not join").to_string();
            assert!(error.starts_with("rank 1 failed: rank 0 has sent no identifier"), "{error}");
        }
        Ok(begin.elapsed())
    });
    assert!(seconds.iter().all(|seconds| *seconds < LIMIT), "{seconds:?}");
}

#[test]
fn the_end_of_the_ranks_aborts_their_communicators() {
    let library = opened(&Fake::new());
    let id = library.unique_id().expect("an identifier");
    run_all(2, 1, move |rank| {
        let collectives = joined(library, id, rank).expect("all ranks");
        assert_eq!(collectives.communicator().is_ready(), Ok(true));
        rank.rank().agree("test", String::new()).expect("both ranks");
        rank.rank().fail(&CollectivesError::Identifier);
        let begin = Instant::now();
        while collectives.communicator().is_ready() != Err(NcclError::Aborted) {
            assert!(begin.elapsed() < LIMIT, "no abort");
            thread::sleep(JOINING);
        }
        Ok(())
    });
}

#[test]
fn a_broken_connection_ends_the_ranks() {
    let fake = Fake::new();
    let library = opened(&fake);
    let id = library.unique_id().expect("an identifier");
    run_all(2, 1, move |rank| {
        let collectives = joined(library, id, rank).expect("all ranks");
        // Both have joined.
        rank.rank().agree("test", String::new()).expect("both ranks");
        fake.behave("connection");
        let begin = Instant::now();
        while rank.rank().peers.ended().is_none() {
            assert!(begin.elapsed() < LIMIT, "no end");
            thread::sleep(JOINING);
        }
        let ended = ended_soon(&*rank.rank().peers).expect("an end").to_string();
        assert!(ended.contains("remote process exited"), "{ended}");
        drop(collectives);
        Ok(())
    });
}
