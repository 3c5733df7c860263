//! References of the command line and of the attribute.

use clap::Command;
use gpu_tuned_core::dims::{Dim, DimKind, Presence, Schema};
use gpu_tuned_core::workload::{ModelKind, Training};
use gpu_tuned_core::{Goal, OnResume, Setting, SettingKind, SettingRow};

use crate::generated::{cells, filled, table};

/// Text of the page, with a name in braces for each generated part.
const PAGE: &str = include_str!("reference.md");

/// Writes `macros/src/reference.md`.
pub(crate) fn reference() -> String {
    let headings = ["setting", "type", "meaning", "changes results", "in a resumed run"];
    let kinds = ModelKind::ALL
        .iter()
        .map(|kind| format!("# Dimensions of `{}`\n\nFor {}.\n\n{}\n", kind.name, kind.meaning, keys(kind.dims)));
    let parts = [
        ("settings", table(headings, Setting::ALL.into_iter().map(setting))),
        ("types of counts", field_types(SettingKind::Count)),
        ("goal", keys(Goal::DIMS)),
        ("training", keys(Training::DIMS)),
        ("dimensions", kinds.collect()),
    ];
    filled(PAGE, &parts)
}

fn setting(setting: Setting) -> [String; 5] {
    let SettingRow { name, kind, meaning, unit, least, changes_results, on_resume, .. } = setting.row();
    let kind = match (kind, unit) {
        (SettingKind::Count, Some(unit)) => format!("count of {unit}, from {least}"),
        (SettingKind::Count, None) => format!("count, from {least}"),
        (SettingKind::Flag | SettingKind::Kernels, _) => field_types(*kind),
        (SettingKind::Precision, _) => format!("{}, or an enum with the usual variants", field_types(*kind)),
    };
    let resumed = match on_resume {
        OnResume::Keep => "as saved",
        OnResume::KeepIfFits => "as saved, if it fits",
        OnResume::Replan => "planned again",
    };
    cells![format!("`{name}`"), kind, meaning, if *changes_results { "yes" } else { "no" }, resumed]
}

fn field_types(kind: SettingKind) -> String {
    kind.field_types().iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn keys(dims: &[Dim]) -> String {
    let row = |dim: &Dim| {
        let required = if dim.presence == Presence::Required { " (required)" } else { "" };
        cells![format!("`{}`", dim.name), value(&dim.kind), format!("{}{required}", dim.meaning)]
    };
    table(["key", "value", "meaning"], dims.iter().map(row))
}

fn value(kind: &DimKind) -> String {
    match kind {
        DimKind::Count(_) => "count".to_owned(),
        DimKind::Flag => "`true`, `false`".to_owned(),
        DimKind::Number(_) => "number".to_owned(),
        DimKind::Choice(choices) => names(choices.names),
        DimKind::ChoiceList(choices) => format!("list of {}", names(choices.names)),
        DimKind::Counts(_) => "list of counts".to_owned(),
        DimKind::Stages => "list of `[channels, blocks]`".to_owned(),
        DimKind::Product => "`rows_per_sample`, `inner`, `columns`".to_owned(),
    }
}

fn names(choices: &[(&str, &str)]) -> String {
    choices.iter().map(|(name, _)| format!("`\"{name}\"`")).collect::<Vec<_>>().join(", ")
}

/// Text above the commands.
const HEAD: &str = include_str!("commands.md");

/// `docs/cli.md`.
pub(crate) fn commands() -> String {
    let command = cargo_gpu_tuned::command();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let codes = cargo_gpu_tuned::exit_codes().map(|(code, meaning)| cells![code, meaning]);
    let head = filled(HEAD, &[("exit codes", table(["code", "meaning"], codes))]);
    let page = head + &commands.map(section).collect::<String>();
    page.trim_end().to_owned() + "\n"
}

fn section(command: &Command) -> String {
    let help = command.clone().render_long_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    format!("## {}\n\n```text\n{}\n```\n\n", command.get_name(), lines.join("\n").trim_end())
}
