//! Proof of the run's secret, which is never sent.

use std::fmt;

#[cfg(feature = "group")]
use hmac::{Hmac, Mac as _};
#[cfg(feature = "group")]
use sha2::Sha256;

/// Bytes of a proof.
#[cfg(feature = "group")]
pub(crate) const PROOF: usize = 32;

/// Secret that all ranks of a run share. `Debug` hides it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text of a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

#[cfg(feature = "group")]
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

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

/// Side of a connection that proves the secret.
#[cfg(feature = "group")]
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Root = 0,
    Member = 1,
}

/// Returns random bytes from the operating system.
#[cfg(feature = "group")]
pub(crate) fn nonce() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes)
}
