//! Output of ranks: whole lines, each with the number of its rank.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::process::Child;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};

use crate::output::{FAINT, styled};
use crate::process::Readers;

/// Longest part of a line that is printed at once, in bytes. A longer line is printed in parts, so that memory is bounded.
const LONGEST: u64 = 64 << 10;

/// Starts to copy the output and the errors of a rank. With `to_stderr` both go to standard error.
pub(super) fn copy(child: &mut Child, rank: u32, to_stderr: bool, readers: &mut Readers) -> io::Result<()> {
    let on_stderr = prefix(rank, &io::stderr());
    if let Some(errors) = child.stderr.take() {
        let prefix = on_stderr.clone();
        readers.add(errors, move |errors| lines(errors, &prefix, io::stderr()))?;
    }
    let Some(out) = child.stdout.take() else { return Ok(()) };
    let prefix = if to_stderr { on_stderr } else { prefix(rank, &io::stdout()) };
    let copied =
        move |out| if to_stderr { lines(out, &prefix, io::stderr()) } else { lines(out, &prefix, io::stdout()) };
    readers.add(out, copied)
}

fn has_colors(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

fn prefix(rank: u32, stream: &impl RawStream) -> String {
    let prefix = format!("[{rank}]");
    (if has_colors(stream) { styled(FAINT, prefix) } else { prefix }) + " "
}

/// Variable that keeps the colors of programs whose output goes through pipes, or leaves colors out.
pub(super) fn color_variable() -> Option<(&'static str, &'static str)> {
    if has_colors(&io::stdout()) && has_colors(&io::stderr()) {
        Some(("CLICOLOR_FORCE", "1"))
    } else {
        (ColorChoice::global() == ColorChoice::Never).then_some(("NO_COLOR", "1"))
    }
}

/// Copies lines with a prefix, until the destination is closed: then the rank finds its pipe closed, too.
fn lines(out: impl Read, prefix: &str, mut to: impl Write) -> io::Result<()> {
    let mut out = BufReader::new(out);
    let mut line = Vec::new();
    loop {
        line.extend_from_slice(prefix.as_bytes());
        if out.by_ref().take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // One call, so that lines of several ranks do not mix.
        if to.write_all(&line).is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return Ok(());
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, lines};

    fn copied(text: &[u8]) -> Vec<u8> {
        let mut copied = Vec::new();
        lines(text, "[3] ", &mut copied).expect("memory can be read");
        copied
    }

    #[test]
    fn every_line_has_its_rank_and_an_end() {
        assert_eq!(copied(b""), b"");
        assert_eq!(copied(b"a\n\n\xff\r\nno newline"), b"[3] a\n[3] \n[3] \xff\r\n[3] no newline\n");
    }

    #[test]
    fn lines_without_an_end_are_printed_in_parts() {
        let longest = usize::try_from(LONGEST).expect("a length");
        let text = copied(&vec![b'x'; 2 * longest + 5]);
        let lengths: Vec<_> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).collect();
        assert_eq!(lengths, [longest + 5, longest + 5, 10]);
    }
}
