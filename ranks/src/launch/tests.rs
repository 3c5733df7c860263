use super::hosts::first_host;
use super::*;

fn launch(variables: &[(&str, &str)]) -> Result<Option<Launch>, LaunchError> {
    Launch::from_lookup(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
}

const TORCHRUN: [(&str, &str); 6] = [
    ("RANK", "3"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "1"),
    ("LOCAL_WORLD_SIZE", "2"),
    ("MASTER_ADDR", "node-a"),
    ("MASTER_PORT", "29500"),
];

#[test]
fn torchrun_is_read() {
    let launch = launch(&TORCHRUN).unwrap().unwrap();
    let expected = Launch {
        rank: 3,
        world_size: 4,
        local_rank: 1,
        local_world_size: Some(2),
        address: "node-a".to_owned(),
        port: 29500,
        secret: None,
        launcher: Launcher::Torch,
    };
    assert_eq!(launch, expected);
    assert!(!launch.is_one_host());
}

#[test]
fn an_agent_of_torchrun_occupies_its_port() {
    let mut variables = TORCHRUN.to_vec();
    variables.push(("TORCHELASTIC_USE_AGENT_STORE", "True"));
    assert_eq!(launch(&variables).unwrap().unwrap().port, 29501);
    variables.push(("GPU_TUNED_PORT", "4000"));
    assert_eq!(launch(&variables).unwrap().unwrap().port, 4000);
}

#[test]
fn the_first_host_of_a_list_is_found() {
    let lists = [
        ("node[03-05,7],gpu1", Some("node03")),
        ("gpu1,node[1-2]", Some("gpu1")),
        ("a-1.b_c", Some("a-1.b_c")),
        ("rack[1-2]n[007,9]x", Some("rack1n007x")),
        ("node[", None),
        ("node[]", None),
        ("node[a-b]", None),
        ("node]", None),
        (",a", None),
        ("", None),
    ];
    for (list, first) in lists {
        assert_eq!(first_host(list).as_deref(), first, "{list}");
    }
}
