//! Parts that all plots share.

use core::fmt::{self, Write as _};

use super::scale::{LEFT, WIDTH};

/// Opens an SVG with its style, ground and title.
pub(super) fn open(text: &mut String, height: f64, title: &str, subtitle: &str, style: &str) -> fmt::Result {
    let title = escaped(title);
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n\
         <title>{title}{subtitle}</title>\n{style}\n<rect class=\"ground\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"22\">{title}</text>",
    )
}

/// Escapes text for an element.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
