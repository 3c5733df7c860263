//! Frame of the page: well-formed, self-contained HTML.

use maud::{DOCTYPE, Markup, PreEscaped, html};

pub(super) const BEGIN: &str = "<!DOCTYPE html>";

const STYLE: &str = include_str!("page.css");

pub(super) struct Section {
    pub heading: String,
    pub body: Markup,
}

pub(super) fn page(package: &str, sections: &[Section]) -> String {
    let title = format!("{package}: gpu-tuned");
    let page = html! {
        (DOCTYPE)
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
    page.into_string()
}

pub(super) fn picture(svg: String) -> Markup {
    PreEscaped(svg)
}

/// A table. Headings of numbers begin with `>`, those of faint columns with `~`.
pub(super) fn table(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> Markup {
    let column = |heading: &str| match heading.split_at_checked(1) {
        Some((">", name)) => ("number", name.to_owned()),
        Some(("~", name)) => ("faint", name.to_owned()),
        _ => ("text", heading.to_owned()),
    };
    let columns: Vec<_> = headings.iter().map(|heading| column(heading.as_ref())).collect();
    html! {
        table {
            thead {
                tr { @for (class, heading) in &columns { th class=(class) { (heading) } } }
            }
            tbody {
                @for row in rows {
                    tr { @for (cell, (class, _)) in row.iter().zip(&columns) { td class=(class) { (cell) } } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::{Section, page};

    #[test]
    fn names_are_escaped_everywhere() {
        let heading = "<script>alert(1)</script>".to_owned();
        let section = Section { heading, body: html! { p { "</section>" } } };
        let page = page("a & \"b\"", &[section]);
        assert!(!page.contains("<script>") && !page.contains("<p></section>"), "{page}");
        assert!(page.contains("<h1>a &amp; &quot;b&quot;</h1>"), "{page}");
    }
}
