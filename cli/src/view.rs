//! Plans, explanations and findings as several commands print them.

use core::str::FromStr;

use gpu_tuned_core::device::{DeviceKind, EstimatedFigure, MemoryKind};
use gpu_tuned_core::dims::{self, DimValue};
use gpu_tuned_core::exchange::{Exchange, Link, Topology, summed_bytes};
use gpu_tuned_core::measured::{Measured, MeasurementMethod};
use gpu_tuned_core::plan::{Explanation, Outcome, Plan, PrecisionVerdict, Verdict, with_interval};
use gpu_tuned_core::profile::{Basis, Memory, Peak, Peaks, Profile};
use gpu_tuned_core::workload::{ModelSpec, Workload};
use gpu_tuned_core::{Bytes, Goal, Provenance, Setting, SettingKind, SettingValue, grouped, three_digits};
use gpu_tuned_observe::diagnose::{Finding, Quantity};

use crate::args::{GoalArgs, positive};
use crate::output::{BOLD, FAINT, GOOD, MARKED, PLAIN, Table, or_dash, section, styled, wrapped};
use crate::project::{Described, Project};
use crate::target::Target;

/// Expected effect of a change, and the reason.
pub(crate) fn expectation(finding: &Finding) -> String {
    let Some(prediction) = &finding.prediction else {
        return "the recording does not show how much this gains".to_owned();
    };
    let (now, then) = (prediction.quantity.describe(prediction.now), prediction.quantity.describe(prediction.then));
    let what = match prediction.quantity {
        Quantity::FailsAtStep => format!("without it, out of memory at {then}"),
        Quantity::FailsAfterS => format!("without it, out of memory in {then}"),
        _ if now == then => format!("{now}, as now"),
        Quantity::SamplesPerS => format!("{then} in place of {now}, {:.2} times as fast", finding.gain()),
        _ => format!("{then} in place of {now}"),
    };
    let behind = finding.behind.map_or_else(String::new, |kind| format!("; more once {kind} is fixed"));
    format!("{what}{behind}: {}", prediction.how)
}

/// Name of a figure with its unit, and its divisor.
pub(crate) fn readable(key: &str) -> (String, f64) {
    const UNITS: [(&str, &str, f64); 6] = [
        ("_bytes_per_s", "MB/s", 1e6),
        ("_bytes", "GiB", (1_u64 << 30) as f64),
        ("_percent", "%", 1.0),
        ("_mhz", "MHz", 1.0),
        ("_w", "W", 1.0),
        ("_c", "°C", 1.0),
    ];
    let unit = UNITS.into_iter().find_map(|(suffix, unit, scale)| Some((key.strip_suffix(suffix)?, unit, scale)));
    let Some((name, unit, scale)) = unit else { return (key.to_owned(), 1.0) };
    let words = name.split('_').map(|word| match word {
        "cpu" | "dram" | "gpu" | "sm" => word.to_uppercase(),
        "pcie" => "PCIe".to_owned(),
        word => word.to_owned(),
    });
    (format!("{}, {unit}", words.collect::<Vec<_>>().join(" ")), scale)
}

/// Headings of a plan's [`cells`]; those of numbers begin with `>`.
pub(crate) fn headings(first: &str) -> Vec<String> {
    let mark = |setting: Setting| if setting.kind() == SettingKind::Count { ">" } else { "" };
    let settings = listed().map(|(setting, heading)| format!("{}{heading}", mark(setting)));
    let others = [">needed", ">available", ">samples/s"].map(str::to_owned);
    core::iter::once(first.to_owned()).chain(settings).chain(others).collect()
}

/// Settings that tables of plans have a column for.
fn listed() -> impl Iterator<Item = (Setting, &'static str)> {
    Setting::ALL.into_iter().filter_map(|setting| Some((setting, setting.row().heading?)))
}

/// The target, then the cells of a plan.
pub(crate) fn cells(target: &str, plan: &Plan) -> Vec<String> {
    let settings = listed().map(|(setting, _)| match plan.settings.get(setting) {
        SettingValue::Count(count) => grouped(count),
        SettingValue::Flag(flag) => if flag { "on" } else { "off" }.to_owned(),
        SettingValue::Precision(precision) => precision.to_string(),
        SettingValue::Kernels(kernels) => kernels.to_string(),
    });
    let memory = &plan.memory;
    let speed = with_interval(plan.samples_per_s, plan.samples_per_s_interval);
    let others = [memory.total().to_string(), memory.available.to_string(), speed];
    core::iter::once(target.to_owned()).chain(settings).chain(others).collect()
}

/// End of a row for a plan with CUDA graphs, which have no column of their own.
pub(crate) const fn with_graphs(plan: &Plan) -> &'static str {
    if plan.settings.cuda_graphs { ", with CUDA graphs" } else { "" }
}

/// Note on workloads whose micro-batch a program keeps on any machine.
pub(crate) fn kept_from_builds(workloads: &[Described<'_>], here: bool) -> Option<String> {
    let with_statistics = |described: &&Described<'_>| described.workload().batch_statistics;
    let names: Vec<_> =
        workloads.iter().filter(with_statistics).map(|described| format!("`{}`", described.name)).collect();
    (here && !names.is_empty()).then(|| {
        format!(
            "{}: a model with statistics over the micro-batch keeps the micro-batch of its build wherever that fits; this is \
             the plan of a build for this machine",
            names.join(", ")
        )
    })
}

/// Parameters, optimizer, step size and origin of the costs of a workload.
pub(crate) fn heading(described: &Described<'_>, goal: &GoalArgs) -> String {
    let (workload, goal) = (described.workload(), goal.over(described.goal.clone()));
    let step = match (goal.global_batch, goal.global_tokens) {
        (Some(samples), _) => format!("global batch {}", grouped(samples)),
        (None, Some(tokens)) => format!("{} tokens a step", grouped(tokens)),
        (None, None) => "no global batch".to_owned(),
    };
    let costs = describe_costs(&workload);
    let parameters = grouped(workload.trained_parameters().0);
    let name = styled(BOLD, described.name);
    let dropout = describe_dropout(&workload.spec.model);
    wrapped(&format!("{name}: {parameters} parameters, {}{dropout}, {step}, {costs}", workload.optimizer), 2)
}

/// Dropout of a model with the option, which is on by default and takes memory.
fn describe_dropout(model: &ModelSpec) -> &'static str {
    match (dims::named(model.kind().dims, "dropout"), model.values().get("dropout")) {
        (None, _) => "",
        (Some(_), Some(DimValue::Flag(false))) => ", without dropout",
        (Some(_), _) => ", with dropout",
    }
}

pub(crate) fn describe_costs(workload: &Workload) -> String {
    workload.measured.describe().unwrap_or_else(|| match workload.provenance {
        Provenance::Declared => "costs as declared".to_owned(),
        _ => "costs from its dimensions".to_owned(),
    })
}

/// GPUs of usual servers.
const RANKS_PER_HOST: u64 = 8;

/// Links between the ranks.
#[derive(Debug, clap::Args)]
pub(crate) struct ExchangeArgs {
    /// Links between the ranks, such as `nvlink,8x400g`: nvlink, pcie or sockets within a host (default: NVLink if the GPU
    /// has it), sockets, 100g or 400g between hosts (default: 400g), where a number counts a host's network adapters. Given
    /// links count in the choice of the settings, too
    #[arg(long, value_name = "LINKS")]
    link: Option<Links>,
    /// Ranks of each host
    #[arg(long, value_name = "RANKS", default_value_t = RANKS_PER_HOST, value_parser = positive)]
    ranks_per_host: u64,
}

#[derive(Clone, Copy, Debug)]
struct Links {
    within: Option<Link>,
    between: Option<(Link, u64)>,
}

impl FromStr for Links {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let links = text.split(',').map(link).collect::<Result<Vec<_>, _>>()?;
        // Sockets are links of both kinds.
        let only = |is: fn(&Link) -> bool| {
            links.iter().filter(move |(link, _)| is(link) && link.is_local() != link.is_network())
        };
        if links.len() > 2 || only(Link::is_local).count() > 1 || only(Link::is_network).count() > 1 {
            return Err("expected one link within a host and one between hosts, such as nvlink,8x400g".to_owned());
        }
        let first = |is| only(is).next().or_else(|| links.iter().rev().find(|(link, _)| is(link))).copied();
        Ok(Self { within: first(Link::is_local).map(|(link, _)| link), between: first(Link::is_network) })
    }
}

/// Parses a link and the number of its adapters.
fn link(text: &str) -> Result<(Link, u64), String> {
    let counted = text.split_once('x').and_then(|(count, name)| Some((count.parse().ok()?, name)));
    let (adapters, name) = counted.unwrap_or((1, text));
    let link = Link::named(name).filter(|link| (1..=64).contains(&adapters) && (adapters == 1 || link.is_network()));
    let names = || Link::ALL.map(|link| link.name).join(", ");
    link.map(|link| (link, adapters))
        .ok_or_else(|| format!("expected one of {}, or a number of adapters: 8x400g", names()))
}

impl Default for ExchangeArgs {
    fn default() -> Self {
        Self { link: None, ranks_per_host: RANKS_PER_HOST }
    }
}

impl ExchangeArgs {
    /// Note on links that are given for one rank.
    pub(crate) fn note(&self, goal: &Goal) -> Option<String> {
        let is_given = self.link.is_some() || self.ranks_per_host != RANKS_PER_HOST;
        let note = || "one rank uses no links: --link and --ranks-per-host count with --world-size from 2".to_owned();
        (is_given && goal.world_size < 2).then(note)
    }

    /// The goal, with the exchange over links that are given. A build does not know the links, so the default ones count in
    /// speeds only: see [`predict`](Self::predict).
    pub(crate) fn over(&self, goal: Goal, target: &Target, workload: &Workload) -> Goal {
        let given = self.topology(target, goal.world_size).filter(|_| self.link.is_some());
        let exchange_s =
            given.map_or(0.0, |topology| topology.all_reduce_s(summed_bytes(workload, goal.shard_optimizer)));
        Goal { exchange_s, ..goal }
    }

    /// Predicts the exchange of a plan for several ranks, and seconds of each step that its speed lacks. `goal` is that of the
    /// plan.
    pub(crate) fn predict(
        &self,
        target: &Target,
        workload: &Workload,
        plan: &Plan,
        goal: &Goal,
    ) -> Option<(Exchange, f64)> {
        let topology = self.topology(target, plan.schedule.world_size)?;
        let mut computing = plan.clone();
        computing.count_exchange(-goal.exchange_s);
        let exchange = Exchange::new(&computing, workload, goal.shard_optimizer, topology);
        Some((exchange, exchange.step_ms / 1e3 - goal.exchange_s))
    }

    /// Predicts the exchange of an explained plan, and counts it in the speeds.
    pub(crate) fn count(
        &self,
        target: &Target,
        workload: &Workload,
        goal: &Goal,
        explanation: &mut Explanation,
    ) -> Option<Exchange> {
        let Outcome::Plan(plan) = &explanation.outcome else { return None };
        let (exchange, missing_s) = self.predict(target, workload, plan, goal)?;
        explanation.count_exchange(missing_s);
        Some(exchange)
    }

    /// Links between ranks; `None` for one rank.
    fn topology(&self, target: &Target, ranks: u64) -> Option<Topology> {
        let profile = target.profile.as_ref();
        let within = self.link.and_then(|links| links.within).map_or("nvlink", |link| link.name);
        let link = |name| Link::within_host(profile, name, ranks.min(self.ranks_per_host));
        let within = link(within).or_else(|| link("pcie"))?;
        let (between, adapters) = self.link.and_then(|links| links.between).unwrap_or((Link::named("400g")?, 1));
        let topology = Topology { ranks, ranks_per_host: self.ranks_per_host, within, between, adapters };
        (ranks > 1).then_some(topology)
    }
}

pub(crate) fn describe_exchange(exchange: &Exchange) -> String {
    let Exchange { topology, bytes, shards_optimizer, step_ms, step_share, tenth_from_batch, tenth_to_ranks } =
        exchange;
    let summed = if *shards_optimizer { "gradients and new parameters" } else { "gradients" };
    let Topology { ranks, ranks_per_host, within, between, adapters } = topology;
    let links = if ranks <= ranks_per_host {
        within.name.to_owned()
    } else {
        format!("{} and {adapters} x {}", within.name, between.name)
    };
    let most = match tenth_to_ranks {
        Some(ranks) => format!("or with this one among up to {} ranks", grouped(*ranks)),
        None => "and more with this one on any number of ranks".to_owned(),
    };
    format!(
        "exchange of {bytes} of {summed} over {links}: {} ms, {:.1}% of a step; at most 10% from a global batch of \
         {}, {most}",
        three_digits(*step_ms),
        step_share * 100.0,
        grouped(*tenth_from_batch)
    )
}

const FIGURES: [&str; 2] = ["", ">"];

pub(crate) fn explanation(project: &Project, target: &Target, explanation: &Explanation) -> String {
    let mut text = section("device", &of_device(project, target));
    text += &section("workload", &of_workload(explanation));
    text += &section(&memory_heading(explanation), &memory(explanation));
    if let Outcome::Plan(plan) = &explanation.outcome {
        text += &section(&time_heading(plan), &time(explanation, plan));
    }
    if explanation.precisions.len() > 1 {
        text += &section("precisions considered", &precisions(explanation));
    }
    text += &section("micro-batches considered", &considered(explanation));
    match &explanation.outcome {
        Outcome::Plan(plan) => {
            text += &section("settings", &settings(plan));
            text.extend(plan.advice.iter().map(|advice| format!("\n{}", aside("note:", advice))));
        }
        Outcome::Misfit(misfit) => {
            text.push('\n');
            text.extend(misfit.remedies.iter().map(|remedy| aside("help:", &remedy.to_string())));
        }
    }
    text
}

/// A line with a label.
pub(crate) fn aside(label: &str, text: &str) -> String {
    format!("{} {}\n", styled(MARKED, label), wrapped(text, label.len() + 1))
}

fn of_device(project: &Project, target: &Target) -> String {
    let mut table = Table::new(2, FIGURES);
    for (name, value, from) in device_facts(target) {
        table.row(PLAIN, [name.to_owned(), value], styled(FAINT, from));
    }
    let profile = device_profile(project, target);
    table.print() + &profile.map_or_else(String::new, |profile| format!("  {}\n", styled(FAINT, wrapped(&profile, 2))))
}

fn of_workload(explanation: &Explanation) -> String {
    let workload = &explanation.workload;
    let (parameters, sample) = (&workload.parameters, &workload.sample);
    let mut table = Table::new(2, FIGURES);
    let figures = [
        ("frozen parameters", (parameters.frozen > 0).then(|| grouped(parameters.frozen))),
        ("packed weights", (parameters.packed > Bytes::ZERO).then(|| parameters.packed.to_string())),
        ("kept for each sample", Some(sample.activations.to_string())),
        ("  with checkpointing", sample.checkpointed_activations.map(|bytes| bytes.to_string())),
        ("input of a sample", sample.input.map(|bytes| bytes.to_string())),
        ("operations on a sample", Some(format!("{:.3e}", sample.flops))),
        ("kernels of a step", Some(grouped(workload.kernels))),
    ];
    let (trained, counted) = workload.trained_parameters();
    table.row(PLAIN, ["trained parameters".to_owned(), grouped(trained)], styled(FAINT, counted));
    for (name, value) in figures {
        if let Some(value) = value {
            table.row(PLAIN, [name.to_owned(), value], styled(FAINT, workload.provenance));
        }
    }
    if let Some(ms) = sample.host_ms {
        let is_measured = workload.measured.host_ms_per_sample == Some(ms);
        let from = if is_measured { Provenance::Measured } else { workload.provenance };
        table.row(PLAIN, ["preparing a sample".to_owned(), format!("{ms} ms")], styled(FAINT, from));
    }
    table.row(PLAIN, ["optimizer".to_owned(), workload.optimizer.to_string()], String::new());
    table.print() + &measured(&workload.measured)
}

pub(crate) const fn method(method: MeasurementMethod) -> &'static str {
    match method {
        MeasurementMethod::Executed => "executed",
        MeasurementMethod::DryRun => "dry run",
        MeasurementMethod::Simulated => "CPU trace",
    }
}

/// Measurements: a line for each device and mode.
fn measured(measured: &Measured) -> String {
    let mut table = Table::new(2, FIGURES);
    for (name, on) in &measured.on {
        for (mode, of_mode) in &on.mode {
            let batches: Vec<_> = of_mode.batch.keys().map(|batch| grouped(*batch)).collect();
            let found = format!("at batch {} ({}, Burn {})", batches.join(", "), method(of_mode.method), on.burn);
            let which = match of_mode.method {
                MeasurementMethod::Executed | MeasurementMethod::DryRun => format!("measured on {name}"),
                MeasurementMethod::Simulated => format!("simulated for {}", Measured::simulated_profile(name)),
            };
            table.row(PLAIN, [which, mode.to_string()], styled(FAINT, found));
        }
    }
    table.print()
}

fn memory_heading(explanation: &Explanation) -> String {
    let checkpointing = match &explanation.outcome {
        Outcome::Plan(plan) => plan.settings.gradient_checkpointing,
        Outcome::Misfit(misfit) => misfit.checkpointing,
    };
    let how = if checkpointing { " with checkpointing" } else { "" };
    format!("memory at batch {}{how}", grouped(explanation.outcome.memory().batch))
}

fn memory(explanation: &Explanation) -> String {
    let mut table = Table::new(2, FIGURES);
    for item in &explanation.memory {
        table.row(PLAIN, [item.name.to_owned(), item.bytes.to_string()], made_of(&item.formula, item.provenance));
    }
    let memory = explanation.outcome.memory();
    let share = memory.headroom_share() * 100.0;
    let left = format!("= {} available - {} ({share:.0}%) memory headroom", memory.available, memory.headroom);
    let rest = if explanation.needed <= explanation.budget {
        format!("{} to spare", explanation.budget - explanation.needed)
    } else {
        format!("{} too much", explanation.needed - explanation.budget)
    };
    table.row(BOLD, ["needed".to_owned(), explanation.needed.to_string()], format!("= the sum; {rest}"));
    table.row(BOLD, ["budget".to_owned(), explanation.budget.to_string()], left);
    table.print()
}

fn made_of(formula: &str, provenance: Provenance) -> String {
    format!("= {formula} {}", styled(FAINT, format!("({provenance})")))
}

fn time_heading(plan: &Plan) -> String {
    let schedule = &plan.schedule;
    let ranks =
        if schedule.world_size > 1 { format!(" on each of {} ranks", schedule.world_size) } else { String::new() };
    format!("time of a step of {} samples{ranks}", grouped(schedule.samples_per_rank()))
}

fn time(explanation: &Explanation, plan: &Plan) -> String {
    let mut table = Table::new(2, FIGURES);
    let milliseconds = |seconds: f64| format!("{:.3} ms", seconds * 1e3);
    for term in &explanation.time {
        table.row(PLAIN, [term.name.to_owned(), milliseconds(term.seconds)], made_of(&term.formula, term.provenance));
    }
    let total = explanation.time.iter().map(|term| term.seconds).sum();
    let speed = with_interval(plan.samples_per_s, plan.samples_per_s_interval);
    let error = plan.samples_per_s_error.map_or_else(String::new, |error| format!(", ± {error}"));
    let speed = format!("{speed} samples/s, {}{error}", provenance(plan.samples_per_s_provenance));
    table.row(BOLD, ["step".to_owned(), milliseconds(total)], format!("= the sum; {speed}"));
    table.print()
}

fn provenance(provenance: Provenance) -> String {
    match provenance {
        Provenance::Derived => "from the data sheet".to_owned(),
        other => other.to_string(),
    }
}

fn precisions(explanation: &Explanation) -> String {
    let mut table = Table::new(0, ["", "precision", ">batch", ">memory", ">samples/s"]);
    for one in &explanation.precisions {
        let is_taken = one.verdict == PrecisionVerdict::Taken;
        let cells = [
            if is_taken { ">" } else { "" }.to_owned(),
            one.precision.to_string(),
            or_dash(one.batch_size.map(grouped)),
            or_dash(one.memory.map(|bytes| bytes.to_string())),
            or_dash(one.samples_per_s.map(|speed| with_interval(speed, one.samples_per_s_interval))),
        ];
        table.row(if is_taken { GOOD } else { PLAIN }, cells, one.verdict.to_string());
    }
    table.print()
}

fn considered(explanation: &Explanation) -> String {
    let columns = ["", ">batch", ">accum.", "ckpt.", ">memory", ">samples/s"];
    let mut table = Table::new(0, columns);
    for one in &explanation.considered {
        let is_taken = one.verdict == Verdict::Taken;
        let cells = [
            if is_taken { ">" } else { "" }.to_owned(),
            grouped(one.batch_size),
            grouped(one.micro_steps),
            if one.gradient_checkpointing { "on" } else { "off" }.to_owned(),
            one.memory.to_string(),
            or_dash(one.samples_per_s.map(|speed| with_interval(speed, one.samples_per_s_interval))),
        ];
        let mark = if one.kernels.is_library() { ", library kernels" } else { "" };
        table.row(if is_taken { GOOD } else { PLAIN }, cells, format!("{}{mark}", one.verdict));
    }
    table.print()
}

fn settings(plan: &Plan) -> String {
    let mut table = Table::new(2, FIGURES);
    for reason in &plan.reasons {
        let value = plan.settings.get(reason.setting).to_string();
        let why = format!("{} {}", reason.why, styled(FAINT, format!("({})", reason.provenance)));
        table.row(PLAIN, [Setting::name(reason.setting).to_owned(), value], why);
    }
    if let Some(threads) = plan.cpu_threads {
        table.row(PLAIN, ["cpu threads".to_owned(), threads.to_string()], "CPU cores without those of the workers");
    }
    table.print()
}

/// A figure: name, value, and origin.
type Fact = (&'static str, String, String);

/// Origin of figures that neither the driver nor a profile reports.
const ESTIMATE: &str = "estimate by compute capability and memory";

fn device_facts(target: &Target) -> Vec<Fact> {
    let facts = &target.facts;
    let is_read = facts.memory_provenance == Provenance::Measured;
    let profile = target.profile.as_ref();
    let known = |figure: Option<f64>, unit: &str| {
        figure.map_or_else(|| "unknown".to_owned(), |figure| format!("{figure:.1} {unit}"))
    };
    let memory = match (profile.filter(|_| !is_read), facts.memory_kind) {
        (Some(profile), _) => memory_origin(&profile.memory),
        (None, MemoryKind::Unified) => "the host's, which the GPU shares",
        (None, MemoryKind::Dedicated) => "read from this machine",
    };
    let mut all = vec![("memory", facts.memory_total.to_string(), memory.to_owned())];
    if facts.memory_available != facts.memory_total {
        all.push(("available", facts.memory_available.to_string(), "free at this moment".to_owned()));
    }
    all.push(("fp32 peak", known(facts.fp32_tflops, "TFLOP/s"), peak(target)));
    all.extend(products(target));
    all.push(("bandwidth", known(facts.bandwidth_gb_s, "GB/s"), bandwidth(target)));
    if facts.kind == DeviceKind::Gpu {
        all.push(("SMs", facts.sm_count.to_string(), multiprocessors(target).to_owned()));
        let units = match (facts.has_bf16, facts.has_f16) {
            (true, _) => "TF32 and bf16",
            (false, true) => "fp16",
            (false, false) => "neither TF32 nor bf16",
        };
        all.push(("tensor cores for", units.to_owned(), capability(profile)));
        if let Some(last) = profile.and_then(|profile| profile.compute_capability.last_cuda()) {
            all.push(("last CUDA", last.to_owned(), capability(profile)));
        }
    }
    all
}

/// Remarks on devices, each once, after the names of the devices.
pub(crate) fn remarks(targets: &[Target]) -> Vec<String> {
    let mut named: Vec<(String, Vec<&str>)> = Vec::new();
    for target in targets {
        for remark in target.facts.remarks() {
            match named.iter_mut().find(|(known, _)| *known == remark) {
                Some((_, names)) => names.push(&target.name),
                None => named.push((remark, vec![&target.name])),
            }
        }
    }
    named.into_iter().map(|(remark, names)| format!("{}: {remark}", names.join(", "))).collect()
}

/// Profile of the figures, with its sources.
fn device_profile(project: &Project, target: &Target) -> Option<String> {
    let profile = target.profile.as_ref()?;
    if project.is_own(&profile.id) {
        return Some(format!("profile `{}` of {}", profile.id, &project.config_file));
    }
    let sources = if profile.sources.is_empty() { "none".to_owned() } else { profile.sources.join(", ") };
    let id = &profile.id;
    Some(format!("profile `{id}`; general sources: {sources} (`cargo gpu-tuned targets {id}` lists them)"))
}

pub(crate) fn memory_origin(memory: &Memory) -> &'static str {
    match (memory.cuda_total_mib.iter().min(), memory.nvml_total_mib.iter().min()) {
        (None, None) => "as advertised",
        (Some(cuda), Some(nvml)) if nvml < cuda => "the smallest total that NVML reported",
        (None, Some(_)) => "the smallest total that NVML reported",
        (Some(_), _) => "the smallest total that CUDA reported",
    }
}

fn is_estimated(target: &Target, figure: EstimatedFigure) -> bool {
    target.facts.estimated.contains(&figure)
}

fn multiprocessors(target: &Target) -> &'static str {
    let of_profile = target.profile.as_ref().and_then(|profile| profile.compute.sm_count);
    match of_profile {
        _ if is_estimated(target, EstimatedFigure::SmCount) => ESTIMATE,
        Some(count) if count == target.facts.sm_count => "profile",
        _ => "read from this machine",
    }
}

fn peak(target: &Target) -> String {
    if is_estimated(target, EstimatedFigure::Fp32) {
        return ESTIMATE.to_owned();
    }
    match target.profile.as_ref().and_then(|profile| profile.peaks.fp32.as_ref()) {
        Some(peak) if target.facts.kind == DeviceKind::Gpu => {
            let basis = match peak.basis {
                Basis::Published => "published",
                Basis::Derived => "from units and clock",
                Basis::Borrowed => "published for the same chip",
                Basis::Estimated => "estimated",
            };
            format!("{basis} ({})", peak.source)
        }
        _ => "from cores and clock".to_owned(),
    }
}

/// Rates of matrix products, with the fraction of the peak.
fn products(target: &Target) -> Vec<Fact> {
    let facts = &target.facts;
    let peaks = target.profile.as_ref().map(|profile| &profile.peaks);
    let half = if facts.has_bf16 { facts.rates.bf16 } else { facts.rates.fp16 };
    let peak_of = |peak: fn(&Peaks) -> &Option<Peak>| peaks.and_then(|peaks| peak(peaks).as_ref());
    let half_peak = peak_of(if facts.has_bf16 { |peaks| &peaks.bf16 } else { |peaks| &peaks.fp16 });
    let all = [
        ("  fp32 products", facts.rates.fp32, peak_of(|peaks| &peaks.fp32)),
        ("  TF32 products", facts.rates.tf32.filter(|_| facts.has_tf32), peak_of(|peaks| &peaks.tf32)),
        ("  16-bit products", half.filter(|rate| Some(*rate) != facts.rates.fp32), half_peak),
    ];
    let fact = |(name, rate, peak): (&'static str, Option<f64>, Option<&Peak>)| {
        let rate = rate?;
        let source = peak.and_then(|peak| peak.reached_source.as_deref());
        let source = source.map_or_else(|| ", from similar tests".to_owned(), |source| format!(" ({source})"));
        let origin = match peak {
            Some(Peak { basis: Basis::Estimated, .. }) => ESTIMATE.to_owned(),
            Some(peak) => format!("{:.0}% of {} TFLOP/s{source}", 100.0 * rate / peak.tflops, peak.tflops),
            None if is_estimated(target, EstimatedFigure::Fp32) => ESTIMATE.to_owned(),
            None => "from similar tests".to_owned(),
        };
        Some((name, format!("{rate:.1} TFLOP/s"), origin))
    };
    all.into_iter().filter_map(fact).collect()
}

fn bandwidth(target: &Target) -> String {
    match (target.facts.kind, &target.profile) {
        _ if is_estimated(target, EstimatedFigure::Bandwidth) => ESTIMATE,
        (DeviceKind::Cpu, _) => "assumed",
        (DeviceKind::Gpu, Some(_)) => "profile",
        (DeviceKind::Gpu, None) => "from bus and clock",
    }
    .to_owned()
}

fn capability(profile: Option<&Profile>) -> String {
    profile.map_or_else(
        || "by the compute capability".to_owned(),
        |profile| format!("compute capability {}", profile.compute_capability),
    )
}
