//! Connection of a rank to rank 0.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tarpc::client::{Config, NewClient, RpcError};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::group::error::{Ended, JoinError};
use crate::group::handshake::{self, Refusal, VERSION};
use crate::group::limits::{Limits, Status};
use crate::group::protocol::{
    Applicant, Formation, Heart, Host, LONG, Piece, REPORT, RendezvousClient, piece_at, transport, within,
};
use crate::launch::{Launch, Secret};

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
    pub(crate) async fn meet(
        self: Arc<Self>,
        meeting: u64,
        kind: &'static str,
        own: Vec<u8>,
    ) -> Result<Vec<u8>, Ended> {
        let reply = tokio::select! {
            ended = self.connection.status.ended() => Err(ended),
            reply = self.connection.exchange(meeting, kind, &own) => reply,
        };
        reply.inspect_err(|ended| self.connection.status.end(ended.clone()))
    }

    /// Passes on a failure of this rank.
    pub(crate) async fn fail(self: Arc<Self>, ended: Ended) {
        let _ = timeout(FAREWELL, self.connection.client.fail(within(FAREWELL), ended.clone())).await;
        self.connection.status.end(ended);
    }

    pub(crate) async fn finish(self: Arc<Self>) -> Result<(), Ended> {
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

const LOOKUP: Duration = Duration::from_secs(30);
/// Time for one attempt to connect to one address.
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
        match error {
            // An earlier run may be about to end.
            JoinError::OtherRun { .. } => Self::again(error),
            error => Self::Final(error),
        }
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
        let host = launch.root_address();
        let address =
            if host.contains(':') { format!("[{host}]:{}", launch.port) } else { format!("{host}:{}", launch.port) };
        let (secret, name) = (launch.secret.clone(), applicant.host.name.clone());
        let mut wait = FIRST_WAIT;
        let mut report = begin + REPORT;
        let connected = loop {
            let cause =
                match attempt((host, launch.port), secret.as_ref(), &applicant, begin + limits.join + MARGIN).await {
                    Ok(connected) => break connected,
                    Err(Failure::Final(error)) => return Err(error),
                    Err(Failure::Again(cause)) => cause,
                };
            if begin.elapsed() > limits.join {
                let (rank, seconds) = (launch.rank, limits.join.as_secs());
                return Err(JoinError::Unreachable { rank, host: name, address, seconds, cause });
            }
            if launch.local_rank == 0 && Instant::now() > report {
                eprintln!("gpu-tuned: rank {} on {name} waits for rank 0 at {address}: {cause}", launch.rank);
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
    secret: Option<&Secret>,
    applicant: &Applicant,
    give_up: Instant,
) -> Result<Connected, Failure> {
    let addresses =
        timeout(LOOKUP, lookup_host(address)).await.map_err(|_| Failure::again("no answer of the name server"))?;
    let stream = reach(addresses.map_err(Failure::again)?, secret, applicant).await?;
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

/// Connects to the first address of rank 0 that answers as one. Each address has a time of its own.
async fn reach(
    addresses: impl Iterator<Item = SocketAddr>,
    secret: Option<&Secret>,
    applicant: &Applicant,
) -> Result<TcpStream, Failure> {
    let mut causes = Vec::new();
    for address in addresses {
        match reach_at(address, secret, applicant).await {
            Err(Failure::Again(cause)) => causes.push(format!("{}: {cause}", address.ip())),
            reached => return reached,
        }
    }
    Err(Failure::Again(if causes.is_empty() { "the name has no address".to_owned() } else { causes.join("; ") }))
}

/// Connects to an address, and checks that rank 0 is there.
async fn reach_at(address: SocketAddr, secret: Option<&Secret>, applicant: &Applicant) -> Result<TcpStream, Failure> {
    let stream = timeout(CONNECT, TcpStream::connect(address)).await;
    let mut stream = stream.map_err(|_| Failure::again(Refusal::Slow))?.map_err(Failure::again)?;
    stream.set_nodelay(true).map_err(Failure::again)?;
    let host = || applicant.host.name.clone();
    handshake::connect(&mut stream, secret, applicant.rank, VERSION).await.map_err(|refusal| match refusal {
        Refusal::Secret => {
            Failure::Final(JoinError::WrongSecret { rank: applicant.rank, host: host(), address: address.to_string() })
        }
        Refusal::Version { version: root, .. } => {
            Failure::Final(JoinError::version(applicant.rank, host(), VERSION.to_owned(), root))
        }
        refusal => Failure::again(refusal),
    })?;
    Ok(stream)
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::{TcpListener, TcpSocket};

    use super::super::protocol::Terms;
    use super::super::{nonce, start_runtime, wait};
    use super::*;

    /// Opens a port that accepts no connection and refuses none, as behind a firewall that drops packets.
    #[cfg(target_os = "linux")]
    async fn dropping(address: SocketAddr) -> (TcpListener, Vec<TcpStream>) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(address).unwrap();
        let listener = socket.listen(1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
            waiting.push(stream.unwrap());
        }
        (listener, waiting)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_address_that_drops_packets_leaves_time_for_the_others() {
        let handle = start_runtime().unwrap();
        wait(&handle, async {
            let root = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let good = root.local_addr().unwrap();
            let bad = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), good.port()));
            let _dropping = dropping(bad).await;
            let secret = Secret::new("word");
            let (host, instance) = (Host::current(), nonce().unwrap());
            let applicant = Applicant { rank: 1, world_size: 2, host, run: None, terms: Terms::default(), instance };
            let accepted = async {
                let (mut stream, _) = root.accept().await.unwrap();
                handshake::accept(&mut stream, Some(&secret)).await.unwrap();
            };
            let begin = Instant::now();
            let reached = reach([bad, good].into_iter(), Some(&secret), &applicant);
            let (stream, ()) = tokio::join!(reached, accepted);
            assert_eq!(stream.ok().unwrap().peer_addr().unwrap(), good);
            assert!((CONNECT..2 * CONNECT).contains(&begin.elapsed()), "{:?}", begin.elapsed());
            drop(root);
            let Err(Failure::Again(cause)) = reach([bad, good].into_iter(), Some(&secret), &applicant).await else {
                panic!("no port is left")
            };
            assert!(cause.starts_with("127.0.0.2: no answer within 5 s; 127.0.0.1: "), "{cause}");
        });
    }
}
