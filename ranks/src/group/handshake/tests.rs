use tokio::net::TcpListener;

use super::super::{start_runtime, wait};
use super::*;

/// Returns the results of both sides: of rank 0 and of rank 3.
fn shake(secret: &'static str, version: &'static str) -> (Result<(), Refusal>, Result<(), Refusal>) {
    let handle = start_runtime().unwrap();
    wait(&handle, async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut member = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut root = listener.accept().await.unwrap().0;
        let (own, other) = (Secret::new("word"), Secret::new(secret));
        tokio::join!(accept(&mut root, &own), connect(&mut member, &other, 3, version))
    })
}

#[test]
fn equal_secrets_and_versions_pass() {
    assert!(matches!(shake("word", VERSION), (Ok(()), Ok(()))));
}

#[test]
fn other_secrets_are_refused_on_both_sides() {
    assert!(matches!(shake("sword", VERSION), (Err(Refusal::Secret), Err(Refusal::Secret))));
    // A stranger learns nothing of versions.
    assert!(matches!(shake("sword", "9.9.9"), (Err(Refusal::Secret), Err(Refusal::Secret))));
}

#[test]
fn other_versions_are_named_on_both_sides() {
    let (root, member) = shake("word", "9.9.9-a-long-name-of-a-version");
    let Err(Refusal::Version { rank: 3, version }) = root else { panic!("{root:?}") };
    assert_eq!(version, "9.9.9-a-long-name-of-a-v");
    let Err(Refusal::Version { rank: 0, version }) = member else { panic!("{member:?}") };
    assert_eq!(version, VERSION);
}
