//! List of several GPUs.

use ratatui::text::{Line, Span};

use super::bars::bar;
use super::palette::{CHOSEN, Palette, STRONG};
use crate::monitor::amounts::{gib, reasons};
use crate::monitor::seen::Track;

/// Rows of the list, always with the selected GPU.
pub(super) fn lines(
    tracks: &[Track],
    chosen: usize,
    end: f64,
    rows: usize,
    cells: usize,
    palette: Palette,
) -> Vec<Line<'static>> {
    let first = chosen.saturating_sub(rows.saturating_sub(1)).min(tracks.len().saturating_sub(rows));
    let shown = tracks.iter().enumerate().skip(first).take(rows);
    shown.map(|(place, track)| line(track, place == chosen, end, cells, palette)).collect()
}

fn line(track: &Track, is_chosen: bool, end: f64, cells: usize, palette: Palette) -> Line<'static> {
    let name = track.gpu.name.as_deref().unwrap_or("?").trim_start_matches("NVIDIA ");
    let number = track.number();
    let head = format!("{}{:<8}{:<16.16}", if is_chosen { "▸" } else { " " }, number.trim_start_matches("GPU "), name);
    let head = Span::styled(head, if is_chosen { CHOSEN } else { STRONG });
    let Some(sample) = track.at(end) else {
        return Line::from(vec![head, Span::styled(" no sample yet", palette.faint())]);
    };
    if let Some(trouble) = &sample.trouble {
        let trouble: String = trouble.chars().take(cells.saturating_sub(26)).collect();
        return Line::from(vec![head, Span::raw(" "), Span::styled(trouble, palette.bad())]);
    }
    let length = (cells.saturating_sub(68) / 2).clamp(4, 24);
    let mut spans = vec![head, Span::raw(" ")];
    let busy = sample.sm_activity_percent.filter(|_| track.gpu.mig_slot.is_some()).or(sample.utilisation_percent);
    let (filled, left) = bar(length, busy.unwrap_or_default() / 100.0);
    spans.extend([Span::styled(filled, palette.work()), Span::styled(left, palette.faint())]);
    spans.push(Span::raw(busy.map_or_else(|| "    -  ".to_owned(), |percent| format!("{percent:>4.0} % "))));
    let memory = sample.memory_used_bytes.zip(track.gpu.memory_total_bytes);
    let (filled, left) = bar(length, memory.map_or(0.0, |(used, total)| used as f64 / total.max(1) as f64));
    spans.extend([Span::styled(filled, palette.memory()), Span::styled(left, palette.faint())]);
    let figures = memory.map_or_else(|| "-".to_owned(), |(used, _)| format!("{:.1} GiB", gib(used as f64)));
    spans.push(Span::raw(format!("{figures:>10}")));
    let power = sample.power_mw.map(|milliwatts| format!("{:.0} W", f64::from(milliwatts) / 1e3));
    let celsius = sample.temperature_c.map(|celsius| format!("{celsius} °C"));
    spans.push(Span::raw(format!("{:>7}{:>7} ", power.unwrap_or_default(), celsius.unwrap_or_default())));
    spans.push(Span::styled(reasons(sample), palette.bad()));
    Line::from(spans)
}
