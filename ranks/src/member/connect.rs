//! Attempts to join rank 0.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tarpc::client::{Config, NewClient, RpcError};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Member;
use crate::handshake::{self, Refusal};
use crate::host::Host;
use crate::hub::LOOPBACK;
use crate::join_error::JoinError;
use crate::launch::Launch;
use crate::limits::Limits;
use crate::protocol::{Formation, REPORT, RendezvousClient, transport, within};
use crate::pulse::Heart;
use crate::secret::Secret;
use crate::status::Status;
use crate::terms::Applicant;

/// Time for one attempt to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// Time for an answer that waits for no other rank.
const ANSWER: Duration = Duration::from_secs(30);
/// Rank 0's error should arrive before this rank gives up by itself.
const MARGIN: Duration = Duration::from_secs(5);
/// Waits between attempts to connect: they double from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Client of rank 0, its host, and the task that moves frames.
pub(super) struct Connected {
    pub(super) client: RendezvousClient,
    pub(super) root: Host,
    pub(super) dispatch: AbortHandle,
}

/// Failed attempt to join.
enum Failure {
    Final(JoinError),
    /// Try again, after this cause.
    Again(String),
}

impl Failure {
    fn again(cause: impl Display) -> Self {
        Self::Again(cause.to_string())
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        Self::Final(error)
    }
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Again(format!("the connection broke before all ranks had joined ({error})"))
    }
}

impl Member {
    /// Connects to rank 0 and waits until all ranks have joined.
    pub(crate) async fn join(
        launch: Launch,
        applicant: Applicant,
        limits: Limits,
        status: Arc<Status>,
        heart: Arc<Heart>,
    ) -> Result<Self, JoinError> {
        let begin = Instant::now();
        let host = if launch.is_counted_local() { LOOPBACK } else { launch.address.trim_matches(['[', ']']) };
        let address = format!("{host}:{}", launch.port);
        let secret = launch.secret.clone().unwrap_or_default();
        let mut wait = FIRST_WAIT;
        let mut report = begin + REPORT;
        let connected = loop {
            let cause = match attempt((host, launch.port), &secret, &applicant, begin + limits.join + MARGIN).await {
                Ok(connected) => break connected,
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Again(cause)) => cause,
            };
            if begin.elapsed() > limits.join {
                let (rank, seconds) = (launch.rank, limits.join.as_secs());
                return Err(JoinError::Unreachable { rank, address, seconds, cause });
            }
            if launch.local_rank == 0 && Instant::now() > report {
                eprintln!("gpu-tuned: rank {} waits for rank 0 at {address}: {cause}", launch.rank);
                report = Instant::now() + 5 * REPORT;
            }
            sleep(wait).await;
            wait = (2 * wait).min(LAST_WAIT);
        };
        Ok(Self::start(connected, launch.world_size, &limits, status, heart))
    }
}

/// Connects once, and waits until the group has formed.
async fn attempt(
    address: (&str, u16),
    secret: &Secret,
    applicant: &Applicant,
    give_up: Instant,
) -> Result<Connected, Failure> {
    let stream = timeout(CONNECT, TcpStream::connect(address)).await;
    let mut stream = stream.map_err(|_| Failure::again(Refusal::Slow))?.map_err(Failure::again)?;
    stream.set_nodelay(true).map_err(Failure::again)?;
    handshake::connect(&mut stream, secret, applicant.rank).await.map_err(|refusal| match refusal {
        Refusal::Secret => {
            let address = format!("{}:{}", address.0, address.1);
            Failure::Final(JoinError::WrongSecret { rank: applicant.rank, address })
        }
        Refusal::Version { version: root, .. } => {
            let host = applicant.host.name.clone();
            Failure::Final(JoinError::version(applicant.rank, host, handshake::version(), root))
        }
        refusal => Failure::again(refusal),
    })?;
    let NewClient { client, dispatch } = RendezvousClient::new(Config::default(), transport(stream));
    let dispatch = tokio::spawn(dispatch).abort_handle();
    match wait_for_all(&client, applicant, give_up).await {
        Ok(root) => Ok(Connected { client, root, dispatch }),
        Err(failure) => {
            dispatch.abort();
            Err(failure)
        }
    }
}

async fn wait_for_all(client: &RendezvousClient, applicant: &Applicant, give_up: Instant) -> Result<Host, Failure> {
    let root = client.join(within(ANSWER), applicant.clone()).await??;
    loop {
        match client.formed(within(ANSWER)).await?? {
            Formation::Formed => return Ok(root),
            Formation::Waiting(error) if Instant::now() > give_up => return Err(Failure::Final(error)),
            Formation::Waiting(_) => {}
        }
    }
}
