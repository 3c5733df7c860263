//! Ranks as threads of the test program, each with a connection of its own.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use gpu_tuned::Options;
use gpu_tuned::ranks::{Launch, Launcher, Limits};

/// Short, so that short runs report their steps.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Runs `body` as each of so many ranks of one host, and returns the results rank by rank. `body` gets its rank, and a
/// function that makes a start that of the rank.
pub(crate) fn launched<T: Send>(ranks: usize, body: impl Fn(usize, &dyn Fn(Options) -> Options) -> T + Sync) -> Vec<T> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let launch = |rank| Launch {
        rank,
        world_size: ranks,
        local_rank: rank,
        local_world_size: Some(ranks),
        address: "127.0.0.1".to_owned(),
        port,
        secret: None,
        run: None,
        launcher: Launcher::Torch,
    };
    thread::scope(|scope| {
        let (body, launch) = (&body, &launch);
        // The test program outlives a group of ranks that ends.
        let limits = || Limits { heartbeat: HEARTBEAT, ..Limits::default() }.with_exit_hook(|_| {});
        let as_rank = move |rank| move |options: Options| options.launched_as(launch(rank)).rank_limits(limits());
        let run = |rank| scope.spawn(move || body(rank, &as_rank(rank)));
        let threads: Vec<_> = (0..ranks).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
    })
}
