//! Text wrapped at the width of a terminal.

use anstream::adapter::strip_str;

/// Columns of a terminal.
pub(super) const WIDTH: usize = 80;

/// Columns of a text; styles take none.
pub(super) fn columns(text: &str) -> usize {
    strip_str(text).map(|part| part.chars().count()).sum()
}

/// Wraps a text at 80 columns. The first line begins at column `indent` without spaces, the others with them. Longer words
/// and text in backticks stay on one line: they may be commands.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    wrapped_at(text, indent, WIDTH)
}

/// Wraps a text at this number of columns.
pub(crate) fn wrapped_at(text: &str, indent: usize, width: usize) -> String {
    let (mut lines, mut column) = (String::new(), indent);
    for word in words(text) {
        let length = columns(&word);
        if column > indent && column + 1 + length > width {
            lines.push('\n');
            lines.extend(core::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(&word);
        column += length;
    }
    lines
}

/// The words of a text; text in backticks is one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| is_open) {
            Some(last) => last.extend([" ", word]),
            None => words.push(word.to_owned()),
        }
        is_open ^= word.matches('`').count() % 2 == 1;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::wrapped;
    use crate::output::{BOLD, styled};

    #[test]
    fn commands_stay_whole_and_styles_take_no_room() {
        let text = format!("{} {}", "x".repeat(70), "see `cargo gpu-tuned explain rtx4090`");
        assert_eq!(wrapped(&text, 2), format!("{} see\n  `cargo gpu-tuned explain rtx4090`", "x".repeat(70)));
        let styled: Vec<_> = (0..10).map(|_| styled(BOLD, "1234567")).collect();
        assert!(!wrapped(&styled.join(" "), 0).contains('\n'));
    }

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
