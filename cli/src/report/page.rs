//! Frame of the page: well-formed, self-contained HTML.

use gpu_tuned_core::printable::for_file;
use maud::{Markup, PreEscaped, html};

pub(super) const BEGIN: &str = "<!DOCTYPE html><!-- cargo gpu-tuned report -->";

const STYLE: &str = include_str!("page.css");

pub(super) struct Section {
    pub heading: String,
    /// Sentences for the begin of the page.
    pub summary: String,
    pub body: Markup,
}

/// Creates the page. `made` is its date.
pub(super) fn page(package: &str, made: &str, sections: &[Section]) -> String {
    let title = format!("{package}: gpu-tuned report");
    let summaries: Vec<_> = sections.iter().map(|section| &*section.summary).filter(|text| !text.is_empty()).collect();
    let page = html! {
        (PreEscaped(BEGIN))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("cargo gpu-tuned ", env!("CARGO_PKG_VERSION")));
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (package) }
                p class="pale" { "Made on " (made) " by cargo gpu-tuned " (env!("CARGO_PKG_VERSION")) "." }
                p { (marked_up(&summaries.join(" "))) }
                nav {
                    ul {
                        @for (index, section) in sections.iter().enumerate() {
                            li { a href={ "#section-" (index) } { (section.heading) } }
                        }
                    }
                }
                @for (index, section) in sections.iter().enumerate() {
                    section id={ "section-" (index) } {
                        h2 { (section.heading) }
                        (section.body)
                    }
                }
            }
        }
    };
    for_file(&page.into_string()).into_owned()
}

pub(super) fn picture(svg: String) -> Markup {
    PreEscaped(svg)
}

/// Text in which backticks enclose code.
pub(super) fn marked_up(text: &str) -> Markup {
    let has_pairs = text.matches('`').count().is_multiple_of(2);
    html! {
        @if has_pairs {
            @for (index, part) in text.split('`').enumerate() {
                @if index % 2 == 1 { code { (part) } } @else { (part) }
            }
        } @else { (text) }
    }
}

/// A table. Headings of numbers begin with `>`, those of pale columns of sentences with `~`. The last cell of a shorter row
/// fills the rest of the row.
pub(super) fn table(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> Markup {
    let column = |heading: &str| match heading.split_at_checked(1) {
        Some((">", name)) => ("number", name.to_owned()),
        Some(("~", name)) => ("pale", name.to_owned()),
        _ => ("text", heading.to_owned()),
    };
    let columns: Vec<_> = headings.iter().map(|heading| column(heading.as_ref())).collect();
    let rest = |row: &[String]| columns.len() + 1 - row.len();
    html! {
        table {
            thead {
                tr { @for (class, heading) in &columns { th class=(class) { (heading) } } }
            }
            tbody {
                @for row in rows {
                    tr {
                        @for (index, (cell, (class, name))) in row.iter().zip(&columns).enumerate() {
                            @if index + 1 == row.len() && rest(row) > 1 {
                                td class="wide" colspan=(rest(row)) { span { (marked_up(cell)) } }
                            } @else { td class=(class) data-label=(name) { span { (marked_up(cell)) } } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
