//! Names, ids and the compute capability.

use super::{Faults, Strictness};
use crate::device::{ComputeCapability, ProductLine};
use crate::profile::sources::is_source;
use crate::profile::{Peak, Profile};

impl Faults<'_> {
    pub(super) fn identity(&mut self) {
        let Profile { names, pci_ids, .. } = self.profile;
        if names.iter().any(|name| name.trim().is_empty()) {
            self.add("names", ": a name is empty; expected whole product names that nvidia-smi prints");
        }
        for id in pci_ids.iter().filter(|id| !id.is_nvidia()) {
            self.add("pci_ids", format!(": {id} is not NVIDIA's, expected ids that begin with 10de"));
        }
        self.capability();
        self.sources();
    }

    fn capability(&mut self) {
        let Profile { compute_capability: capability, architecture, names, peaks, .. } = self.profile;
        if !capability.is_plausible() {
            let [oldest, newest] = ComputeCapability::PLAUSIBLE;
            let listed = "NVIDIA's list of CUDA GPUs, and later ones";
            let message = format!(" = {capability} is out of range, expected {oldest} to {newest} ({listed})");
            self.add("compute_capability", message);
            return;
        }
        let is_shared = capability.is_integrated();
        let is_board = |name: &String| ProductLine::new(Some(name), *capability) != Some(ProductLine::Integrated);
        if let Some(name) = names.iter().find(|name| is_shared && is_board(name)) {
            let message =
                format!(" = {capability} is that of GPUs that share the host's memory; \"{name}\" has its own");
            self.add("compute_capability", message);
        }
        let known = capability.architecture();
        let is_other = match self.strictness {
            Strictness::Shipped => known != Some(architecture.as_str()),
            Strictness::User => known.is_some() && ComputeCapability::is_architecture(architecture),
        };
        if is_other && known != Some(architecture.as_str()) {
            let expected = known.unwrap_or("that of a listed capability");
            self.add(
                "architecture",
                format!(" = \"{architecture}\", expected {expected} (compute capability {capability})"),
            );
        }
        if peaks.tf32.is_some() && !capability.has_tf32() {
            self.add("peaks.tf32", format!(": compute capability {capability} has no TF32, expected 8.0 or later"));
        }
        if peaks.bf16.is_some() && !capability.has_tensor_bf16() {
            let message = format!(": compute capability {capability} has no bf16 tensor cores, expected 8.0 or later");
            self.add("peaks.bf16", message);
        }
    }

    fn sources(&mut self) {
        let Profile { names_source, pci_ids_source, sources, memory, compute, peaks, board, .. } = self.profile;
        let of_fields = [
            ("names_source", names_source),
            ("pci_ids_source", pci_ids_source),
            ("memory.bandwidth_source", &memory.bandwidth_source),
            ("compute.l2_source", &compute.l2_source),
            ("board.nvlink_source", &board.nvlink_source),
        ];
        let of_fields = of_fields.into_iter().filter_map(|(key, source)| Some((key, source.as_ref()?)));
        let of_peaks = [
            ("peaks.fp32.source", "peaks.fp32.reached_source", &peaks.fp32),
            ("peaks.tf32.source", "peaks.tf32.reached_source", &peaks.tf32),
            ("peaks.bf16.source", "peaks.bf16.reached_source", &peaks.bf16),
            ("peaks.fp16.source", "peaks.fp16.reached_source", &peaks.fp16),
            ("peaks.fp16_native.source", "peaks.fp16_native.reached_source", &peaks.fp16_native),
            ("peaks.fp8.source", "peaks.fp8.reached_source", &peaks.fp8),
        ];
        let of_peaks = of_peaks.into_iter().filter_map(|(key, reached, peak)| Some((key, reached, peak.as_ref()?)));
        let of_peaks = of_peaks.flat_map(|(key, reached_key, peak)| {
            let Peak { source, reached_source, .. } = peak;
            [Some((key, source)), reached_source.as_ref().map(|source| (reached_key, source))]
        });
        let of_profile = sources.iter().map(|source| ("sources", source));
        for (key, codes) in of_fields.chain(of_peaks.flatten()).chain(of_profile) {
            if !codes.split(' ').all(is_source) {
                let expected =
                    "the address of a page, `data-sheet`, `measured` or another code of core/profiles/SOURCES.md";
                self.add(key, format!(" = \"{codes}\" is no source, expected {expected}"));
            }
        }
    }
}
