//! `cargo gpu-tuned generate`.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use clap_complete::Shell;
use clap_mangen::Man;
use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_project::schema::config_schema;

use crate::args::Common;
use crate::error::Error;
use crate::files::{Change, alone, check_replaceable, is_standard, write, write_all};
use crate::output::{Answer, Code, Form};

/// Program behind `cargo gpu-tuned`.
const COMMAND: &str = "cargo-gpu-tuned";

/// Write files for other programs: shell completions, man pages, and the JSON schema of gpu-tuned.toml
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("generate/help.txt"))]
pub(crate) struct GenerateArgs {
    /// Completions of a shell, man pages, or the JSON schema of gpu-tuned.toml
    #[arg(value_name = "WHAT", value_enum)]
    what: What,
    /// Shell of the completions; by default the one in the variable SHELL, else bash
    #[arg(value_name = "SHELL", value_enum)]
    shell: Option<Shell>,
    /// File to write, by default standard output; for man pages their folder, by default this one
    #[arg(long, short, value_name = "PATH")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    Completions,
    Man,
    Schema,
}

pub(crate) fn run(common: &Common, args: &GenerateArgs) -> Result<Answer, Error> {
    let default = if matches!(args.what, What::Man) { "." } else { "-" };
    let output = args.output.as_deref().unwrap_or(Path::new(default));
    let mut text = Vec::new();
    match (args.what, args.shell) {
        (What::Man | What::Schema, Some(shell)) => return Err(Error::NoCompletions { shell }),
        (What::Man, None) if is_standard(output) => {
            let message = "--output: expected a folder; a folder of this name is `./-`".to_owned();
            return Err(Error::Arguments { message });
        }
        (What::Man, None) => return man_pages(common, output),
        (What::Schema, None) => {
            text = serde_json::to_vec_pretty(&config_schema()).expect("BUG: the schema is JSON");
            text.push(b'\n');
        }
        (What::Completions, shell) => {
            let shell = shell.or_else(Shell::from_env).unwrap_or(Shell::Bash);
            clap_complete::generate(shell, &mut crate::description(), COMMAND, &mut text);
        }
    }
    alone(output, common.json)?;
    let text = String::from_utf8(text).expect("BUG: names of commands are UTF-8");
    if is_standard(output) {
        return Ok(Answer { text, form: Form::Data, notes: Vec::new(), code: Code::Ok });
    }
    check_replaceable(output, "what this command writes", begin(&text))?;
    if let Some(folder) = output.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(|source| Error::Write { path: folder.to_owned(), source })?;
    }
    write(output, |file| file.write_all(text.as_bytes()))?;
    Ok(written(common, &[output.display().to_string()]))
}

/// The text up to the name of this command or its file, which texts of other programs do not begin with.
fn begin(text: &str) -> &str {
    text.split_inclusive("tuned").next().unwrap_or_default()
}

/// Writes a page for each command into a folder, all or none.
fn man_pages(common: &Common, folder: &Path) -> Result<Answer, Error> {
    let mut command = crate::description().disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(folder).map_err(|source| Error::Write { path: folder.to_owned(), source })?;
    let pages = iter::once(&command).chain(command.get_subcommands()).cloned().map(|command| {
        let (page, mut text) = (Man::new(command), Vec::new());
        page.render(&mut text).expect("BUG: memory can be written");
        let (name, after) = (page.get_filename(), String::from_utf8_lossy(&text).into_owned());
        let path = folder.join(&name);
        check_replaceable(&path, "what this command writes", begin(&after))?;
        Ok(Change { before: read_text(&path, LARGEST).ok(), path, name, after })
    });
    let pages = pages.collect::<Result<Vec<_>, Error>>()?;
    write_all(&pages)?;
    Ok(written(common, &pages.iter().map(|page| page.path.display().to_string()).collect::<Vec<_>>()))
}

fn written(common: &Common, files: &[String]) -> Answer {
    let text = || files.iter().map(|file| format!("wrote `{file}`\n")).collect();
    Answer::new(("generate", common.json), &serde_json::json!({ "files": files }), text, Vec::new(), Code::Ok)
}
