//! Text of a file with uniform line endings for edits.

use gpu_tuned_core::source::{FileError, Source};

const BOM: char = '\u{feff}';

/// A text with `\n` as line ending, and the style of its file.
#[derive(Clone, Debug, Default)]
pub struct Text {
    /// The text, without a byte-order mark.
    pub lines: String,
    style: Style,
}

/// Line endings and byte-order mark of a file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    crlf: bool,
    bom: bool,
}

impl Text {
    /// Splits a file into text and style.
    ///
    /// # Errors
    ///
    /// Mixed line endings, at the first different line.
    pub fn parse(file: &str, text: &str) -> Result<Self, Box<FileError>> {
        let bare = text.strip_prefix(BOM);
        let style = Style { crlf: text.contains("\r\n"), bom: bare.is_some() };
        let bare = bare.unwrap_or(text);
        let lines = bare.replace("\r\n", "\n");
        let text = Self { lines, style };
        if text.written() == format!("{}{bare}", if style.bom { "\u{feff}" } else { "" }) {
            return Ok(text);
        }
        let line = bare.split_inclusive('\n').position(|line| !line.ends_with("\r\n")).unwrap_or_default();
        let offset = text.lines.split_inclusive('\n').take(line).map(str::len).sum::<usize>();
        let message =
            "some lines end in CRLF and this one does not; make all line endings alike, and run the command again";
        Err(Box::new(Source { file, text: &text.lines }.error(&(offset..offset), message)))
    }

    /// The text as the file stores it.
    pub fn written(&self) -> String {
        self.style.apply(&self.lines)
    }

    /// Another text in the same style.
    #[must_use]
    pub fn with(&self, lines: String) -> Self {
        Self { lines, style: self.style }
    }

    /// The style of new files beside this one: without a byte-order mark.
    pub const fn style(&self) -> Style {
        Style { crlf: self.style.crlf, bom: false }
    }
}

impl Style {
    /// A text as a file of this style stores it.
    pub fn apply(self, lines: &str) -> String {
        let lines = if self.crlf { lines.replace('\n', "\r\n") } else { lines.to_owned() };
        if self.bom { format!("{BOM}{lines}") } else { lines }
    }
}
