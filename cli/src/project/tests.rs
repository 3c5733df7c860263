use gpu_tuned_core::workload::ModelKind;

#[test]
fn every_help_about_models_lists_every_kind() {
    let command = crate::command();
    let mut lists = 0;
    for command in command.get_subcommands() {
        let help = command.get_arguments().find(|argument| argument.get_id() == "model").map(clap::Arg::get_help);
        let Some(help) = help.flatten().map(ToString::to_string) else { continue };
        let words: Vec<_> = help.split([' ', ',']).collect();
        for kind in ModelKind::requestable() {
            assert!(words.contains(&kind), "{}: {kind} in {help}", command.get_name());
        }
        lists += 1;
    }
    assert_eq!(lists, 3);
}
