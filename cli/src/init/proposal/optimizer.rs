//! Which optimizer the code has.

use super::code::Code;

/// Configs of Burn's optimizers, with what the annotation calls them; nothing for those that it has no word for.
const OPTIMIZERS: [(&str, Option<&str>); 11] = [
    ("AdamWConfig", Some("adamw")),
    ("AdamConfig", Some("adam")),
    ("SgdConfig", Some("sgd")),
    ("MuonConfig", Some("muon")),
    ("AdafactorConfig", Some("adafactor")),
    ("AdaGradConfig", None),
    ("AdanConfig", None),
    ("LambConfig", None),
    ("LBFGSConfig", None),
    ("LionConfig", None),
    ("RmsPropConfig", None),
];
/// What an annotation without a word stands for.
const DEFAULT: &str = "adamw";

/// What the annotation says of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Nothing: it is the default, or there is none.
    Nothing,
    /// Another than the default.
    Other(&'static str),
    /// Nothing, because it is not known which one is meant, or there is no word for it: what to tell the user.
    Open(String),
}

/// The one that the program that trains names, or else any of the code.
pub(super) fn of(code: &Code, chosen: &Code) -> Said {
    let in_code = |code: &Code| OPTIMIZERS.iter().filter(|(config, _)| code.has(config)).collect::<Vec<_>>();
    let found = Some(in_code(chosen)).filter(|found| !found.is_empty()).unwrap_or_else(|| in_code(code));
    let assumed = format!("plans assume {DEFAULT} until it is measured");
    match found[..] {
        [] | [(_, Some(DEFAULT))] => Said::Nothing,
        [(_, Some("sgd"))] if code.has("MomentumConfig") => Said::Other("momentum"),
        [(_, Some(name))] => Said::Other(name),
        // Muon takes matrices only: something else takes the rest.
        [.., (_, Some("muon"))] => Said::Other("muon"),
        [(config, None)] => Said::Open(format!("there is no word for `{config}`: {assumed}")),
        ref several => {
            let configs: Vec<_> = several.iter().map(|(config, _)| format!("`{config}`")).collect();
            Said::Open(format!("`optimizer = …` with the one that trains, of {}: {assumed}", configs.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Said, of};
    use crate::init::proposal::code::Code;

    fn naming(names: &[&str]) -> Code {
        Code { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Code::default() }
    }

    fn found(names: &[&str]) -> Said {
        of(&naming(names), &Code::default())
    }

    #[test]
    fn it_is_what_the_code_names() {
        assert_eq!(found(&["Linear"]), Said::Nothing);
        assert_eq!(found(&["AdamWConfig"]), Said::Nothing);
        assert_eq!(found(&["AdamConfig"]), Said::Other("adam"));
        assert_eq!(found(&["SgdConfig"]), Said::Other("sgd"));
        assert_eq!(found(&["SgdConfig", "MomentumConfig"]), Said::Other("momentum"));
        assert_eq!(found(&["AdamWConfig", "MuonConfig"]), Said::Other("muon"));
    }

    #[test]
    fn the_program_that_trains_counts_before_the_rest() {
        let rest = naming(&["SgdConfig", "AdamConfig"]);
        assert_eq!(of(&rest, &naming(&["AdamConfig"])), Said::Other("adam"));
        let Said::Open(help) = of(&rest, &Code::default()) else { panic!("two are named") };
        assert!(help.contains("of `AdamConfig`, `SgdConfig`"), "{help}");
    }

    #[test]
    fn what_has_no_word_is_told() {
        let Said::Open(help) = found(&["LionConfig"]) else { panic!("it has no word") };
        assert_eq!(help, "there is no word for `LionConfig`: plans assume adamw until it is measured");
    }
}
