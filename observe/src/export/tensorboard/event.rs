//! Scalars in TensorBoard's protocol: parts of its `event.proto` and `summary.proto`, in framed records (TFRecord).

use prost::Message;

/// An event of a run.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    /// Seconds since 1970.
    #[prost(double, tag = "1")]
    pub wall_time: f64,
    #[prost(int64, tag = "2")]
    pub step: i64,
    /// Version of the format, in the first event of a file.
    #[prost(string, optional, tag = "3")]
    pub file_version: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub summary: Option<Summary>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub value: Vec<Scalar>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Scalar {
    #[prost(string, tag = "1")]
    pub tag: String,
    /// Optional, so that zero is written too: the field is one of several kinds of values.
    #[prost(float, optional, tag = "2")]
    pub simple_value: Option<f32>,
}

impl Event {
    /// Frames the event for a file: its length, the length's checksum, the event, and its checksum.
    pub(super) fn framed(&self) -> Vec<u8> {
        let event = self.encode_to_vec();
        let length = (event.len() as u64).to_le_bytes();
        let mut framed = Vec::with_capacity(event.len() + 16);
        framed.extend(length);
        framed.extend(masked_checksum(&length).to_le_bytes());
        framed.extend(&event);
        framed.extend(masked_checksum(&event).to_le_bytes());
        framed
    }
}

/// CRC-32C, rotated and shifted by a constant, as TFRecord requires.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::{Event, Scalar, Summary};

    /// Expected bytes: the same events by TensorBoard 2.21, `Event(...)` of `event_pb2` written by its `RecordWriter`.
    #[test]
    fn events_equal_those_of_tensorboards_writer() {
        let first = Event { wall_time: 1.5, step: 0, file_version: Some("brain.Event:2".to_owned()), summary: None };
        let scalar = |tag: &str, value| Scalar { tag: tag.to_owned(), simple_value: Some(value) };
        let summary = Summary { value: vec![scalar("train/loss", 0.25), scalar("zero", 0.0)] };
        let second = Event { wall_time: 1_795_347_200.5, step: 300, file_version: None, summary: Some(summary) };
        let bytes: Vec<u8> = [first, second].iter().flat_map(Event::framed).collect();
        let written = WRITTEN_BY_TENSORBOARD.as_bytes().chunks(2);
        let written = written.map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap());
        assert_eq!(bytes, written.collect::<Vec<_>>());
    }

    const WRITTEN_BY_TENSORBOARD: &str = "\
        1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c2e00000000000000\
        c5cb57fa09000020c0b4c0da4110ac022a200a110a0a747261696e2f6c6f7373150000803e0a0b0a047a65726f150000\
        00000cec4293";
}
