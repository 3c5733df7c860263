//! Many ranks in one process, with real connections.
//!
//! `SIMULATED_RANKS` sets their number.

use std::env;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_ranks::{Ended, Group, Limits, Terms};

use crate::support::{free_port, launch, limits};

/// Exchanges before a rank fails.
const EXCHANGES: u32 = 10;

#[test]
fn a_thousand_ranks_form_exchange_and_end() {
    let ranks = env::var("SIMULATED_RANKS").map_or(1024, |ranks| ranks.parse().unwrap());
    let port = free_port();
    let begin = Instant::now();
    let (sender, receiver) = channel();
    let start = |rank: usize| {
        let sender = sender.clone();
        let body = move || {
            // On a busy machine, threads of ranks wait for each other.
            let (join, silence) = (Duration::from_mins(5), Duration::from_mins(5));
            let limits = Limits { join, silence, ..limits() };
            let terms = Terms::default().same("version", "1").distinct_on_host("GPU", rank.to_string());
            let group = Group::join(&launch(rank, ranks, port), terms, limits).unwrap();
            group.barrier().unwrap();
            let formed = begin.elapsed();
            let exchanging = Instant::now();
            for _ in 0..EXCHANGES {
                assert_eq!(group.sum(vec![1.0; 100]).unwrap(), vec![ranks as f32; 100]);
            }
            let exchanged = exchanging.elapsed();
            // Some heartbeats.
            thread::sleep(Duration::from_secs(3));
            assert_eq!(group.ended(), None);
            // The rank that fails may come first out of the barrier, which then fails on others.
            let mut failed = None;
            let ended = group.barrier().and_then(|()| {
                if rank == ranks / 2 {
                    failed = Some(begin.elapsed());
                    group.fail("a fault of the test");
                }
                group.barrier()
            });
            let ended = ended.unwrap_err();
            assert!(matches!(ended, Ended::Failed { rank, .. } if rank == ranks / 2), "{ended}");
            sender.send((formed, exchanged, begin.elapsed(), failed)).unwrap();
        };
        thread::Builder::new().stack_size(256 * 1024).spawn(body).unwrap()
    };
    let threads: Vec<_> = (0..ranks).map(start).collect();
    drop(sender);
    for thread in threads {
        thread.join().unwrap();
    }
    let times: Vec<_> = receiver.iter().collect();
    assert_eq!(times.len(), ranks);
    let failed = times.iter().find_map(|time| time.3).unwrap();
    let formed = times.iter().map(|time| time.0).max().unwrap();
    let exchanged = times.iter().map(|time| time.1).max().unwrap();
    let noticed = times.iter().map(|time| time.2.saturating_sub(failed)).max().unwrap();
    println!(
        "{ranks} ranks: formed in {formed:.1?}, {EXCHANGES} sums in {exchanged:.1?}, failure noticed in {noticed:.1?}"
    );
}
