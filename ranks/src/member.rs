//! Connection of a rank to rank 0.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tarpc::client::{Config, NewClient, RpcError};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::ended::Ended;
use crate::handshake::{self, Refusal};
use crate::host::Host;
use crate::join_error::JoinError;
use crate::launch::Launch;
use crate::limits::Limits;
use crate::protocol::{Formation, LONG, Piece, REPORT, RendezvousClient, piece_at, transport, within};
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
/// Time to pass on a failure before this process may end.
const FAREWELL: Duration = Duration::from_secs(2);
/// Waits between attempts to connect: they double from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Rank other than 0.
pub(crate) struct Member {
    client: RendezvousClient,
    status: Arc<Status>,
    tasks: Vec<AbortHandle>,
}

/// Rank 0's client and host, and the task that moves their frames.
struct Connected {
    client: RendezvousClient,
    root: Host,
    dispatch: AbortHandle,
}

/// Failed attempt to join.
enum Failure {
    Final(JoinError),
    /// Try again, after this cause.
    Again(String),
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
        let host = if launch.is_one_host() { crate::hub::LOOPBACK } else { &launch.address };
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
                report += 5 * REPORT;
            }
            sleep(wait).await;
            wait = (2 * wait).min(LAST_WAIT);
        };
        Ok(Self::start(connected, &limits, status, heart))
    }

    /// Starts heartbeats, and the watch for the end of the group.
    fn start(connected: Connected, limits: &Limits, status: Arc<Status>, heart: Arc<Heart>) -> Self {
        let Connected { client, root, dispatch } = connected;
        let beats = tokio::spawn(beat(client.clone(), root.clone(), limits.clone(), Arc::clone(&status), heart));
        let tasks = vec![beats.abort_handle(), dispatch];
        let watch = tokio::spawn(watch(client.clone(), root, Arc::clone(&status), tasks.clone()));
        Self { client, status, tasks: [vec![watch.abort_handle()], tasks].concat() }
    }

    /// Sends this rank's message, and returns rank 0's reply.
    pub(crate) async fn meet(&self, meeting: u64, kind: &str, own: &[u8]) -> Result<Vec<u8>, Ended> {
        tokio::select! {
            ended = self.status.ended() => Err(ended),
            reply = self.exchange(meeting, kind, own) => reply,
        }
    }

    async fn exchange(&self, meeting: u64, kind: &str, own: &[u8]) -> Result<Vec<u8>, Ended> {
        let mut sent = 0;
        loop {
            let bytes = piece_at(own, sent);
            sent += bytes.len();
            let piece = Piece { meeting, kind: kind.to_owned(), total: own.len(), bytes };
            match self.client.send(within(LONG), piece).await {
                Ok(result) => result?,
                Err(_) => return Err(self.status.ended().await),
            }
            if sent == own.len() {
                break;
            }
        }
        let mut reply = Vec::new();
        loop {
            match self.client.receive(within(LONG), meeting, reply.len()).await {
                Ok(piece) => {
                    let Piece { total, bytes, .. } = piece?;
                    reply.extend_from_slice(&bytes);
                    if reply.len() >= total {
                        return Ok(reply);
                    }
                }
                Err(RpcError::DeadlineExceeded) => {}
                Err(_) => return Err(self.status.ended().await),
            }
        }
    }

    /// Passes on a failure of this rank.
    pub(crate) async fn fail(&self, ended: Ended) {
        let _ = timeout(FAREWELL, self.client.fail(within(FAREWELL), ended.clone())).await;
        self.status.end(ended);
    }

    /// Waits until all ranks have finished.
    pub(crate) async fn finish(&self) -> Result<(), Ended> {
        loop {
            let answer = tokio::select! {
                ended = self.status.ended() => return Err(ended),
                answer = self.client.finish(within(LONG)) => answer,
            };
            match answer {
                Ok(result) => {
                    self.close();
                    return result;
                }
                Err(RpcError::DeadlineExceeded) => {}
                Err(_) => return Err(self.status.ended().await),
            }
        }
    }

    fn close(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.close();
    }
}

/// Connects once, and waits until the group has formed.
async fn attempt(
    address: (&str, u16),
    secret: &Secret,
    applicant: &Applicant,
    give_up: Instant,
) -> Result<Connected, Failure> {
    let again = |cause: &dyn std::fmt::Display| Failure::Again(cause.to_string());
    let stream = timeout(CONNECT, TcpStream::connect(address)).await;
    let mut stream = stream.map_err(|_| again(&Refusal::Slow))?.map_err(|error| again(&error))?;
    stream.set_nodelay(true).map_err(|error| again(&error))?;
    handshake::connect(&mut stream, secret).await.map_err(|refusal| match refusal {
        Refusal::Secret => {
            let address = format!("{}:{}", address.0, address.1);
            Failure::Final(JoinError::WrongSecret { rank: applicant.rank, address })
        }
        refusal => again(&refusal),
    })?;
    let NewClient { client, dispatch } = RendezvousClient::new(Config::default(), transport(stream));
    let dispatch = Handle::current().spawn(dispatch).abort_handle();
    let formed = async {
        let root = client.join(within(ANSWER), applicant.clone()).await??;
        loop {
            match client.formed(within(ANSWER)).await?? {
                Formation::Formed => return Ok(root),
                Formation::Waiting(error) if Instant::now() > give_up => return Err(Failure::Final(error)),
                Formation::Waiting(_) => {}
            }
        }
    };
    match formed.await {
        Ok(root) => Ok(Connected { client, root, dispatch }),
        Err(failure) => {
            dispatch.abort();
            Err(failure)
        }
    }
}

/// Sends heartbeats, until rank 0 does not answer.
async fn beat(client: RendezvousClient, root: Host, limits: Limits, status: Arc<Status>, heart: Arc<Heart>) {
    loop {
        let answer = client.beat(within(limits.silence + 2 * ANSWER), heart.pulse());
        tokio::pin!(answer);
        let mut is_answered = timeout(limits.silence, &mut answer).await.is_ok();
        if !is_answered {
            // A process that was stopped itself finds the answer now.
            is_answered = timeout(Duration::from_secs(1), &mut answer).await.is_ok();
        }
        if !is_answered {
            status.end(Ended::Silent { rank: 0, host: root.name, seconds: limits.silence.as_secs() });
            return;
        }
        sleep(limits.heartbeat).await;
    }
}

/// Waits for the end of the group, and closes the connection then.
async fn watch(client: RendezvousClient, root: Host, status: Arc<Status>, tasks: Vec<AbortHandle>) {
    let ended = loop {
        tokio::select! {
            ended = status.ended() => break ended,
            answer = client.ended(within(LONG)) => match answer {
                Ok(ended) => break ended,
                Err(RpcError::DeadlineExceeded) => {}
                Err(_) => break Ended::Lost { rank: 0, host: root.name },
            },
        }
    };
    status.end(ended);
    tasks.iter().for_each(AbortHandle::abort);
}
