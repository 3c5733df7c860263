//! Exchange of versions and of proofs of the secret, which is never sent. A stranger's bytes are compared, not parsed.

use std::io;
use std::time::Duration;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::users;
use crate::launch::Secret;

/// First bytes of both sides. The handshake stays the same in all versions.
const MAGIC: [u8; 16] = *b"gpu-tuned ranks\x01";
/// Version of this crate: the calls after the handshake may differ between versions.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
const ACCEPTED: u8 = 1;
/// Time for the whole handshake.
const TIME: Duration = Duration::from_secs(5);

/// Reason to refuse a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no answer within {} s", TIME.as_secs())]
    Slow,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the other side is no rank of gpu-tuned")]
    Stranger,
    #[error("the secrets differ")]
    Secret,
    /// Without a secret, only processes of one user form a group.
    #[error("{0}, and there is no secret")]
    User(String),
    /// The other side has the secret, but runs another version.
    #[error("rank {rank} runs gpu-tuned {version}")]
    Version { rank: usize, version: String },
}

/// Self-description of one side, of a fixed size.
struct Header([u8; Self::BYTES]);

impl Header {
    const RANK: usize = MAGIC.len() + 24;
    const NONCE: usize = Self::RANK + 8;
    const BYTES: usize = Self::NONCE + 32;

    fn new(rank: usize, version: &str) -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        // A longer version is cut.
        bytes[MAGIC.len()..Self::RANK].iter_mut().zip(version.bytes()).for_each(|(byte, value)| *byte = value);
        bytes[Self::RANK..Self::NONCE].copy_from_slice(&(rank as u64).to_le_bytes());
        bytes[Self::NONCE..].copy_from_slice(&nonce()?);
        Ok(Self(bytes))
    }

    async fn read(stream: &mut TcpStream) -> Result<Self, Refusal> {
        let mut bytes = [0; Self::BYTES];
        stream.read_exact(&mut bytes[..MAGIC.len()]).await?;
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(Refusal::Stranger);
        }
        stream.read_exact(&mut bytes[MAGIC.len()..]).await?;
        Ok(Self(bytes))
    }

    fn version(&self) -> &[u8] {
        &self.0[MAGIC.len()..Self::RANK]
    }

    /// Compares the version of the other side with that of this side.
    fn compare(&self, own: &Self) -> Result<(), Refusal> {
        if self.version() == own.version() {
            return Ok(());
        }
        let rank = self.0[Self::RANK..Self::NONCE].iter().rev().fold(0, |rank, byte| rank << 8 | usize::from(*byte));
        let version = String::from_utf8_lossy(self.version()).trim_end_matches('\0').to_owned();
        Err(Refusal::Version { rank, version })
    }
}

/// Checks a connection to rank 0, on rank 0.
pub(crate) async fn accept(stream: &mut TcpStream, secret: Option<&Secret>) -> Result<(), Refusal> {
    let secret = or_user(stream, secret);
    let exchange = async {
        let own = Header::new(0, VERSION)?;
        stream.write_all(&own.0).await?;
        // The other side compares the users, too, while the connection is open.
        let member = Header::read(stream).await;
        let (secret, member) = (secret?, member?);
        let mut proof = [0; PROOF];
        stream.read_exact(&mut proof).await?;
        let is_right = secret.verifies(Side::Member, &own.0, &member.0, &proof);
        let answer = if is_right { secret.prove(Side::Root, &own.0, &member.0) } else { [0; PROOF] };
        stream.write_all(&[u8::from(is_right)]).await?;
        stream.write_all(&answer).await?;
        if is_right { member.compare(&own) } else { Err(Refusal::Secret) }
    };
    timeout(TIME, exchange).await.unwrap_or(Err(Refusal::Slow))
}

/// Checks a connection to rank 0, on another rank, which runs this version.
pub(crate) async fn connect(
    stream: &mut TcpStream,
    secret: Option<&Secret>,
    rank: usize,
    version: &str,
) -> Result<(), Refusal> {
    let exchange = async {
        let root = Header::read(stream).await?;
        // A connection that is not accepted yet would count as one of root.
        let secret = or_user(stream, secret)?;
        let own = Header::new(rank, version)?;
        stream.write_all(&own.0).await?;
        stream.write_all(&secret.prove(Side::Member, &root.0, &own.0)).await?;
        let mut answer = [0; 1 + PROOF];
        stream.read_exact(&mut answer).await?;
        let is_right = answer[0] == ACCEPTED && secret.verifies(Side::Root, &root.0, &own.0, &answer[1..]);
        if is_right { root.compare(&own) } else { Err(Refusal::Secret) }
    };
    timeout(TIME, exchange).await.unwrap_or(Err(Refusal::Slow))
}

/// Returns the secret. Without one, checks that the other side is a process of this user, and returns an empty secret.
fn or_user(stream: &TcpStream, secret: Option<&Secret>) -> Result<Secret, Refusal> {
    if let Some(secret) = secret {
        return Ok(secret.clone());
    }
    users::check_peer(stream).map_err(Refusal::User)?;
    Ok(Secret::default())
}

/// Bytes of a proof.
pub(crate) const PROOF: usize = 32;

impl Secret {
    /// Returns the proof that its maker has the secret, for the headers of one connection.
    pub(crate) fn prove(&self, side: Side, root: &[u8], member: &[u8]) -> [u8; PROOF] {
        self.mac(side, root, member).finalize().into_bytes().into()
    }

    /// Checks a proof in constant time.
    pub(crate) fn verifies(&self, side: Side, root: &[u8], member: &[u8], proof: &[u8]) -> bool {
        self.mac(side, root, member).verify_slice(proof).is_ok()
    }

    fn mac(&self, side: Side, root: &[u8], member: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).expect("BUG: HMAC refuses a key");
        mac.update(&[side as u8]);
        mac.update(root);
        mac.update(member);
        mac
    }
}

/// Side of a connection that proves the secret.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Root = 0,
    Member = 1,
}

/// Returns random bytes from the operating system.
pub(crate) fn nonce() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
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
            tokio::join!(accept(&mut root, Some(&own)), connect(&mut member, Some(&other), 3, version))
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
}
