//! `cargo gpu-tuned serve`.

mod http;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use gpu_tuned_core::dims::{Dim, DimKind, DimValue, DimValues, Presence, Schema as _, table};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{ModelKind, Training};
use gpu_tuned_core::{PrecisionPolicy, grouped};
use gpu_tuned_optimize::{Model, ModelRequest};
use gpu_tuned_project::config::ConfigFile;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::{Common, number};
use crate::error::Error;
use crate::output::{Answer, Code, Form, document, print};
use crate::plan::PlanArgs;
use crate::process::Stop;
use crate::project::{Described, Project, WorkloadArgs};
use crate::report::STYLE;
use crate::target::Target;
use crate::{description, explain, plan};
use http::{NOT_FOUND, OK, REFUSED, Request, Response};

/// Plan in the browser: choose a GPU, a model and a goal, and see the plan, its memory and the fastest GPUs change
///
/// Prints the address of a page that this machine alone can open, and answers until Ctrl-C. The page offers the workloads of the
/// package, well-known models, and every kind of model with its dimensions. No package is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("serve/help.txt"))]
pub(crate) struct ServeArgs {
    /// Port of 127.0.0.1, such as 8000 (default: one that is free)
    #[arg(long, value_name = "PORT", value_parser = number::<u16>, default_value = "0", hide_default_value = true)]
    port: u16,
}

const REST: Duration = Duration::from_millis(50);

pub(crate) fn run(common: &Common, args: &ServeArgs) -> Result<Answer, Error> {
    // A mistake in the package's files is reported here; a later one, on the page.
    Project::read_if_any(common)?;
    let listen = |source| Error::Listen { port: args.port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(listen)?;
    let port = listener.local_addr().map_err(listen)?.port();
    let stop = Stop::on_signals()?;
    let asked = Common { json: true, ..common.clone() };
    let accept = move || http::answer_all(&listener, port, move |request| respond(&asked, request));
    thread::Builder::new().name("accept".to_owned()).spawn(accept).map_err(listen)?;
    let address = format!("http://127.0.0.1:{port}/");
    let (text, form) = if common.json {
        (document("serve", &json!({ "address": address }), &[]), Form::Data)
    } else {
        (format!("open {address} in a browser of this machine; Ctrl-C ends the page\n"), Form::Text)
    };
    if print(&text, form).map_err(Error::Print)? {
        while !stop.is_wanted() {
            thread::sleep(REST);
        }
    }
    Ok(Answer { text: String::new(), form, notes: Vec::new(), code: Code::Ok })
}

/// The page, in which the style has a mark.
const PAGE: &str = include_str!("serve/page.html");

fn respond(common: &Common, request: &Request) -> Response {
    let words = request.query.iter().filter(|(name, _)| name == "arg").map(|(_, word)| word.as_str());
    let words: Vec<_> = words.collect();
    let as_text = Common { json: false, ..common.clone() };
    let (kind, body) = match request.path.as_str() {
        "/" => ("text/html", Ok(PAGE.replace("/* report */", STYLE))),
        "/choices.json" => ("application/json", choices(common)),
        "/plan.json" => ("application/json", answer(common, "plan", &words, plan::run)),
        "/explain.json" => ("application/json", answer(common, "explain", &words, explain::run)),
        "/explain.txt" => ("text/plain", answer(&as_text, "explain", &words, explain::run)),
        "/gpu-tuned.toml" => ("text/plain", parsed::<PlanArgs>("plan", &words).and_then(|args| file(common, &args))),
        _ => return Response { status: NOT_FOUND, kind: "text/plain", body: "there is no such page\n".to_owned() },
    };
    match body {
        Ok(body) => Response { status: OK, kind, body },
        // The document that the command prints.
        Err(error) => {
            let body = error.document(request.path.trim_matches('/').split('.').next().unwrap_or_default());
            Response { status: REFUSED, kind: "application/json", body }
        }
    }
}

/// The output of a command with these arguments. Arguments of every command, such as the path of a package, are refused: those of
/// `serve` count.
fn answer<A: clap::Args>(
    common: &Common,
    command: &str,
    words: &[&str],
    run: fn(&Common, &A) -> Result<Answer, Error>,
) -> Result<String, Error> {
    let answer = run(common, &parsed(command, words)?)?;
    Ok(anstream::adapter::strip_str(&answer.text).to_string())
}

fn parsed<A: clap::Args>(name: &str, words: &[&str]) -> Result<A, Error> {
    let all = description();
    let command = all.find_subcommand(name).expect("BUG: the page asks for commands that exist").clone();
    let matches = command.no_binary_name(true).disable_help_flag(true).try_get_matches_from(words);
    matches.and_then(|matches| A::from_arg_matches(&matches)).map_err(|error| {
        let text = error.to_string();
        let message = text.split("\n\nUsage:").next().unwrap_or_default();
        Error::Arguments { message: message.trim_start_matches("error: ").trim_end().to_owned() }
    })
}

/// Text of a `gpu-tuned.toml` with the workload and the goal. Pins are for one start, and are a comment. A text that commands
/// would refuse is refused.
fn file(common: &Common, args: &PlanArgs) -> Result<String, Error> {
    let text = args.with_workload(common, |name, described, goal| {
        let Described { spec, structure, .. } = described;
        if let Some(structure) = structure {
            return format!("# The attribute of `{}` describes the model and the goal.\n", structure.name);
        }
        let tables = |values: &DimValues| toml::Value::Table(table(values));
        let mut workload = table(&spec.training.values());
        workload.insert(spec.model.kind().name.to_owned(), tables(&spec.model.values()));
        let workloads = toml::Table::from_iter([(name.to_owned(), workload.into())]);
        let all = [("workload".to_owned(), workloads.into()), ("goal".to_owned(), tables(&goal.values()))];
        let pins = if goal.pins.is_empty() { String::new() } else { format!("# GPU_TUNED_SET={}\n", goal.pins) };
        format!("{pins}{}", toml::Table::from_iter(all))
    })?;
    let messages = |mistakes: Vec<FileError>| mistakes.into_iter().map(|it| it.message).collect::<Vec<_>>().join("; ");
    ConfigFile::parse(Source { file: ConfigFile::NAME, text: &text })
        .map_err(|mistakes| Error::Arguments { message: messages(mistakes) })?;
    Ok(text)
}

/// Dimension of a model, or key of its training. A number or a list has no `values`.
fn key(Dim { name, kind, presence, meaning }: &Dim) -> Value {
    let values = match kind {
        DimKind::Flag => vec!["true", "false"],
        DimKind::Choice(choices) => choices.names.iter().map(|(name, _)| *name).collect(),
        _ => Vec::new(),
    };
    let required = *presence == Presence::Required;
    json!({ "name": name, "meaning": meaning, "required": required, "values": values, "expected": kind.expected() })
}

/// Dimensions of a well-known model.
#[derive(Serialize)]
struct Preset {
    name: &'static str,
    model: &'static str,
    values: Vec<(&'static str, String)>,
    parameters: String,
}

/// Well-known models by their short names. Sequences have the length of the model, or none where `seq` is to be given.
fn presets() -> impl Iterator<Item = Preset> {
    let mut names: Vec<_> = Model::known_names().map(|name| name.rsplit('/').next().unwrap_or(name)).collect();
    names.sort_by_key(|name| name.to_ascii_lowercase());
    names.into_iter().map(|name| {
        let known = |dims: &[(String, String)]| {
            let request = ModelRequest { dims, ..ModelRequest::default() };
            Model::known(name, &request).expect("BUG: well-known models have names")
        };
        let (spec, is_open) = match known(&[]) {
            Ok(model) => (model.spec, false),
            Err(_) => (known(&[("seq".to_owned(), "1".to_owned())]).expect("BUG: only `seq` is open").spec, true),
        };
        let text = |value: DimValue| match value {
            DimValue::Choice(name) => name,
            other => other.to_string(),
        };
        let values = spec.model.values().into_iter().filter(|(name, _)| !(is_open && *name == "seq"));
        let values = values.map(|(name, value)| (name, text(value))).collect();
        Preset { name, model: spec.model.kind().name, values, parameters: grouped(spec.parameters()) }
    })
}

fn choices(common: &Common) -> Result<String, Error> {
    let project = Project::read_if_any(common)?;
    let workloads = match project.workloads(&WorkloadArgs::default()) {
        Err(error) if !error.leaves_plans_open() => return Err(error),
        found => found.unwrap_or_default(),
    };
    let declared = project.declared();
    let gpu = |Target { name, facts, .. }: Target| {
        let is_declared = declared.iter().any(|id| id.as_str() == name);
        json!({ "name": name, "memory": facts.memory_total.to_string(), "declared": is_declared })
    };
    let keys = |dims: &[Dim]| dims.iter().map(key).collect::<Vec<_>>();
    let model = |kind: &ModelKind| json!({ "name": kind.name, "meaning": kind.meaning, "dims": keys(kind.dims) });
    let choices = json!({
        "options": common.package_options(),
        "package": (!workloads.is_empty()).then(|| project.name()),
        "workloads": workloads.iter().map(|described| described.name).collect::<Vec<_>>(),
        "gpus": Target::all(&project).0.into_iter().map(gpu).collect::<Vec<_>>(),
        "models": ModelKind::ALL.iter().map(model).collect::<Vec<_>>(),
        "training": keys(Training::DIMS),
        "precisions": PrecisionPolicy::CHOICES.names.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        "presets": presets().collect::<Vec<_>>(),
    });
    Ok(document("serve", &choices, &[]))
}
