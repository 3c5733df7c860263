//! An annotated struct, and the input of its plan.

use std::path::PathBuf;
use std::rc::Rc;

use gpu_tuned_core::source::{FileError, Position};
use proc_macro2::{LineColumn, TokenStream};

use crate::{Mistakes, PlanInput, Table, parse, plan_input};

/// An annotated struct of a source file.
#[derive(Clone, Debug)]
pub struct Annotated {
    /// The struct's name, without `r#`.
    pub name: String,
    /// The struct's path, from the target's name on: `digits::config::TrainingConfig`.
    pub path: String,
    /// The file.
    pub file: PathBuf,
    /// The line of the attribute, from 1.
    pub line: usize,
    /// The file's text.
    pub text: Rc<str>,
    /// True for a struct of a test or a bench.
    pub is_test: bool,
    pub(super) arguments: TokenStream,
    pub(super) item: TokenStream,
    pub(super) place: LineColumn,
}

impl Annotated {
    /// Checks the attribute and returns the input of the struct's plan, by the code that the macro runs.
    ///
    /// # Errors
    ///
    /// The macro's mistakes, each with its place. `file` is the file's name in messages.
    pub fn plan_input(&self, table: Table, file: &str) -> Result<PlanInput, Vec<FileError>> {
        let mut mistakes = Mistakes::default();
        let model = parse(self.arguments.clone(), self.item.clone(), &mut mistakes);
        let model = model.map_err(|error| {
            let LineColumn { line, column } = error.span().start();
            vec![FileError {
                file: file.to_owned(),
                place: Position { line, column: column + 1 },
                message: error.to_string(),
            }]
        })?;
        let input = plan_input(&model, table, &mut mistakes).filter(|_| mistakes.is_empty());
        input.ok_or_else(|| {
            mistakes.iter().map(|mistake| self.file_error(mistake.text(), mistake.span(), file)).collect()
        })
    }

    fn file_error(&self, text: &str, span: Option<proc_macro2::Span>, file: &str) -> FileError {
        let LineColumn { line, column } = span.map_or(self.place, |span| span.start());
        FileError {
            file: file.to_owned(),
            place: Position { line, column: column + 1 },
            message: text.replace("\n= help: ", "; "),
        }
    }
}
