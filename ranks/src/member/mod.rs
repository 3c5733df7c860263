//! Connection of a rank to rank 0.

mod connect;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tarpc::client::RpcError;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::ended::Ended;
use crate::limits::Limits;
use crate::protocol::{LONG, Piece, RendezvousClient, piece_at, within};
use crate::pulse::Heart;
use crate::status::Status;
use connect::Connected;

/// Time to pass on a failure before this process may end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Time for an answer that arrived while this process was stopped.
pub(crate) const LATE_ANSWER: Duration = Duration::from_secs(1);

/// Rank other than 0.
pub(crate) struct Member {
    connection: Connection,
    tasks: Vec<AbortHandle>,
}

/// Client of rank 0 with the state that its tasks share.
#[derive(Clone)]
struct Connection {
    client: RendezvousClient,
    root_host: Arc<str>,
    status: Arc<Status>,
    /// This rank waits for the others to finish, after which rank 0 closes the connection.
    is_finishing: Arc<AtomicBool>,
}

impl Member {
    /// Starts heartbeats, and the watch for the end of the group.
    fn start(connected: Connected, ranks: usize, limits: &Limits, status: Arc<Status>, heart: Arc<Heart>) -> Self {
        let Connected { client, root, dispatch } = connected;
        let root_host = root.name.into();
        let connection = Connection { client, root_host, status, is_finishing: Arc::default() };
        let beats = tokio::spawn(connection.clone().beat(limits.clone(), limits.heartbeat_for(ranks), heart));
        let tasks = vec![beats.abort_handle(), dispatch];
        let watch = tokio::spawn(connection.clone().watch(tasks.clone()));
        Self { connection, tasks: [vec![watch.abort_handle()], tasks].concat() }
    }

    /// Sends this rank's message, and returns rank 0's reply.
    pub(crate) async fn meet(&self, meeting: u64, kind: &str, own: &[u8]) -> Result<Vec<u8>, Ended> {
        let reply = tokio::select! {
            ended = self.connection.status.ended() => Err(ended),
            reply = self.connection.exchange(meeting, kind, own) => reply,
        };
        reply.inspect_err(|ended| self.connection.status.end(ended.clone()))
    }

    /// Passes on a failure of this rank.
    pub(crate) async fn fail(&self, ended: Ended) {
        let _ = timeout(FAREWELL, self.connection.client.fail(within(FAREWELL), ended.clone())).await;
        self.connection.status.end(ended);
    }

    /// Waits until all ranks have finished.
    pub(crate) async fn finish(&self) -> Result<(), Ended> {
        let Connection { client, status, is_finishing, .. } = &self.connection;
        is_finishing.store(true, Ordering::SeqCst);
        loop {
            let answer = tokio::select! {
                ended = status.ended() => return Err(ended),
                answer = client.finish(within(LONG)) => answer,
            };
            match answer {
                Ok(result) => {
                    self.close();
                    return result.inspect_err(|ended| status.end(ended.clone()));
                }
                Err(RpcError::DeadlineExceeded) => {}
                Err(_) => return Err(self.connection.broken().await),
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

impl Connection {
    async fn exchange(&self, meeting: u64, kind: &str, own: &[u8]) -> Result<Vec<u8>, Ended> {
        let mut sent = 0;
        loop {
            let bytes = piece_at(own, sent);
            sent += bytes.len();
            let piece = Piece { meeting, kind: kind.to_owned(), total: own.len(), bytes };
            match self.client.send(within(LONG), piece).await {
                Ok(result) => result?,
                Err(_) => return Err(self.broken().await),
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
                Err(_) => return Err(self.broken().await),
            }
        }
    }

    /// Returns the end of the group, which is the loss of rank 0 if no other reason arrives.
    async fn broken(&self) -> Ended {
        if let Ok(ended) = timeout(FAREWELL, self.status.ended()).await {
            return ended;
        }
        self.status.end(Ended::Lost { rank: 0, host: self.root_host.to_string() });
        self.status.ended().await
    }

    /// Sends heartbeats, until rank 0 does not answer.
    async fn beat(self, limits: Limits, interval: Duration, heart: Arc<Heart>) {
        let given_up = 2 * limits.silence + FAREWELL;
        loop {
            let answer = self.client.beat(within(given_up), heart.pulse());
            tokio::pin!(answer);
            let mut answered = timeout(limits.silence, &mut answer).await;
            if answered.is_err() {
                // If this process was stopped itself, the answer is in its socket.
                answered = timeout(LATE_ANSWER, &mut answer).await;
            }
            match answered {
                Ok(Ok(())) => sleep(interval).await,
                // The watch finds the reason.
                Ok(Err(_)) => return,
                Err(_) => {
                    let (host, seconds) = (self.root_host.to_string(), limits.silence.as_secs());
                    return self.status.end(Ended::Silent { rank: 0, host, seconds });
                }
            }
        }
    }

    /// Waits for the end of the group, and closes the connection then.
    async fn watch(self, tasks: Vec<AbortHandle>) {
        let ended = loop {
            tokio::select! {
                ended = self.status.ended() => break ended,
                answer = self.client.ended(within(LONG)) => match answer {
                    Ok(ended) => break ended,
                    Err(RpcError::DeadlineExceeded) => {}
                    Err(_) if self.is_finishing.load(Ordering::SeqCst) => return,
                    Err(_) => break Ended::Lost { rank: 0, host: self.root_host.to_string() },
                },
            }
        };
        self.status.end(ended);
        tasks.iter().for_each(AbortHandle::abort);
    }
}
