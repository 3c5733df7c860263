use super::{BOLD, PLAIN, Table, styled, wrapped};

#[test]
fn long_cells_are_cut() {
    let mut table = Table::new(0, ["name", ">count"]);
    table.row(PLAIN, ["ß".repeat(70_000), "1".to_owned()], "");
    let printed = anstream::adapter::strip_str(&table.print()).to_string();
    assert_eq!(printed.lines().nth(1).map(str::len), Some("ß".len() * 200 + "…      1".len()));
}

#[test]
fn text_after_cells_is_wrapped_unless_the_cells_are_wide() {
    let told = "what is said of it, in more words than there is room for on a line of a terminal";
    let table = |width: usize| {
        let mut table = Table::new(2, ["name"]);
        table.row(PLAIN, ["x".repeat(width)], told);
        anstream::adapter::strip_str(&table.print()).to_string()
    };
    assert_eq!(
        table(10).lines().skip(1).collect::<Vec<_>>(),
        [
            "  xxxxxxxxxx  what is said of it, in more words than there is room for on a line",
            "              of a terminal"
        ]
    );
    let lines = table(60);
    let lines: Vec<_> = lines.lines().skip(1).collect();
    assert_eq!(
        lines[1..],
        ["      what is said of it, in more words than there is room for on a line of a", "      terminal"]
    );
    assert_eq!(table(90).lines().count(), 2);
}

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
