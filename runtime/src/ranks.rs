//! Processes that train together: their connection, and the facts of their devices.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::plan::Schedule;
use gpu_tuned_core::{Bytes, exchange};
use gpu_tuned_nvml::Machine;
#[cfg(feature = "cuda")]
use gpu_tuned_observe::progress::Progress;
use gpu_tuned_observe::recording::SlowestRank;
use gpu_tuned_ranks::{Activity, Ended, Group, JoinError, Terms};
use gpu_tuned_train::load::Share;
use gpu_tuned_train::train::{Collectives, Inputs, Peers, PeersEnded, Rank};
use serde_json::{Value, json};
use thiserror::Error;

pub use gpu_tuned_ranks::{EXIT_CODE, Launch, LaunchError, Launcher, Limits};

use crate::decide::{CommonFacts, Decision, DeviceRequest, RankFacts, RanksHere, UnequalShares};
use crate::saved::SavedRun;
use crate::selection::Shortfall;
use crate::tuned::Tuned;

/// The GPU of a rank: the one with its local number, or the only one that it sees. The CPU, if there is none.
///
/// # Errors
///
/// [`RanksError::NoGpu`] if the process sees several GPUs, and fewer than ranks of its host.
pub(crate) fn device(launch: &Launch, machine: &Machine) -> Result<DeviceRequest, RanksError> {
    match (machine.gpus.len(), launch.local_rank) {
        (0, _) => Ok(DeviceRequest::FirstFit),
        (1, _) => Ok(DeviceRequest::This(0)),
        (gpus, local_rank) if local_rank < gpus => Ok(DeviceRequest::This(local_rank)),
        (gpus, local_rank) => Err(RanksError::NoGpu { rank: launch.rank, local_rank, gpus }),
    }
}

/// Connection of this process to the other ranks.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    group: Group,
    /// Ranks on this host.
    local: usize,
    /// Samples of each rank in a step, if they are unequal.
    shares: Option<Arc<[exchange::Share]>>,
    /// Inputs of this rank, for all of its trainers and loaders.
    inputs: Inputs,
    /// Sums between GPUs, for all of its trainers. Empty on the CPU.
    collectives: Arc<OnceLock<Collectives>>,
}

impl Connection {
    /// Number of this process.
    pub(crate) fn number(&self) -> usize {
        self.group.rank()
    }

    /// Name of this process's host.
    pub(crate) fn host(&self) -> String {
        self.group.host().to_owned()
    }

    /// Waits for all ranks.
    pub(crate) fn barrier(&self) -> Result<(), Ended> {
        self.group.barrier()
    }

    /// Waits until all ranks have finished. What ended them is printed elsewhere.
    pub(crate) fn finish(&self) {
        let _ = self.group.finish();
    }

    /// Exchanges messages: all ranks get the reply that the first one makes of them.
    pub(crate) fn meet(
        &self,
        kind: &'static str,
        own: Vec<u8>,
        reply: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>, String>,
    ) -> Result<Vec<u8>, PeersEnded> {
        self.group.meet(kind, own, reply).map_err(|ended| -> PeersEnded { Arc::new(ended) })
    }

    /// The ranks, before they know each other's devices.
    pub(crate) fn unplanned(&self) -> RanksHere {
        let (rank, world_size) = (self.number(), self.group.world_size() as u64);
        RanksHere { rank, world_size, local: self.local as u64, common: None }
    }

    /// The ranks with the facts that apply to all devices. The first rank calls `shares` with all devices.
    pub(crate) fn with_common_facts(
        &self,
        own: &RankFacts,
        shares: impl FnOnce(&[DeviceFacts]) -> Result<Option<UnequalShares>, String>,
    ) -> Result<RanksHere, RanksError> {
        let own = serde_json::to_vec(own).map_err(RanksError::from_json)?;
        let reply = self.group.meet("facts of the devices", own, |all| {
            let all: Result<Vec<RankFacts>, _> = all.iter().map(|facts| serde_json::from_slice(facts)).collect();
            let all = all.map_err(|error| error.to_string())?;
            let common = CommonFacts::new(&all)?;
            let devices: Vec<_> = all.into_iter().map(|rank| rank.facts).collect();
            let common = CommonFacts { shares: shares(&devices)?, ..common };
            serde_json::to_vec(&common).map_err(|error| error.to_string())
        })?;
        let common = serde_json::from_slice(&reply).map_err(RanksError::from_json)?;
        Ok(RanksHere { common: Some(common), ..self.unplanned() })
    }

    /// The connection with unequal shares of a step, if there are any.
    pub(crate) fn with_shares(self, ranks: &RanksHere) -> Self {
        let shares = ranks.common.as_ref().and_then(|common| common.shares.as_ref());
        Self { shares: shares.map(|shares| shares.of_ranks.clone().into()), ..self }
    }

    /// Returns why the library's kernels cannot be used on some rank: the first of the ranks' own reasons, with the rank.
    pub(crate) fn why_no_library(&self, own: Option<String>) -> Result<Option<String>, RanksError> {
        let (rank, host) = (self.number(), self.host());
        let own = own.map(|because| format!("rank {rank} on {host}: {because}")).unwrap_or_default();
        let reply = self.group.meet("kernels", own.into_bytes(), |all| {
            Ok(all.into_iter().find(|because| !because.is_empty()).unwrap_or_default())
        })?;
        let because = String::from_utf8_lossy(&reply).into_owned();
        Ok(Some(because).filter(|because| !because.is_empty()))
    }

    /// Checks that all ranks have the same plan, apart from unequal shares.
    pub(crate) fn agree(&self, decision: &Decision) -> Result<(), RanksError> {
        let plan = &decision.plan;
        let (settings, schedule) = (&plan.settings, &plan.schedule);
        let plan = match &self.shares {
            None => json!({ "settings": settings, "schedule": schedule }),
            Some(shares) => json!({
                "precision": settings.precision,
                "kernels": settings.kernels,
                "global_batch": schedule.global_batch,
                "shares": &**shares,
            }),
        };
        Ok(self.group.agree("plan", &lines(&plan))?)
    }

    /// Ends all ranks with an error of this one.
    pub(crate) fn fail(&self, error: &dyn std::error::Error) {
        self.group.fail(error.to_string());
    }

    /// The rank for a trainer and its loader.
    pub(crate) fn rank(&self, schedule: &Schedule, shards_optimizer: bool) -> Rank {
        Rank::new(self.peers(), self.share(schedule))
            .with_inputs(self.inputs.clone())
            .with_collectives(self.collectives.get().cloned())
            .shard_optimizer(shards_optimizer)
    }

    fn peers(&self) -> Arc<dyn Peers> {
        Arc::new(GroupPeers::new(self.group.clone()))
    }

    /// Connects the GPUs of all ranks by NCCL.
    #[cfg(feature = "cuda")]
    pub(crate) fn join_collectives(&self, device: &burn::tensor::Device) -> Result<(), RanksError> {
        let _progress = Progress::begin("connecting the GPUs of all ranks");
        self.group.set_activity(Activity::Exchanging);
        let joined = Collectives::join(device, &self.peers(), self.number(), self.group.world_size());
        self.group.set_activity(Activity::Working);
        let collectives = joined.map_err(|error| match self.group.ended() {
            Some(ended) => ended.into(),
            None => RanksError::NoCollectives { rank: self.number(), host: self.host(), because: error.to_string() },
        })?;
        self.collectives.get_or_init(|| collectives);
        Ok(())
    }

    /// This rank's share of a step.
    pub(crate) fn share(&self, schedule: &Schedule) -> Share {
        let (rank, ranks) = (self.number(), self.group.world_size());
        let unequal = self.shares.as_ref().and_then(|shares| Share::of(rank, shares));
        let samples = || usize::try_from(schedule.samples_per_rank()).unwrap_or(usize::MAX);
        unequal.unwrap_or_else(|| Share::equal(rank, ranks, samples()))
    }
}

impl Connection {
    /// Joins the other ranks of a launch, which must have the same program, config and saved run. `gpu` is this rank's.
    pub(crate) fn join<C: Tuned>(
        launch: &Launch,
        limits: Limits,
        config: &C,
        saved: Option<&SavedRun>,
        gpu: Option<&GpuReading>,
    ) -> Result<Self, RanksError> {
        let group = Group::join(launch, terms(config, saved, gpu), limits).map_err(with_field)?;
        let local = if launch.is_one_host() { launch.world_size } else { launch.local_world_size.unwrap_or(1) };
        Ok(Self { group, local, shares: None, inputs: Inputs::default(), collectives: Arc::default() })
    }
}

/// Prefix of the terms of config fields.
const FIELD: &str = "config field ";
/// Longest text that ranks exchange as it is.
const LONGEST: usize = 200;
/// Characters of a longer text that an error shows.
const SHOWN: usize = 80;

/// Values with which ranks may train together, and their devices, which differ on a host.
fn terms<C: Tuned>(config: &C, saved: Option<&SavedRun>, gpu: Option<&GpuReading>) -> Terms {
    let terms = Terms::default()
        .same("gpu-tuned", env!("CARGO_PKG_VERSION"))
        .same("config", C::BUILT.config)
        .same("feature cuda", cfg!(feature = "cuda").to_string());
    let fields = config.compared().into_iter();
    let terms = fields.fold(terms, |terms, (name, text)| {
        let name = name.trim_start_matches("r#");
        terms.same(format!("{FIELD}{name}"), shortened(&sorted(&text)))
    });
    let terms = terms
        .same("model", lines(&config.workload()))
        .same("goal", lines(&config.asked()))
        .same("saved run", saved.map_or_else(|| "none".to_owned(), |saved| shortened(&saved.identity())));
    match gpu.and_then(|gpu| gpu.uuid.clone().or_else(|| Some(gpu.pci_address?.to_string()))) {
        Some(gpu) => terms.distinct_on_host("GPU", gpu),
        None => terms,
    }
}

/// The error of a join, with the config field that differs.
fn with_field(error: JoinError) -> RanksError {
    match error {
        JoinError::Term { rank, host, term, value, expected } if term.starts_with(FIELD) => {
            RanksError::Field { field: term[FIELD.len()..].to_owned(), rank, host, value, expected }
        }
        other => other.into(),
    }
}

/// The fields of a value, one a line, as in `layers = 6`: ranks that differ are shown the lines that do.
fn lines(value: &impl serde::Serialize) -> String {
    let mut lines = String::new();
    // Nothing that ranks compare fails to be JSON.
    add_lines("", &serde_json::to_value(value).unwrap_or_default(), &mut lines);
    lines
}

fn add_lines(path: &str, value: &Value, lines: &mut String) {
    let child = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(key, value)| add_lines(&child(key), value, lines));
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            let items = items.iter().enumerate();
            items.for_each(|(position, value)| add_lines(&format!("{path}[{position}]"), value, lines));
        }
        value => lines.extend([path, " = ", &value.to_string(), "\n"]),
    }
}

/// A text, or the beginning and a hash of a long one.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let beginning: String = text.chars().take(SHOWN).collect();
    format!("{beginning}… ({} bytes, hash {:016x})", text.len(), hasher.finish())
}

/// The parts of a `Debug` text, sorted if it may be that of a hash map, which has another order in each process.
fn sorted(text: &str) -> String {
    if !text.contains('{') {
        return text.to_owned();
    }
    let mut parts: Vec<_> = text.split(['{', '}', '[', ']', '(', ')', ',']).map(str::trim).collect();
    parts.sort_unstable();
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

impl CommonFacts {
    /// What ranks have in common, in their order.
    ///
    /// # Errors
    ///
    /// A sentence, if some ranks are on the CPU and others are not.
    pub(crate) fn new(ranks: &[RankFacts]) -> Result<Self, String> {
        let differs = |rank: &&RankFacts| rank.facts.kind != ranks[0].facts.kind;
        if let Some(at) = ranks.iter().position(|rank| differs(&rank)) {
            let device = |rank: usize| format!("rank {rank} on {} has {}", ranks[rank].host, ranks[rank].facts.name);
            return Err(format!(
                "{}, and {}: ranks are all on GPUs or all on the CPU; mend the one without a GPU, or start all with \
                 `Options::cpu`",
                device(0),
                device(at)
            ));
        }
        let facts = DeviceFacts::common(ranks.iter().map(|rank| &rank.facts)).ok_or("there is no rank")?;
        Ok(Self {
            facts,
            built_for: ranks.iter().map(|rank| rank.built_for).reduce(|a, b| Some(a? && b?)).flatten(),
            is_target: ranks.iter().all(|rank| rank.is_target),
            weakest: shortfalls(ranks),
            shares: None,
        })
    }
}

/// In what the weakest of several ranks fall behind: each such figure once, with the rank that has least of it.
fn shortfalls(ranks: &[RankFacts]) -> Vec<Shortfall> {
    let host = |rank: usize| ranks[rank].host.clone();
    let bytes = extremes(ranks, |facts| Some(facts.memory_available.0 as f64));
    let memory = bytes.map(|(rank, free, most)| {
        let bytes = |figure| Bytes(figure as u64);
        Shortfall::Memory { rank, host: host(rank), free: bytes(free), most: bytes(most) }
    });
    let rate = extremes(ranks, |facts| facts.fp32_tflops);
    let rate = rate.map(|(rank, tflops, most)| Shortfall::Rate { rank, host: host(rank), tflops, most });
    let bandwidth = extremes(ranks, |facts| facts.bandwidth_gb_s);
    let bandwidth = bandwidth.map(|(rank, gb_s, most)| Shortfall::Bandwidth { rank, host: host(rank), gb_s, most });
    let bf16 = extremes(ranks, |facts| Some(f64::from(u8::from(facts.has_bf16))));
    let bf16 = bf16.map(|(rank, ..)| Shortfall::Bf16 { rank, host: host(rank) });
    [memory, rate, bandwidth, bf16].into_iter().flatten().collect()
}

/// Less than a hundredth is no difference: a display takes more memory than that.
const ALIKE: f64 = 0.99;

/// Rank and value of the device with the least, and the largest value; `None` if all are equal or one is unknown.
fn extremes(ranks: &[RankFacts], figure: impl Fn(&DeviceFacts) -> Option<f64>) -> Option<(usize, f64, f64)> {
    let all: Option<Vec<_>> = ranks.iter().map(|rank| figure(&rank.facts)).collect();
    let all: Vec<_> = all?.into_iter().enumerate().collect();
    let (rank, least) = all.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = all.iter().map(|(_, value)| *value).max_by(f64::total_cmp)?;
    (least < most * ALIKE).then_some((rank, least, most))
}

/// Connection of a trainer to the other ranks.
#[derive(Debug)]
struct GroupPeers {
    group: Group,
    steps: AtomicU64,
}

impl GroupPeers {
    fn new(group: Group) -> Self {
        Self { group, steps: AtomicU64::new(0) }
    }
}

impl Peers for GroupPeers {
    fn sum(&self, values: Vec<f32>) -> Result<Vec<f32>, PeersEnded> {
        self.group.sum(values).map_err(|ended| -> PeersEnded { Arc::new(ended) })
    }

    fn agree(&self, name: &'static str, value: String) -> Result<(), PeersEnded> {
        self.group.agree(name, &value).map_err(|ended| -> PeersEnded { Arc::new(ended) })
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, PeersEnded> {
        self.group.broadcast(own).map_err(|ended| -> PeersEnded { Arc::new(ended) })
    }

    fn fail(&self, message: &str) {
        self.group.fail(message);
    }

    fn ended(&self) -> Option<PeersEnded> {
        self.group.ended().map(|ended| -> PeersEnded { Arc::new(ended) })
    }

    fn on_end(&self, hook: Box<dyn FnOnce() + Send>) {
        self.group.on_end(hook);
    }

    fn set_waiting(&self, is_waiting: bool) {
        self.group.set_activity(if is_waiting { Activity::Exchanging } else { Activity::Working });
    }

    fn set_step_seconds(&self, seconds: f64) {
        self.group.record_step(self.steps.fetch_add(1, Ordering::Relaxed), seconds);
    }

    fn slowest(&self) -> Option<SlowestRank> {
        let times = self.group.step_times();
        SlowestRank::of(times.iter().map(|time| (time.rank as u64, time.host.as_str(), time.seconds)))
    }
}

/// Why this process cannot train with the other ranks.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RanksError {
    /// The launcher's variables are incomplete or wrong.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The process was not launched as a rank.
    #[error(
        "no launcher has set the rank of this process: start the program with `cargo gpu-tuned launch`, torchrun, mpirun or \
         srun, or make the ranks optional with `Options::distributed_if_launched`"
    )]
    NotLaunched,
    /// The ranks did not come together.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A field of the config has another value than on rank 0.
    #[error(
        "`{field}` of the config is {value} on rank {rank} ({host}), but {expected} on rank 0: start all ranks with one value, \
         or mark the field `#[tuned(per_rank)]` if it may differ"
    )]
    Field {
        /// The field.
        field: String,
        /// Rank that differs.
        rank: usize,
        /// Its host.
        host: String,
        /// `Debug` text of the value on that rank; for a long one its beginning, and a hash.
        value: String,
        /// The same on rank 0.
        expected: String,
    },
    /// There is no GPU for this rank.
    #[error(
        "LOCAL_RANK of rank {rank} is {local_rank}, and the process sees {gpus} GPUs: start at most {gpus} ranks on this host, or let each \
         rank see its own GPU only (CUDA_VISIBLE_DEVICES)"
    )]
    NoGpu {
        /// Number of the process.
        rank: usize,
        /// Number of the process among those of its host.
        local_rank: usize,
        /// GPUs that the process can use.
        gpus: usize,
    },
    /// The GPU of this rank does not work, and the other ranks count on it.
    #[error("the GPU of rank {rank} on {host} cannot be used: {because}")]
    Device {
        /// Rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Reason: one sentence.
        because: String,
    },
    /// Gradients cannot be exchanged between GPUs.
    #[error("gradients cannot be exchanged between GPUs, by rank {rank} on {host}: {because}")]
    NoCollectives {
        /// Rank.
        rank: usize,
        /// Its host.
        host: String,
        /// Reason, and what to do.
        because: String,
    },
    /// A message of another rank cannot be read.
    #[error("a message of another rank cannot be read: {message}; start the same program on all ranks")]
    Message {
        /// Reason.
        message: String,
    },
    /// The ranks were ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

impl RanksError {
    #[expect(clippy::needless_pass_by_value, reason = "the argument of `map_err`")]
    fn from_json(error: serde_json::Error) -> Self {
        Self::Message { message: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use serde_json::json;

    use super::{LONGEST, lines, shortened, sorted};

    #[test]
    fn each_field_has_a_line() {
        let value =
            json!({ "model": { "layers": 6, "widths": [1, 2] }, "stages": [{ "repeat": 2 }, {}], "goal": null });
        let mut found: Vec<_> = lines(&value).lines().map(str::to_owned).collect();
        found.sort();
        let expected =
            ["goal = null", "model.layers = 6", "model.widths = [1,2]", "stages[0].repeat = 2", "stages[1] = {}"];
        assert_eq!(found, expected);
    }

    #[test]
    fn hash_maps_have_one_text() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "the text is compared")]
        struct Config {
            text: &'static str,
            weights: HashMap<u32, Vec<Option<f32>>>,
            names: HashSet<String>,
        }
        let config = |keys: &mut dyn Iterator<Item = u32>| {
            let keys: Vec<_> = keys.collect();
            let weights = keys.iter().map(|key| (*key, vec![None, Some(*key as f32)])).collect();
            let names = keys.iter().map(|key| format!("{key}, \"}}{{")).collect();
            sorted(&format!("{:?}", Config { text: "a }, { \\\"", weights, names }))
        };
        let first = config(&mut (0..20));
        assert_eq!(first, config(&mut (0..20).rev()));
        assert_ne!(first, config(&mut (0..21)));
    }

    #[test]
    fn other_texts_keep_their_order() {
        for text in ["[2, 1]", "Some(\"b, a\")", "a}", ""] {
            assert_eq!(sorted(text), text);
        }
        assert_ne!(sorted("A { a: 1, b: 2 }"), sorted("A { a: 2, b: 1 }"));
    }

    #[test]
    fn long_texts_are_compared_by_their_hash() {
        let long = |end: &str| shortened(&format!("{}{end}", "ä".repeat(LONGEST)));
        assert_eq!(long("a"), long("a"));
        assert_ne!(long("a"), long("b"));
        assert!(long("a").starts_with("ää") && long("a").len() < LONGEST, "{}", long("a"));
    }
}
