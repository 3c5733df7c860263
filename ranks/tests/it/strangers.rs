//! Connections of programs that are no ranks.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use gpu_tuned_ranks::Group;

use crate::support::{free_port, join, launch};

/// More than rank 0 keeps in their handshakes.
const SLOW: usize = 300;

/// Connects to rank 0, and sends what no rank would.
fn disturb(port: u16, slow: usize) -> Vec<TcpStream> {
    let connect = || {
        // Rank 0 may not listen yet.
        let mut attempts = (0..100).map(|_| {
            TcpStream::connect(("127.0.0.1", port)).inspect_err(|_| thread::sleep(Duration::from_millis(200)))
        });
        attempts.find_map(Result::ok).unwrap()
    };
    drop(connect());
    let messages: [&[u8]; 3] =
        [b"GET / HTTP/1.1\r\nHost: rank-0\r\n\r\n", &vec![0xff; 100_000], b"gpu-tuned ranks\x01"];
    for message in messages {
        // Rank 0 may close the connection meanwhile.
        let _ = connect().write_all(message);
    }
    // One byte each, and then nothing.
    let slow = (0..slow).map(|_| {
        let mut stream = connect();
        stream.write_all(b"g").unwrap();
        stream
    });
    slow.collect()
}

fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // Reads the header of rank 0, and then the end.
    stream
        .read_to_end(&mut Vec::new())
        .map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |_| true)
}

#[test]
fn strangers_disturb_no_group() {
    let port = free_port();
    let root = thread::spawn(move || join(&launch(0, 3, port)).unwrap());
    let first = thread::spawn(move || join(&launch(1, 3, port)).unwrap());
    thread::sleep(Duration::from_secs(1));
    let slow = disturb(port, SLOW);
    let second = thread::spawn(move || join(&launch(2, 3, port)).unwrap());
    let groups = [root, first, second].map(|rank| rank.join().unwrap());
    let late = disturb(port, 5);
    let exchange = |group: Group| {
        thread::spawn(move || {
            for _ in 0..20 {
                assert_eq!(group.sum(vec![1.0; 100]).unwrap(), [3.0; 100]);
            }
            group.finish().unwrap();
        })
    };
    for rank in groups.map(exchange) {
        rank.join().unwrap();
    }
    assert!(slow.iter().chain(&late).all(is_closed));
}
