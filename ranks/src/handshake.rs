//! Exchange of proofs of the secret. A stranger's bytes are compared, not parsed.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::secret::{BYTES, Nonces, Secret, Side, nonce};

/// Name and version of the protocol.
const MAGIC: [u8; 16] = *b"gpu-tuned ranks\x01";
const HEADER: usize = MAGIC.len() + BYTES;
const ACCEPTED: u8 = 1;
/// Time for the whole handshake.
const TIME: Duration = Duration::from_secs(10);

/// Reason to refuse a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("no answer within {} s", TIME.as_secs())]
    Slow,
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the other side is no rank of gpu-tuned, or one of another version")]
    Stranger,
    #[error("the secrets differ")]
    Secret,
}

/// Checks a connection to rank 0, on rank 0.
pub(crate) async fn accept(stream: &mut TcpStream, secret: &Secret) -> Result<(), Refusal> {
    let exchange = async {
        let root = nonce()?;
        stream.write_all(&header(&root)).await?;
        let member = read_header(stream).await?;
        let mut proof = [0; BYTES];
        stream.read_exact(&mut proof).await?;
        let nonces = Nonces { root, member };
        let is_right = secret.verifies(Side::Member, &nonces, &proof);
        let answer = if is_right { secret.prove(Side::Root, &nonces) } else { [0; BYTES] };
        stream.write_all(&[u8::from(is_right)]).await?;
        stream.write_all(&answer).await?;
        if is_right { Ok(()) } else { Err(Refusal::Secret) }
    };
    timeout(TIME, exchange).await.unwrap_or(Err(Refusal::Slow))
}

/// Checks a connection to rank 0, on another rank.
pub(crate) async fn connect(stream: &mut TcpStream, secret: &Secret) -> Result<(), Refusal> {
    let exchange = async {
        let root = read_header(stream).await?;
        let nonces = Nonces { root, member: nonce()? };
        stream.write_all(&header(&nonces.member)).await?;
        stream.write_all(&secret.prove(Side::Member, &nonces)).await?;
        let mut answer = [0; 1 + BYTES];
        stream.read_exact(&mut answer).await?;
        let is_right = answer[0] == ACCEPTED && secret.verifies(Side::Root, &nonces, &answer[1..]);
        if is_right { Ok(()) } else { Err(Refusal::Secret) }
    };
    timeout(TIME, exchange).await.unwrap_or(Err(Refusal::Slow))
}

fn header(nonce: &[u8; BYTES]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..MAGIC.len()].copy_from_slice(&MAGIC);
    header[MAGIC.len()..].copy_from_slice(nonce);
    header
}

async fn read_header(stream: &mut TcpStream) -> Result<[u8; BYTES], Refusal> {
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic).await?;
    if magic != MAGIC {
        return Err(Refusal::Stranger);
    }
    let mut nonce = [0; BYTES];
    stream.read_exact(&mut nonce).await?;
    Ok(nonce)
}
