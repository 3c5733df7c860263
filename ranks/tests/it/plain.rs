//! Groups whose ranks all behave.

use std::net::TcpListener;
use std::thread;

use gpu_tuned_ranks::{Group, Launch, Launcher, Limits, Terms};

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn launch(rank: usize, world_size: usize, port: u16) -> Launch {
    Launch {
        rank,
        world_size,
        local_rank: rank,
        local_world_size: Some(world_size),
        address: "127.0.0.1".to_owned(),
        port,
        secret: None,
        launcher: Launcher::Torch,
    }
}

#[test]
fn ranks_exchange_messages() {
    for world_size in 1..=4 {
        let port = free_port();
        let ranks: Vec<_> = (0..world_size)
            .map(|rank| {
                thread::spawn(move || {
                    let terms = Terms::default().same("version", "1").distinct_on_host("device", rank.to_string());
                    let group = Group::join(&launch(rank, world_size, port), terms, Limits::default()).unwrap();
                    group.agree("step", &[7]).unwrap();
                    group.barrier().unwrap();
                    assert_eq!(group.broadcast(vec![rank as u8; 300_000]).unwrap(), vec![0; 300_000]);
                    let sum = group.sum(vec![0.1 * rank as f32; 1000]).unwrap();
                    group.finish().unwrap();
                    sum
                })
            })
            .collect();
        let sums: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        let expected = (0..world_size).fold(0.0, |sum, rank| sum + 0.1 * rank as f32);
        assert!(sums.iter().all(|sum| *sum == vec![expected; 1000]));
    }
}
