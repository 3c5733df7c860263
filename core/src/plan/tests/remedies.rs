//! Changes that make a workload fit.

use super::*;
use crate::plan::Remedy;
use crate::plan::misfit::SOLD_IN_CHINA;

#[test]
fn remedies_are_those_that_fit_with_their_memory() {
    // 1.3 B parameters: 21 GB in f32 with AdamW, before any activation. In pure bf16 11 GB, and 5 GB of sums in f32.
    let large = |layers| Transformer { heads: Some(32), ..Transformer::new(layers, 2048, 50257, 512) }.workload();
    let long = Transformer::new(6, 512, 8192, 8192).workload();
    assert_plans(
        "remedies",
        vec![
            ("a large model", nominal("rtx4090"), large(24), global(32)),
            ("long sequences", nominal("gtx1080"), long, global(32)),
            ("ranks share the optimizer's state", nominal("rtx4090"), large(17), global(32)),
            ("the ranks are there", nominal("rtx4090"), large(17), Goal { world_size: 8, ..global(32) }),
        ],
    );
}

#[test]
fn the_larger_gpu_is_of_the_same_kind() {
    let larger = |device: &str, layers: u64| {
        let workload = Transformer::new(layers, 2048, 50257, 512).workload();
        let misfit = misfit(&nominal(device), &workload, &global(32));
        let Some(Remedy::LargerGpu { profile, .. }) = misfit.remedies.last().cloned() else { panic!("{misfit}") };
        profile.expect("some GPU fits")
    };
    let devices = ["rtx4070", "jetson-orin-nx-16gb", "l4", "rtx-a4000", "rtx4090-laptop"];
    assert_eq!(
        devices.map(|device| larger(device, 16)),
        ["rtx5090", "jetson-t4000", "v100-pcie-32gb", "rtx-pro-4500-bw", "rtx-pro-4500-bw"]
    );
    // No GPU for a desktop or a laptop has as much memory.
    assert_eq!(
        devices.map(|device| larger(device, 24)),
        ["rtx-pro-5000-bw-48gb", "jetson-t4000", "l40", "rtx-pro-5000-bw-48gb", "rtx-pro-5000-bw-48gb"]
    );
}

#[test]
fn gpus_sold_in_china_alone_have_profiles() {
    for id in SOLD_IN_CHINA {
        assert!(ProfileTable::builtin().get(id).is_some(), "{id}");
    }
}
