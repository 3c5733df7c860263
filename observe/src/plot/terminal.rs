//! Pictures of terminals.

use std::fmt::{self, Write as _};

use super::{drawn, escaped, open};

/// Style of a line of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Output.
    #[default]
    Plain,
    /// A typed command.
    Command,
    /// A line that a diff adds.
    Added,
    /// Text of less weight.
    Faint,
    /// A heading or a bar over the whole width.
    Strong,
}

impl Style {
    const fn class(self) -> &'static str {
        match self {
            Self::Plain => "cell",
            Self::Command | Self::Strong => "cell strong",
            Self::Added => "cell added",
            Self::Faint => "cell faint",
        }
    }
}

/// Width and height of a character, and the size of the font.
const CELL: [f64; 2] = [7.4, 17.0];
const MARGIN: f64 = 14.0;
/// Height of the title bar.
const BAR: f64 = 30.0;

/// Draws lines of text as an SVG file with light and dark colors.
///
/// Block elements are rectangles, because fonts draw them with gaps. Each line has a fixed length, because fonts differ in width.
pub fn terminal(title: &str, lines: &[(Style, String)]) -> String {
    drawn(|text| write(text, title, lines))
}

fn write(text: &mut String, title: &str, lines: &[(Style, String)]) -> fmt::Result {
    let columns = lines.iter().map(|(_, line)| line.chars().count()).max().unwrap_or_default().max(1);
    let [width, height] = [columns as f64 * CELL[0] + 2.0 * MARGIN, BAR + lines.len() as f64 * CELL[1] + MARGIN];
    let [width, height] = [width.ceil(), height.ceil()];
    open(text, [width, height], title)?;
    let (middle, title, [width, height]) = (width / 2.0, escaped(title), [width - 1.0, height - 1.0]);
    writeln!(text, "<rect class=\"edge\" x=\".5\" y=\".5\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>")?;
    writeln!(text, "<text class=\"faint\" x=\"{middle:.1}\" y=\"20\" text-anchor=\"middle\">{title}</text>")?;
    for (row, (style, line)) in lines.iter().enumerate() {
        let top = BAR + row as f64 * CELL[1];
        draw_blocks(text, line, top)?;
        draw_text(text, line, top, style.class())?;
    }
    Ok(())
}

/// Draws words, each from its column to its end.
fn draw_text(text: &mut String, line: &str, top: f64, class: &str) -> fmt::Result {
    let shown: String =
        line.chars().map(|character| if block(character).is_some() { ' ' } else { character }).collect();
    let mut column = 0;
    // Single spaces stay within a run, so that it has few elements.
    for run in shown.split("  ") {
        let trimmed = run.trim_start();
        let begin = column + run.chars().count() - trimmed.chars().count();
        let trimmed = trimmed.trim_end();
        let length = trimmed.chars().count();
        if length > 0 {
            let (x, y) = (MARGIN + begin as f64 * CELL[0], top + CELL[1] - 4.0);
            let (length, run) = (length as f64 * CELL[0], escaped(trimmed));
            writeln!(text, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\" textLength=\"{length:.1}\">{run}</text>")?;
        }
        column += run.chars().count() + 2;
    }
    Ok(())
}

/// Draws block elements, adjacent equal ones as one rectangle.
fn draw_blocks(text: &mut String, line: &str, top: f64) -> fmt::Result {
    let cells: Vec<char> = line.chars().collect();
    let mut column = 0;
    for group in cells.chunk_by(|a, b| a == b && matches!(a, '\u{2581}'..='\u{2588}')) {
        if let Some([share, high]) = group.first().and_then(|character| block(*character)) {
            let (x, width) = (MARGIN + column as f64 * CELL[0], group.len() as f64 * CELL[0] * share);
            let (y, height) = (top + CELL[1] * (1.0 - high), CELL[1] * high);
            writeln!(text, "<path class=\"block\" d=\"M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z\"/>")?;
        }
        column += group.len();
    }
    Ok(())
}

/// Returns the shares of a cell's width and height that a block element fills, from the lower left.
fn block(character: char) -> Option<[f64; 2]> {
    let eighths = |count: u32| f64::from(count) / 8.0;
    match character {
        '\u{2581}'..='\u{2588}' => Some([1.0, eighths(u32::from(character) - 0x2580)]),
        '\u{2589}'..='\u{258f}' => Some([eighths(0x2590 - u32::from(character)), 1.0]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Style, terminal};

    #[test]
    fn blocks_are_rectangles_and_words_begin_at_their_columns() {
        let svg =
            terminal("a & b", &[(Style::Plain, "██▌·  <1 GiB>    end".to_owned()), (Style::Added, "+".to_owned())]);
        // Two whole cells of 7.4, then half of one.
        assert!(svg.contains("M14.0 30.0h14.8v17.0") && svg.contains("M28.8 30.0h3.7v17.0"), "{svg}");
        assert!(
            svg.contains(&format!("x=\"{:.1}\" y=\"43\" textLength=\"51.8\">&lt;1 GiB&gt;<", 14.0 + 6.0 * 7.4)),
            "{svg}"
        );
        assert!(svg.contains(&format!("x=\"{:.1}\" y=\"43\" textLength=\"22.2\">end<", 14.0 + 17.0 * 7.4)), "{svg}");
        assert!(svg.contains("<title>a &amp; b</title>") && svg.contains("class=\"cell added\""), "{svg}");
    }
}
