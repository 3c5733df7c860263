//! Options of a process that trains with others.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_nvml::UnusableGpu;
use gpu_tuned_ranks::{Launch, Limits};

use super::{LaunchedAs, Options, Request, StartError, is_on};
use crate::decide::{Decision, DecisionContext, DeviceRequest, RanksHere, rank_facts, unequal_shares};
use crate::ranks::{Connection, RanksError, device};
use crate::session::Opened;
use crate::tuned::Tuned;

impl Options {
    /// Trains as one of several processes, with one GPU each, on one host or several. The launcher sets the variables:
    /// `cargo gpu-tuned launch`, torchrun, mpirun, srun or Kubernetes.
    ///
    /// The process takes the GPU with its local rank, or the only one that it sees. All ranks have one plan, made for the
    /// weakest of their devices: the least free memory, the lowest rates, common features. Each has the same number of
    /// samples. The session's loader yields the rank's own samples, and its trainer sums gradients over the ranks. Everything
    /// else is the same for one GPU and many.
    ///
    /// If one rank fails, is killed or hangs, all ranks end within 30 s with an error that names it, and exit code
    /// [`EXIT_CODE`](crate::ranks::EXIT_CODE). Launchers can start them again: see [`resume`](Self::resume).
    ///
    /// Under `cargo gpu-tuned measure` and without a launcher, the process measures one rank's steps.
    #[must_use]
    pub fn distributed(mut self) -> Self {
        self.ranks = LaunchedAs::Launched;
        self
    }

    /// As [`distributed`](Self::distributed) under a launcher, else a process on its own. With
    /// [`INDEPENDENT_VARIABLE`](Self::INDEPENDENT_VARIABLE), each process of a launch trains on its own.
    #[must_use]
    pub fn distributed_if_launched(mut self) -> Self {
        self.ranks = LaunchedAs::IfLaunched;
        self
    }

    /// As [`distributed`](Self::distributed), with a rank that the program knows from elsewhere.
    #[must_use]
    pub fn launched_as(mut self, launch: Launch) -> Self {
        self.ranks = LaunchedAs::As(Box::new(launch));
        self
    }

    /// Sets the times after which ranks are given up.
    #[must_use]
    pub fn rank_limits(mut self, limits: Limits) -> Self {
        self.rank_limits = limits;
        self
    }

    /// The launch of this process, if it trains with others.
    fn launch(&self) -> Result<Option<Launch>, StartError> {
        let from_env = || Launch::from_env().map_err(RanksError::from);
        Ok(match &self.ranks {
            LaunchedAs::None | LaunchedAs::Independent => None,
            LaunchedAs::As(launch) => Some(Launch::clone(launch)),
            LaunchedAs::IfLaunched if is_on(Self::INDEPENDENT_VARIABLE)? => None,
            LaunchedAs::IfLaunched => from_env()?,
            LaunchedAs::Launched if gpu_tuned_measure::measure::is_requested() => from_env()?,
            LaunchedAs::Launched => Some(from_env()?.ok_or(RanksError::NotLaunched)?),
        })
    }

    /// Joins the other ranks, and adds what they have in common to the request.
    pub(super) fn with_ranks<C: Tuned>(&self, mut request: Request, config: &C) -> Result<Request, StartError> {
        let Some(launch) = self.launch()? else { return Ok(request) };
        let machine = self.seen();
        if matches!(request.wanted, DeviceRequest::FirstFit) {
            request.wanted = device(&launch, machine)?;
        }
        let gpu = match request.wanted {
            DeviceRequest::This(position) => machine.gpus.get(position),
            _ => None,
        };
        let connection = Connection::join(&launch, self.rank_limits.clone(), config, request.saved.as_ref(), gpu)?;
        request.ranks = Some(connection.unplanned());
        request.connection = Some(connection.clone());
        let ranks = request.or_fail(self.ranks(&request, &connection, config))?;
        request.connection = Some(connection.with_shares(&ranks));
        request.ranks = Some(ranks);
        Ok(request)
    }

    /// The other ranks, with what they have in common.
    fn ranks<C: Tuned>(&self, request: &Request, connection: &Connection, config: &C) -> Result<RanksHere, StartError> {
        let (machine, set) = (self.seen(), self.fixed()?);
        let (wanted, saved, ranks) = (&request.wanted, request.saved.as_ref(), request.ranks.as_ref());
        let (not_ready, no_library) = (None, None);
        let context = DecisionContext { machine, wanted, broken: &[], saved, set: &set, not_ready, no_library, ranks };
        let own = rank_facts::<C>(context, connection.host()).map_err(|error| error.with_pins(set.clone()))?;
        let shares =
            |devices: &[DeviceFacts]| unequal_shares(config, context, devices).map_err(|error| error.to_string());
        Ok(connection.with_common_facts(&own, shares)?)
    }
}

impl Request {
    /// The error of a rank whose GPU does not work.
    pub(super) fn device_error(&self, fault: UnusableGpu) -> RanksError {
        let host = self.connection.as_ref().map(Connection::host).unwrap_or_default();
        RanksError::Device { rank: self.rank(), host, because: fault.because }
    }

    /// Checks that all ranks have the same plan, and connects their GPUs.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "NCCL connects GPUs"))]
    pub(super) fn check_ranks(&self, (decision, opened): &(Decision, Opened)) -> Result<(), RanksError> {
        let Some(connection) = &self.connection else { return Ok(()) };
        connection.agree(decision)?;
        #[cfg(feature = "cuda")]
        if opened.gpu.is_some() && decision.plan.schedule.world_size > 1 {
            connection.join_collectives(&opened.device)?;
        }
        Ok(())
    }
}
