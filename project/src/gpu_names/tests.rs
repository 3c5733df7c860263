use std::collections::BTreeSet;
use std::time::Instant;

use gpu_tuned_core::device::MigSize;
use gpu_tuned_core::profile::ProfileTable;

use super::{bare, gpus, profiles};

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

/// Each name was once compared with all words behind it, and a long one with all profiles, letter by letter.
#[test]
fn time_grows_with_the_length_of_a_list_and_of_a_name() {
    let fastest = |work: &dyn Fn()| {
        let times = (0..3).map(|_| {
            let begin = Instant::now();
            work();
            begin.elapsed()
        });
        times.min().expect("three times")
    };
    let of_list = |names: usize| {
        let list = vec!["h200"; names].join(" ");
        fastest(&|| assert_eq!(planned(&list), Ok(vec!["h200".to_owned()])))
    };
    let of_name = |letters: usize| {
        let name = "a".repeat(letters);
        fastest(&|| assert!(named(&[&name]).is_err()))
    };
    // Four times the length: 16 times the time would be that of its square.
    assert!(of_list(80) < 10 * of_list(20));
    assert!(of_name(20_000) < 10 * of_name(5_000));
}

fn planned(name: &str) -> Result<Vec<String>, String> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let found = gpus(ProfileTable::builtin(), &[words]).map_err(|error| error.to_string())?;
    let slice = |size: Option<MigSize>| size.map_or_else(String::new, |size| format!(" {size}"));
    Ok(found.into_iter().map(|gpu| gpu.profile.id.to_string() + &slice(gpu.slice)).collect())
}

/// Names of data sheets, `nvidia-smi`, systems and clouds.
#[test]
fn a_name_without_a_size_or_a_form_stands_for_all() {
    for (name, ids) in [
        ("A100 40GB", "a100-pcie-40gb a100-sxm4-40gb"),
        ("A100-40G", "a100-pcie-40gb a100-sxm4-40gb"),
        ("a100 sxm 80gb", "a100-sxm4-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("nvidia-tesla-t4", "t4"),
        ("Tesla V100 32GB", "v100-pcie-32gb v100-sxm2-32gb v100-sxm3-32gb"),
        ("H100 80GB", "h100-pcie h100-sxm5-80gb"),
        ("H100 SXM", "h100-sxm5-64gb h100-sxm5-80gb h100-sxm5-94gb"),
        ("H100 94GB", "h100-nvl h100-sxm5-94gb"),
        ("H200 SXM 141GB", "h200"),
        ("RTX 3080", "rtx3080-10gb rtx3080-12gb"),
        ("RTX 4090 24GB", "rtx4090"),
        ("RTX 4060 Ti 16GB", "rtx4060-ti-16gb"),
        ("RTX 3060 Mobile", "rtx3060-laptop"),
        ("RTX 3080 Laptop 16GB", "rtx3080-laptop-16gb"),
        ("RTX 6000 Ada", "rtx6000-ada"),
        ("AGX Orin 64GB", "jetson-agx-orin-64gb"),
        ("DGX Spark", "gb10"),
        ("NVIDIA GB10", "gb10"),
        ("p5.48xlarge", "h100-sxm5-80gb"),
        ("DGX Spark p5.48xlarge H200 NVL a2-highgpu-1g", "gb10 h100-sxm5-80gb h200-nvl a100-sxm4-40gb"),
        ("a2-highgpu-1g", "a100-sxm4-40gb"),
        ("Standard_NC24ads_A100_v4", "a100-pcie-80gb"),
        ("A100 40GB MIG 1g.5gb", "a100-pcie-40gb 1g.5gb a100-sxm4-40gb 1g.5gb"),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "a100-sxm4-80gb 3g.40gb"),
        ("h200:1g.18gb t4", "h200 1g.18gb t4"),
        ("h100-sxm5-80gb-mig-1g.10gb+me", "h100-sxm5-80gb 1g.10gb"),
    ] {
        assert_eq!(planned(name).map(|ids| ids.join(" ")).as_deref(), Ok(ids), "{name}");
    }
}

#[test]
fn every_system_has_a_gpu_with_a_profile() {
    for (name, id) in super::SYSTEMS {
        assert!(ProfileTable::builtin().get(id).is_some(), "{name}: {id}");
        assert_eq!(planned(&name.replace('#', "4")), Ok(vec![id.to_owned()]), "{name}");
    }
}

#[test]
fn a_name_of_several_gpus_is_none_where_one_is_needed() {
    let error = named(&["A100 40GB"]).expect_err("there are two");
    assert_eq!(error, "there is no profile `A100 40GB`; did you mean `a100-pcie-40gb` or `a100-sxm4-40gb`?");
}

#[test]
fn a_gpu_without_such_a_slice_is_refused() {
    for name in ["rtx4090 1g.5gb", "a100-sxm4-40gb 1g.10gb t4 1g.2gb", "a30 3g.12gb", "h100-pcie MIG 5g.40gb"] {
        assert!(planned(name).expect_err(name).contains("has no such MIG slice"), "{name}");
    }
}

/// NVIDIA's list of CUDA GPUs has the compute capabilities.
#[test]
fn too_old_gpus_are_refused_by_name() {
    for (name, family) in [
        ("gtx970", "5.2 (Maxwell)"),
        ("NVIDIA GeForce GTX 980 Ti", "5.2 (Maxwell)"),
        ("GTX 960M", "5.2 (Maxwell)"),
        ("GTX 750 Ti", "5.0 (Maxwell)"),
        ("gtx titan x", "5.2 (Maxwell)"),
        ("gtx780", "3.5 (Kepler)"),
        ("GTX 680", "3.0 (Kepler)"),
        ("GT 730", "3.5 (Kepler)"),
        ("Tesla K40", "3.5 (Kepler)"),
        ("M10", "5.2 (Maxwell)"),
        ("Quadro K6000", "3.5 (Kepler)"),
        ("Quadro M4000", "5.2 (Maxwell)"),
        ("Jetson Nano", "5.3 (Maxwell)"),
    ] {
        let error = planned(name).expect_err("Burn needs 6.0");
        let reason = format!("CUDA 13 has dropped compute capability {family}, and Burn needs 6.0 or later");
        assert_eq!(error, format!("there is no profile `{name}`; {reason}"));
    }
}

#[test]
fn an_unknown_name_gets_near_ones() {
    for (args, expected) in [
        (&["rtx4900"][..], "no profile `rtx4900`; did you mean `rtx4090`?"),
        (&["RTX 4900 h200"], "no profile `RTX 4900`; did you mean `rtx4090`?"),
        (&["h200", "4090"], "no profile `4090`; did you mean `rtx4090`?"),
        (&["RTX 3080"], "no profile `RTX 3080`; did you mean `rtx3080-10gb` or `rtx3080-12gb`?"),
        (&["RTX PRO 6000"], "; did you mean `rtx-pro-6000-bw-maxq`, `rtx-pro-6000-bw-server` or `rtx-pro-6000-bw-ws`?"),
        (&["Apple M3 Max"], "no profile `Apple M3 Max`; it is no NVIDIA GPU: "),
        (&["M2 Ultra"], "no profile `M2 Ultra`; it is no NVIDIA GPU: "),
        (&["Gaudi 2"], "no profile `Gaudi 2`; it is no NVIDIA GPU: "),
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
