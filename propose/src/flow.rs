//! Values that reach fields of configs, loaders and training loops: followed through variables and parameters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gpu_tuned_attribute::sources::Node;
use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_project::workspace::MANIFEST;
use quote::ToTokens as _;
use serde_json::{Map, Value as Json};
use syn::{Expr, ExprAssign, ExprCall, FnArg, LitStr, Local, Member, Pat, Signature};

use crate::candidate::{self, named_fields};
use crate::code::{Code, Reader, evaluate, last, path};
use crate::sources::all_tokens;

/// A value, as far as it is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    /// A parameter of a function, by its position.
    Parameter(String, usize),
    /// A field, with its struct if that is known.
    Field(Option<String>, String),
    #[default]
    Unknown,
}

/// A variable of a function.
#[derive(Clone, Default)]
pub(super) struct Variable {
    value: Value,
    ty: Option<String>,
}

/// An argument of a loader's `batch_size` or of a loop's `grads_accumulation`.
pub(super) struct Reaching {
    pub file: String,
    /// First byte.
    pub at: usize,
    pub line: usize,
    pub is_loader: bool,
    pub value: Value,
}

/// A struct and its field.
type Key = (String, String);

/// Values of a program by where they go.
#[derive(Default)]
pub(super) struct Flow {
    /// Arguments of calls by functions: `train`, `Config::small`, and `.small` for methods.
    calls: BTreeMap<String, Vec<Vec<Value>>>,
    /// Values that the program sets, with their places.
    pub sets: Vec<(Key, Value, String)>,
    pub reaching: Vec<Reaching>,
    /// Number of calls of a struct's functions from elsewhere, which create it.
    made: BTreeMap<String, usize>,
    /// Numbers that the program sets, with their places.
    numbers: BTreeMap<Key, Vec<(Option<u64>, String)>>,
}

impl Flow {
    pub(super) fn record(&mut self, function: String, arguments: Vec<Value>) {
        self.calls.entry(function).or_default().push(arguments);
    }

    /// Values behind a parameter, and the value itself for others.
    pub(super) fn behind(&self, value: &Value) -> Vec<Value> {
        let (mut open, mut seen, mut found) = (vec![value.clone()], BTreeSet::new(), Vec::new());
        while let Some(value) = open.pop() {
            let Value::Parameter(function, position) = value else {
                found.push(value);
                continue;
            };
            if !seen.insert((function.clone(), position)) {
                continue;
            }
            let method = function.split_once("::").map(|(_, name)| format!(".{name}"));
            let calls = [Some(function), method].into_iter().flatten().filter_map(|name| self.calls.get(&name));
            let arguments: Vec<_> =
                calls.flatten().map(|call| call.get(position).cloned().unwrap_or_default()).collect();
            if arguments.is_empty() {
                found.push(Value::Unknown);
            }
            open.extend(arguments.into_iter().rev());
        }
        found
    }

    /// Numbers that the program sets for a field, with their places.
    pub(super) fn numbers(&self, of: &str, field: &str) -> &[(Option<u64>, String)] {
        self.numbers.get(&(of.to_owned(), field.to_owned())).map_or(&[], Vec::as_slice)
    }

    /// Returns true if the program sets the field of every new struct.
    pub(super) fn always_sets(&self, of: &str, field: &str) -> bool {
        let sets = self.sets.iter().filter(|((a, b), ..)| a == of && b == field).count();
        sets > 0 && sets >= self.made.get(of).copied().unwrap_or(0)
    }
}

impl Code {
    /// Takes the numbers of what the program sets; those of other fields last.
    pub(super) fn settle(&mut self) {
        for is_field in [false, true] {
            let mut settled = Vec::new();
            for (key, value, place) in &self.flow.sets {
                for value in self.flow.behind(value).iter().filter(|it| matches!(it, Value::Field(..)) == is_field) {
                    let is_itself = matches!(value, Value::Field(Some(of), field) if *of == key.0 && *field == key.1);
                    if !is_itself {
                        settled.push((key.clone(), self.number_of(value), place.clone()));
                    }
                }
            }
            for (key, number, place) in settled {
                self.all.entry(key.clone()).or_default().insert(number);
                self.flow.numbers.entry(key).or_default().push((number, place));
            }
        }
        let only = |numbers: &BTreeSet<Option<u64>>| if numbers.len() == 1 { numbers.first().copied()? } else { None };
        self.fields = self.all.iter().filter_map(|(key, numbers)| Some((key.clone(), only(numbers)?))).collect();
    }

    /// The number of a value; that of a field if the program gives it one only.
    pub(super) fn number_of(&self, value: &Value) -> Option<u64> {
        match value {
            Value::Number(number) => Some(*number),
            Value::Field(of, name) => {
                let is_of = |own: &&crate::code::Own| of.as_ref().is_none_or(|of| own.name == *of);
                let mut found = self.own.iter().filter(is_of).filter_map(|own| {
                    let (field, _) = named_fields(&own.item).find(|(_, field)| field == name)?;
                    Some((&own.item, field))
                });
                let (item, field) = found.next()?;
                if found.next().is_some() { None } else { candidate::number(item, field, name, self) }
            }
            Value::Parameter(..) => {
                let numbers: BTreeSet<_> = self.flow.behind(value).iter().map(|value| self.number_of(value)).collect();
                if numbers.len() == 1 { numbers.into_iter().next()? } else { None }
            }
            Value::Unknown => None,
        }
    }

    /// The argument at a byte of a file.
    pub(super) fn reaching(&self, file: &str, at: usize) -> Option<&Value> {
        self.flow.reaching.iter().find(|it| it.file == file && it.at == at).map(|it| &it.value)
    }
}

/// Name of a variable in a pattern.
pub(super) fn variable_name(pattern: &Pat) -> Option<String> {
    match pattern {
        Pat::Ident(name) => Some(name.ident.to_string()),
        Pat::Type(typed) => variable_name(&typed.pat),
        _ => None,
    }
}

impl Reader<'_> {
    pub(super) fn variable(&self, name: &str) -> Option<&Variable> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name))
    }

    /// Visits what is in a node, where these variables are known.
    pub(super) fn within(&mut self, variables: BTreeMap<String, Variable>, node: Node<'_>) {
        self.scopes.push(variables);
        node.walk(self);
        self.scopes.pop();
    }

    /// Visits a function with its parameters.
    pub(super) fn function(&mut self, name: &str, signature: &Signature, node: Node<'_>) {
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(input) => Some(input),
            FnArg::Receiver(_) => None,
        });
        let parameter = |(position, input): (usize, &syn::PatType)| {
            let value = Value::Parameter(name.to_owned(), position);
            Some((variable_name(&input.pat)?, Variable { value, ty: last(&input.ty) }))
        };
        let receiver = Variable { value: Value::Unknown, ty: self.implements.clone() };
        let variables = typed.enumerate().filter_map(parameter).chain([("self".to_owned(), receiver)]).collect();
        let outer = std::mem::take(&mut self.scopes);
        self.within(variables, node);
        self.scopes = outer;
    }

    /// Adds a variable to the block around.
    pub(super) fn bind(&mut self, local: &Local) {
        let Some(name) = variable_name(&local.pat) else { return };
        let value = local.init.as_ref().map(|init| &*init.expr);
        let is_mutable = |pattern: &Pat| matches!(pattern, Pat::Ident(name) if name.mutability.is_some());
        let (is_mutable, ty) = match &local.pat {
            Pat::Type(typed) => (is_mutable(&typed.pat), last(&typed.ty)),
            pattern => (is_mutable(pattern), None),
        };
        let ty = ty.or_else(|| self.owner(value?));
        if let (Some(of), Some(value)) = (&ty, value) {
            self.load(of, value);
        }
        let value = value.filter(|_| !is_mutable).map(|value| self.value(value)).unwrap_or_default();
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, Variable { value, ty });
        }
    }

    /// Takes the numbers of a file that the value of a struct names: `Config::load("config.json")`.
    fn load(&mut self, of: &str, value: &Expr) {
        for token in all_tokens(value.to_token_stream()) {
            let Ok(name) = syn::parse2::<LitStr>(token.into()).map(|name| name.value()) else { continue };
            let folders = self.source.path.ancestors().filter(|folder| folder.join(MANIFEST).exists());
            let mut texts = folders.filter_map(|folder| read_text(&folder.join(&name), LARGEST).ok());
            let Some(text) = texts.next().filter(|_| Path::new(&name).is_relative()) else { continue };
            let fields = serde_json::from_str(&text).ok().or_else(|| toml::from_str(&text).ok());
            if let Some(fields) = fields {
                self.take(of, fields, &name);
            }
        }
    }

    /// Takes the numbers of a loaded struct and of the structs in its fields.
    fn take(&mut self, of: &str, fields: Map<String, Json>, file: &str) {
        *self.code.flow.made.entry(of.to_owned()).or_default() += 1;
        for (name, value) in fields {
            let own = self.code.own.iter().find(|own| own.name == of).map(|own| &own.item);
            let ty = own.into_iter().flat_map(named_fields).find(|(_, it)| *it == name);
            match (value, ty.and_then(|(field, _)| last(&field.ty))) {
                (Json::Object(fields), Some(ty)) => self.take(&ty, fields, file),
                (value, _) => {
                    let number = value.as_u64().map_or(Value::Unknown, Value::Number);
                    self.code.flow.sets.push(((of.to_owned(), name), number, file.to_owned()));
                }
            }
        }
    }

    /// Takes a number that is assigned to a field.
    pub(super) fn assign(&mut self, assignment: &ExprAssign) {
        if let Expr::Field(field) = &*assignment.left
            && let Member::Named(name) = &field.member
            && let Some(of) = self.owner(&field.base)
        {
            self.set(of, name.to_string(), &assignment.right);
        }
    }

    pub(super) fn record_call(&mut self, call: &ExprCall) {
        let Expr::Path(function) = &*call.func else { return };
        let names: Vec<_> = function.path.segments.iter().rev().map(|segment| segment.ident.to_string()).collect();
        let of = names.get(1).filter(|of| is_type(of)).and_then(|of| self.type_named(of));
        let name = match &of {
            Some(of) => format!("{of}::{}", names[0]),
            None => names[0].clone(),
        };
        // A loaded struct has the values of the one that was saved.
        if let Some(of) = of.filter(|of| self.implements.as_ref() != Some(of) && names[0] != "load") {
            *self.code.flow.made.entry(of).or_default() += 1;
        }
        let arguments = call.args.iter().map(|value| self.value(value)).collect();
        self.code.flow.record(name, arguments);
    }

    /// The number of an expression, with variables and constants.
    pub(super) fn number(&self, value: &Expr) -> Option<u64> {
        evaluate(value, &mut |name| match self.variable(name) {
            Some(Variable { value: Value::Number(number), .. }) => Some(*number),
            Some(_) => None,
            None => self.code.values().named(name),
        })
    }

    pub(super) fn value(&self, value: &Expr) -> Value {
        match value {
            Expr::Paren(inner) => self.value(&inner.expr),
            Expr::Group(inner) => self.value(&inner.expr),
            Expr::Cast(inner) => self.value(&inner.expr),
            Expr::Reference(inner) => self.value(&inner.expr),
            Expr::MethodCall(call) if ["clone", "into"].iter().any(|name| call.method == name) => {
                self.value(&call.receiver)
            }
            Expr::Field(field) => match &field.member {
                Member::Named(name) => Value::Field(self.owner(&field.base), name.to_string()),
                Member::Unnamed(_) => Value::Unknown,
            },
            Expr::Path(path)
                if let Some(variable) = path.path.get_ident().and_then(|it| self.variable(&it.to_string())) =>
            {
                variable.value.clone()
            }
            other => self.number(other).map_or(Value::Unknown, Value::Number),
        }
    }

    /// The type of a value, by its constructor or its variable.
    pub(super) fn owner(&self, value: &Expr) -> Option<String> {
        match value {
            Expr::MethodCall(call) => self.owner(&call.receiver),
            Expr::Try(inner) => self.owner(&inner.expr),
            Expr::Paren(inner) => self.owner(&inner.expr),
            Expr::Reference(inner) => self.owner(&inner.expr),
            Expr::Call(call) => path(&call.func).filter(|[of, _]| is_type(of)).and_then(|[of, _]| self.type_named(&of)),
            Expr::Struct(literal) => self.type_named(&literal.path.segments.last()?.ident.to_string()),
            Expr::Path(path) => self.variable(&path.path.get_ident()?.to_string())?.ty.clone(),
            Expr::Field(field) => {
                let of = self.owner(&field.base)?;
                let Member::Named(name) = &field.member else { return None };
                let own = self.code.own.iter().find(|own| own.name == of)?;
                let (field, _) = named_fields(&own.item).find(|(_, field)| name == field)?;
                last(&field.ty)
            }
            _ => None,
        }
    }

    fn type_named(&self, name: &str) -> Option<String> {
        if name == "Self" { self.implements.clone() } else { Some(name.to_owned()) }
    }
}

fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase)
}
