//! Text that keeps to the width of a terminal.

/// The width that every terminal has.
const WIDTH: usize = 80;

/// The text in lines of at most 80 columns; the first begins at `indent`, as if something else was before it, and the
/// others below it. A word that is longer has a line of its own.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let (mut lines, mut column) = (String::new(), indent);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            lines.push('\n');
            lines.extend(core::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += length;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_are_no_longer_than_a_terminal_is_wide_and_lose_no_word() {
        let text = "a word and another one, ".repeat(12) + &"x".repeat(90) + " end";
        let lines = wrapped(&text, 7);
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        for (number, line) in lines.lines().enumerate() {
            let (width, before) = (line.chars().count(), if number == 0 { 7 } else { 0 });
            assert!(before + width <= 80 || line.trim().chars().all(|c| c == 'x'), "{line}");
            assert!(number == 0 || line.starts_with("       ") && !line.starts_with("        "), "{line}");
        }
    }
}
