//! Exchanges on top of [`Group::meet`].

use super::Group;
use crate::ended::Ended;

/// Bytes of all ranks' messages that rank 0 keeps at one time during a sum.
const GATHERED: usize = 64 * 1024 * 1024;
/// Fewest values of a sum in one exchange.
const LEAST_VALUES: usize = 1024;

impl Group {
    /// Adds up the values of all ranks, in the order of ranks. All ranks get the same bits.
    ///
    /// # Errors
    /// If the group has ended, or ranks have different numbers of values.
    pub fn sum(&self, mut values: Vec<f32>) -> Result<Vec<f32>, Ended> {
        let values_at_once = (GATHERED / size_of::<f32>() / self.world_size()).max(LEAST_VALUES);
        self.agree("number of values", &values.len().to_be_bytes())?;
        for part in values.chunks_mut(values_at_once) {
            let own = part.iter().flat_map(|value| value.to_le_bytes()).collect();
            let reply = self.meet("sum", own, |messages| Ok(add(&messages)))?;
            part.iter_mut().zip(floats(&reply)).for_each(|(value, sum)| *value = sum);
        }
        Ok(values)
    }

    /// Returns rank 0's message on all ranks.
    ///
    /// # Errors
    /// If the group has ended.
    pub fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, Ended> {
        let own = if self.rank() == 0 { own } else { Vec::new() };
        self.meet("broadcast", own, |messages| Ok(messages.into_iter().next().unwrap_or_default()))
    }

    /// Waits until all ranks have arrived.
    ///
    /// # Errors
    /// If the group has ended.
    pub fn barrier(&self) -> Result<(), Ended> {
        self.meet("barrier", Vec::new(), |_| Ok(Vec::new())).map(drop)
    }

    /// Checks that all ranks have the same digest of something, such as the model's parameters.
    ///
    /// # Errors
    /// If the group has ended, or ranks differ: this ends the group, and names the first rank that differs from rank 0.
    pub fn agree(&self, name: &str, digest: &[u8]) -> Result<(), Ended> {
        // The host is for the error.
        let own = [self.host().as_bytes(), &[0], digest].concat();
        let expected = digest.to_vec();
        let reply = move |messages: Vec<Vec<u8>>| {
            let parts = messages.iter().map(|message| {
                let end = message.iter().position(|byte| *byte == 0).unwrap_or(message.len());
                (&message[..end], message.get(end + 1..).unwrap_or_default())
            });
            let different = parts.enumerate().find(|(_, (_, digest))| *digest != expected);
            let Some((rank, (host, digest))) = different else { return Ok(Vec::new()) };
            Err(Ended::Differs {
                name: name.to_owned(),
                rank,
                host: String::from_utf8_lossy(host).into_owned(),
                value: hexadecimal(digest),
                expected: hexadecimal(&expected),
            })
        };
        self.meet_or_end("agree", own, reply).map(drop)
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

/// Adds up messages of the same length, in their order.
fn add(messages: &[Vec<u8>]) -> Vec<u8> {
    let mut sums: Vec<f32> = messages.first().map(|first| floats(first).collect()).unwrap_or_default();
    for message in messages.iter().skip(1) {
        for (sum, value) in sums.iter_mut().zip(floats(message)) {
            *sum += value;
        }
    }
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}
