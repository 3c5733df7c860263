use std::collections::BTreeSet;

use gpu_tuned_core::profile::ProfileTable;

use super::{bare, profiles};

fn named(items: &[&str]) -> Result<Vec<&'static str>, String> {
    let items: Vec<Vec<&str>> = items.iter().map(|item| item.split_whitespace().collect()).collect();
    let found = profiles(ProfileTable::builtin(), &items).map_err(|error| error.to_string())?;
    Ok(found.iter().map(|profile| profile.id.as_str()).collect())
}

#[test]
fn a_gpu_has_many_spellings() {
    for name in ["rtx4090", "RTX 4090", "RTX4090", "rtx-4090", "rtx_4090", "NVIDIA GeForce RTX 4090"] {
        assert_eq!(named(&[name]), Ok(vec!["rtx4090"]), "{name}");
    }
    let several = Ok(vec!["rtx4070-ti", "h200", "rtx4090"]);
    for items in [&["rtx4070ti", "h200", "rtx4090"][..], &["RTX 4070 Ti H200 RTX 4090 h200"]] {
        assert_eq!(named(items), several, "{items:?}");
    }
}

#[test]
fn an_unknown_name_gets_near_ones() {
    for (args, expected) in [
        (&["rtx4900"][..], "no profile `rtx4900`; did you mean `rtx4090`?"),
        (&["RTX 4900 h200"], "no profile `RTX 4900`; did you mean `rtx4090`?"),
        (&["h200", "4090"], "no profile `4090`; did you mean `rtx4090`?"),
        (&["RTX 3080"], "no profile `RTX 3080`; did you mean `rtx3080-10gb` or `rtx3080-12gb`?"),
        (&["rtx4091"], "no profile `rtx4091`; near names are rtx4090, rtx4090-48gb, "),
        (&["H2000"], "no profile `H2000`; near names are h200, h200-nvl"),
        (&["voodoo"], "no profile `voodoo`; gpu-tuned plans for NVIDIA GPUs: "),
        (&["MI300X"], "no profile `MI300X`; it is no NVIDIA GPU: plans are for CUDA or the CPU"),
        (&["RX 7900 XTX"], "no profile `RX 7900 XTX`; it is no NVIDIA GPU: "),
        (&["Arc A770"], "no profile `Arc A770`; it is no NVIDIA GPU: "),
    ] {
        let error = named(args).expect_err("no such GPU");
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}

/// Names of two GPUs in a row must not be the name of a third.
#[test]
fn no_two_names_make_a_third() {
    let ids: BTreeSet<String> = ProfileTable::builtin().iter().map(|profile| bare(profile.id.as_str())).collect();
    let pairs = ids.iter().flat_map(|one| ids.iter().map(move |other| format!("{one}{other}")));
    assert_eq!(pairs.filter(|pair| ids.contains(pair)).collect::<Vec<_>>(), Vec::<String>::new());
}
