use crate::project::Project;

#[test]
fn the_exchange_between_ranks_is_predicted_over_the_named_links() {
    let project = Project::new("declared");
    let plan = |links: &[&str]| {
        let model = ["plan", "h100-sxm5-80gb", "--model", "mlp(widths = [4096, 4096, 4096])", "--global-batch", "4096"];
        project.run(&[&model, links].concat())
    };
    let exchange = |links: &[&str]| {
        let rows = plan(&[links, &["--json"]].concat()).json(0);
        rows["plans"][0]["exchange"].clone()
    };
    assert!(exchange(&[]).is_null(), "one rank exchanges nothing");
    let [nvlink, pcie] = ["nvlink", "pcie"].map(|link| exchange(&["--world-size", "2", "--link", link]));
    let ms = |exchange: &serde_json::Value| exchange["step_ms"].as_f64().expect("a figure");
    assert!(ms(&pcie) > 5.0 * ms(&nvlink), "{pcie} {nvlink}");
    assert!(pcie["topology"]["within"]["source"].as_str().is_some_and(|source| source.contains("nccl")), "{pcie}");
    // 2 x (4096 x 4096 + 4096) values of 4 bytes.
    assert_eq!(pcie["gradient_bytes"].as_u64(), Some(2 * (4096 * 4096 + 4096) * 4));
    let hosts = exchange(&["--world-size", "16", "--link", "nvlink,8x100g"]);
    assert_eq!(
        (hosts["topology"]["between"]["name"].as_str(), hosts["topology"]["adapters"].as_u64()),
        (Some("100g"), Some(8))
    );
    let text = plan(&["--world-size", "16", "--ranks-per-host", "4", "--link", "pcie,400g"]).ended(0);
    assert!(text.contains("over pcie and 1 x 400g") && text.contains("of a step; at most 10%"), "{text}");
    for wrong in ["2xnvlink", "infiniband", "0x400g", "65x400g"] {
        let ran = plan(&["--world-size", "2", "--link", wrong]);
        assert!(ran.stderr.contains("expected one of nvlink, pcie, sockets, 100g, 400g"), "{wrong}: {}", ran.stderr);
    }
}

#[test]
fn a_report_on_several_ranks_has_the_exchange() {
    let project = Project::new("declared");
    for (ranks, is_there) in [("1", false), ("2", true)] {
        let page = format!("{ranks}.html");
        let model = ["--target", "h200", "--global-batch", "64", "--world-size", ranks, "-o", &page];
        let ran = project.run(&[&["report"], &model[..]].concat());
        let text = project.read(&page);
        assert_eq!(text.contains("of gradients over nvlink: "), is_there, "{ranks}: {}", ran.stderr);
    }
}
