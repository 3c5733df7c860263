use maud::html;

use super::{Section, marked_up, page, table};

#[test]
fn names_are_escaped_everywhere() {
    let heading = "<script>alert(1)</script>".to_owned();
    let section = Section { heading, summary: "`<b>`".to_owned(), body: html! { p { "</section>" } } };
    let page = page("a & \"b\"", "2026-11-26", &[section]);
    assert!(!page.contains("<script>") && !page.contains("<p></section>") && !page.contains("<b>"), "{page}");
    assert!(page.contains("<h1>a &amp; &quot;b&quot;</h1>"), "{page}");
}

#[test]
fn backticks_in_pairs_enclose_code() {
    let text = |text| marked_up(text).into_string();
    assert_eq!(text("with `a` and `b`"), "with <code>a</code> and <code>b</code>");
    assert_eq!(text("a ` alone"), "a ` alone");
}

#[test]
fn cells_have_the_names_of_their_columns_and_short_rows_fill_the_table() {
    let rows = [vec!["h200".to_owned(), "8".to_owned()], vec!["no `fit`".to_owned()]];
    let table = table(&["GPU", ">batch"], &rows).into_string();
    assert!(table.contains("<td class=\"number\" data-label=\"batch\"><span>8</span></td>"), "{table}");
    assert!(table.contains("<td class=\"wide\" colspan=\"2\"><span>no <code>fit</code></span></td>"), "{table}");
}
