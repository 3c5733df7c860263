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
        let count = (values.len() as u64).to_le_bytes();
        for part in values.chunks_mut(values_at_once) {
            let own = [count.to_vec(), part.iter().flat_map(|value| value.to_le_bytes()).collect()].concat();
            let reply = self.meet_or_end("sum", own, |messages| {
                let parts = || messages.iter().map(|message| message.split_first_chunk().unwrap_or((&[0; 8], &[])));
                self.compare("number of values", parts().map(|(count, _)| u64::from_le_bytes(*count).to_string()))?;
                Ok(add(parts().map(|(_, values)| values)))
            })?;
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

    /// Checks that all ranks have the same value of something, such as a hash of the model's shape.
    ///
    /// # Errors
    /// If the group has ended, or ranks differ: this ends the group, and names the first rank that differs from rank 0.
    pub fn agree(&self, name: &str, value: &str) -> Result<(), Ended> {
        let reply = |messages: Vec<Vec<u8>>| {
            self.compare(name, messages.iter().map(|value| String::from_utf8_lossy(value).into_owned()))?;
            Ok(Vec::new())
        };
        self.meet_or_end("agree", value.as_bytes().to_vec(), reply).map(drop)
    }

    /// Compares values of all ranks, in the order of ranks, with that of rank 0.
    fn compare(&self, name: &str, mut values: impl Iterator<Item = String>) -> Result<(), Ended> {
        let expected = values.next().unwrap_or_default();
        let different = values.zip(1..).find(|(value, _)| *value != expected);
        let Some((value, rank)) = different else { return Ok(()) };
        let (name, host) = (name.to_owned(), self.host_of(rank));
        Err(Ended::Differs { name, rank, host, value, expected })
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}

/// Adds up values of the same number, in their order.
fn add<'a>(mut messages: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut sums: Vec<f32> = messages.next().map(|first| floats(first).collect()).unwrap_or_default();
    for message in messages {
        sums.iter_mut().zip(floats(message)).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}
