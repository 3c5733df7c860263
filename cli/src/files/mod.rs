//! Files that commands read and write.

mod all;
mod change;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_core::atomic_file;

use crate::error::Error;
use crate::stdio::is_standard;
pub(crate) use all::write_all;
pub(crate) use change::{Change, colored};

/// Refuses to read the standard input twice.
pub(crate) fn once<'a>(inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Error> {
    let count = inputs.into_iter().filter(|path| is_standard(path)).count();
    if count > 1 { Err(Error::TwiceStandardInput) } else { Ok(()) }
}

/// Refuses to write an output to the standard output together with JSON.
pub(crate) fn alone(output: &Path, is_json: bool) -> Result<(), Error> {
    if is_standard(output) && is_json { Err(Error::NotAlone) } else { Ok(()) }
}

/// Refuses to overwrite an input.
pub(crate) fn distinct(input: &Path, output: &Path) -> Result<(), Error> {
    let same =
        || fs::canonicalize(input).is_ok_and(|input| fs::canonicalize(output).is_ok_and(|output| input == output));
    if !is_standard(input) && !is_standard(output) && same() {
        return Err(Error::SameFile { path: output.to_owned() });
    }
    Ok(())
}

/// Writes a file completely or not at all. Pipes and devices are written directly.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let written = atomic_file::replace_with(path, |file| {
        let mut buffer = io::BufWriter::new(file);
        write(&mut buffer)?;
        buffer.flush()
    });
    written.map_err(|source| Error::Write { path: path.to_owned(), source })
}
