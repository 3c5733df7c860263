//! Bytes that a rank sends behind its handshake: rank 0 closes the connection, and goes on waiting or ends with an error.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use gpu_tuned_ranks::{Group, Launch, Launcher, Limits, Terms};
use hmac::{Hmac, Mac};
use libfuzzer_sys::fuzz_target;
use sha2::Sha256;

/// Bytes of a header: the first 40 are the same on all ranks; a rank and a nonce follow.
const HEADER: usize = 80;
const COMMON: usize = 40;

/// Keeps a group open on one port: a rank may end it, and another follows.
static PORT: LazyLock<u16> = LazyLock::new(|| {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let launch = Launch {
        rank: 0,
        world_size: 3,
        local_rank: 0,
        local_world_size: Some(3),
        address: "127.0.0.1".to_owned(),
        port,
        secret: None,
        run: None,
        launcher: Launcher::Torch,
    };
    thread::spawn(move || {
        loop {
            let joined = Group::join(&launch, Terms::default(), Limits::default());
            assert!(joined.is_err_and(|error| !error.to_string().is_empty()), "two ranks are missing");
        }
    });
    port
});

fn connect() -> TcpStream {
    (0..1000)
        .find_map(|_| {
            let stream = TcpStream::connect(("127.0.0.1", *PORT)).ok();
            if stream.is_none() {
                thread::sleep(Duration::from_millis(10));
            }
            stream
        })
        .expect("rank 0 listens")
}

/// Proves the empty secret, as rank 1 does.
fn shake_hands(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut root = [0; HEADER];
    stream.read_exact(&mut root)?;
    let mut own = [1; HEADER];
    own[..COMMON].copy_from_slice(&root[..COMMON]);
    let mut mac = Hmac::<Sha256>::new_from_slice(b"").expect("any key");
    for part in [&[1][..], &root, &own] {
        mac.update(part);
    }
    stream.write_all(&own)?;
    stream.write_all(&mac.finalize().into_bytes())?;
    let mut answer = [0; 33];
    stream.read_exact(&mut answer)?;
    assert_eq!(answer[0], 1, "the proof is right");
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let mut stream = connect();
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    // Rank 0 may close the connection first.
    let sent =
        shake_hands(&mut stream).and_then(|()| stream.write_all(bytes)).and_then(|()| stream.shutdown(Shutdown::Write));
    if sent.is_ok() {
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "rank 0 leaves the connection open");
        }
    }
});
