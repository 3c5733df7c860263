//! Columns and cells of CSV tables (RFC 4180, lines end with `\n`).

use gpu_tuned_core::printable::for_file;

use super::{HOST_FIGURES, gpu_figures, throttle_key};
use crate::recording::{GpuSample, HostSample};

/// Returns the columns of GPU samples. A MIG slice has the number of its GPU and a slot.
pub(crate) fn gpu_columns() -> impl Iterator<Item = String> {
    let keys = ["at_s", "gpu", "mig_slot", "uuid"].into_iter();
    let keys = keys.chain(gpu_figures().map(|figure| figure.key)).chain(["throttle", "trouble"]);
    keys.map(str::to_owned)
}

/// Returns the cells of a GPU sample.
pub(crate) fn gpu_cells(sample: &GpuSample, uuid: &str) -> impl Iterator<Item = String> {
    let slot = sample.mig_slot.map(|slot| slot.to_string()).unwrap_or_default();
    let reasons: Vec<_> = sample.throttle.iter().map(|reason| throttle_key(*reason)).collect();
    let trouble = sample.trouble.as_deref().unwrap_or_default();
    let keys = [format!("{:.3}", sample.at), sample.gpu.to_string(), slot, quoted(uuid)];
    let figures = gpu_figures().map(|figure| number((figure.of)(sample)));
    keys.into_iter().chain(figures).chain([reasons.join(" "), quoted(trouble)])
}

/// Returns the columns of host samples, without the time.
pub(crate) fn host_columns() -> impl Iterator<Item = String> {
    HOST_FIGURES.iter().map(|figure| format!("host_{}", figure.key))
}

/// Returns the cells of a host sample, without the time.
pub(crate) fn host_cells(sample: &HostSample) -> impl Iterator<Item = String> {
    HOST_FIGURES.iter().map(|figure| number((figure.of)(sample)))
}

/// Joins cells to a line.
pub(crate) fn line(cells: impl IntoIterator<Item = String>) -> String {
    let mut line = cells.into_iter().collect::<Vec<_>>().join(",");
    line.push('\n');
    line
}

/// Formats a figure with three digits after the point at most: figures of samples are no more exact.
fn number(figure: Option<f64>) -> String {
    figure.map(|figure| ((figure * 1e3).round() / 1e3).to_string()).unwrap_or_default()
}

/// First letters of formulas, as narrow and as wide forms, and those that some programs skip.
const FORMULA: [char; 11] = ['=', '+', '-', '@', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}', '\t', '\r', '\n'];

/// Quotes text that needs quotes. An apostrophe keeps spreadsheets from taking it for a formula.
pub(crate) fn quoted(text: &str) -> String {
    let text = &*for_file(text);
    let text = if text.starts_with(FORMULA) { &format!("'{text}") } else { text };
    if text.contains([',', ';', '\t', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn cells_are_neither_formulas_nor_several_cells() {
        for (text, cell) in [
            ("loss", "loss"),
            ("a,b", "\"a,b\""),
            ("a;=1", "\"a;=1\""),
            ("a\t=1", "\"a\t=1\""),
            ("say \"a\"", "\"say \"\"a\"\"\""),
            ("=HYPERLINK(\"http://a\",\"b\")", "\"'=HYPERLINK(\"\"http://a\"\",\"\"b\"\")\""),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("-1+1", "'-1+1"),
            ("\u{ff1d}1", "'\u{ff1d}1"),
            ("\n=1", "\"'\n=1\""),
            ("\u{1b}[31m##vso[a]", "\u{fffd}[31m#\u{fffd}#\u{fffd}vso[a]"),
        ] {
            assert_eq!(quoted(text), cell);
        }
    }
}
