//! Groups for tests.

use std::net::TcpListener;
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gpu_tuned_ranks::{Ended, Group, JoinError, Launch, Launcher, Limits, Secret, Terms};

/// Returns a port that was free a moment ago, and that Linux gives to no client meanwhile.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at one time have numbers next to each other, and take fewer than 97 ports each.
    let first = u16::try_from(process::id().wrapping_mul(97) % 9000).unwrap();
    let mut ports = (0..9000).map(|_| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 9000);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

/// Returns the launch of one of several ranks on this host.
pub(crate) fn launch(rank: usize, world_size: usize, port: u16) -> Launch {
    Launch {
        rank,
        world_size,
        local_rank: rank,
        local_world_size: Some(world_size),
        address: "127.0.0.1".to_owned(),
        port,
        secret: Some(Secret::new("a secret of the tests")),
        run: None,
        launcher: Launcher::Torch,
    }
}

/// Returns limits for tests with ranks in one process, which do not end it.
pub(crate) fn limits() -> Limits {
    let (join, uneven, grace) = (Duration::from_mins(1), Duration::from_secs(1), Duration::ZERO);
    Limits { join, uneven, grace, ..Limits::default() }.with_exit_hook(|_| ())
}

/// Joins a group as one of several ranks.
pub(crate) fn join(launch: &Launch) -> Result<Group, JoinError> {
    Group::join(launch, Terms::default(), limits())
}

/// Runs a function as each of several ranks, on threads, and returns the results in the order of ranks.
pub(crate) fn run<T: Send + 'static>(
    world_size: usize,
    body: impl Fn(Group, Receiver<Ended>) -> T + Clone + Send + 'static,
) -> Vec<thread::Result<T>> {
    run_within(&limits(), world_size, body)
}

/// Like [`run`], with the limits of the test but for the exit hook.
pub(crate) fn run_within<T: Send + 'static>(
    limits: &Limits,
    world_size: usize,
    body: impl Fn(Group, Receiver<Ended>) -> T + Clone + Send + 'static,
) -> Vec<thread::Result<T>> {
    let port = free_port();
    let start = |rank| {
        let (body, limits) = (body.clone(), limits.clone());
        thread::spawn(move || {
            let (sender, exits) = channel();
            let limits = limits.with_exit_hook(move |ended| sender.send(ended.clone()).unwrap_or_default());
            body(Group::join(&launch(rank, world_size, port), Terms::default(), limits).unwrap(), exits)
        })
    };
    let ranks: Vec<_> = (0..world_size).map(start).collect();
    ranks.into_iter().map(JoinHandle::join).collect()
}
