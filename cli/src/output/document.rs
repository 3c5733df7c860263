//! JSON documents: each is an object with a version, in which figures have names with units.

use std::io::{self, Write};

use gpu_tuned_core::printable::for_json;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

/// Version of the documents. A key that is renamed, removed or given another meaning raises it; a new key does not.
pub(crate) const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a, T> {
    schema_version: u32,
    command: &'a str,
    #[serde(flatten)]
    body: T,
    notes: &'a [String],
}

/// Formats the result of a command as indented JSON.
pub(super) fn document(command: &str, body: &impl Serialize, notes: &[String]) -> String {
    let document = Document { schema_version: SCHEMA_VERSION, command, body, notes };
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, WithUnits::new(command));
    document.serialize(&mut serializer).expect("BUG: reports are always JSON");
    for_json(&String::from_utf8(text).expect("BUG: JSON is UTF-8")).into_owned() + "\n"
}

/// Units of keys whose Rust types, not their names, have one: objects, suffix, keys. An object has the key under which it
/// occurs; the outermost one has the command's name.
const UNITS: [(&str, &str, &str); 9] = [
    (
        "memory",
        "_bytes",
        "weights frozen_weights weight_copies gradients accumulated_gradients optimizer_state exchange activations scratch \
         inputs allocator cuda_graph kernels context margin available headroom expected found",
    ),
    ("explain", "_bytes", "needed budget"),
    (
        "device limits reading",
        "_bytes",
        "memory_total memory_available memory_reserved memory_free available headroom context training \
         largest_allocation l2_cache",
    ),
    ("sample", "_bytes", "activations checkpointed_activations scratch largest_tensor input"),
    ("precisions considered does_not_fit", "_bytes", "memory missing"),
    (
        "parameter unpin checkpointing keys take_gpu free_gpu raise_limit larger_gpu",
        "_bytes",
        "most free total limit needed",
    ),
    ("device", "_tflops", "rates"),
    ("filling too_small larger", "_share", "utilization of_peak"),
    ("slower", "_share", "by"),
];

/// Indentation as usual, and keys with units.
struct WithUnits {
    pretty: PrettyFormatter<'static>,
    /// Keys under which the open objects and arrays occur.
    open: Vec<String>,
    /// The last key.
    key: String,
    is_in_key: bool,
}

impl WithUnits {
    fn new(outermost: &str) -> Self {
        let (pretty, key) = (PrettyFormatter::new(), outermost.to_owned());
        Self { pretty, open: Vec::new(), key, is_in_key: false }
    }

    fn open(&mut self) {
        self.open.push(self.key.clone());
    }

    fn close(&mut self) {
        self.open.pop();
    }

    /// Suffix of the last key.
    fn unit(&self) -> &'static str {
        let object = self.open.last().map_or("", String::as_str);
        let has = |words: &str, word: &str| words.split(' ').any(|one| one == word);
        let unit = UNITS.iter().find(|(objects, _, keys)| has(objects, object) && has(keys, &self.key));
        unit.map_or("", |(_, suffix, _)| suffix)
    }
}

impl Formatter for WithUnits {
    fn begin_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open();
        self.pretty.begin_array(to)
    }

    fn end_array<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close();
        self.pretty.end_array(to)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, to: &mut W, is_first: bool) -> io::Result<()> {
        self.key = self.open.last().cloned().unwrap_or_default();
        self.pretty.begin_array_value(to, is_first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.pretty.end_array_value(to)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.open();
        self.pretty.begin_object(to)
    }

    fn end_object<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.close();
        self.pretty.end_object(to)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, to: &mut W, is_first: bool) -> io::Result<()> {
        self.key.clear();
        self.is_in_key = true;
        self.pretty.begin_object_key(to, is_first)
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, to: &mut W, fragment: &str) -> io::Result<()> {
        if self.is_in_key {
            self.key.push_str(fragment);
        }
        to.write_all(fragment.as_bytes())
    }

    fn end_string<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        if self.is_in_key {
            to.write_all(self.unit().as_bytes())?;
        }
        to.write_all(b"\"")
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.is_in_key = false;
        self.pretty.end_object_key(to)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.pretty.begin_object_value(to)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.pretty.end_object_value(to)
    }
}
