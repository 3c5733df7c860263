//! Connections to rank 0: their port, their handshakes, and the calls of members.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tarpc::context;
use tarpc::server::{BaseChannel, Channel as _, Config};
use tokio::io::{AsyncRead, ReadBuf, join};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::{Forming, Hub};
use crate::group::error::{Ended, JoinError};
use crate::group::handshake::{self, Refusal};
use crate::group::protocol::{Applicant, Formation, Host, Piece, Pulse, REPORT, Rendezvous, piece_at, transport};
use crate::launch::Launch;

/// Connections that may be in their handshake at one time.
const HANDSHAKES: usize = 256;
/// Time that a handshake has once there are so many.
const PATIENCE: Duration = Duration::from_millis(200);
/// Connections that the operating system keeps until they are accepted.
const BACKLOG: u32 = 4096;
/// Calls of one member at one time.
const CALLS: usize = 8;
/// Time for a program that used the port before to end.
const REBIND: Duration = Duration::from_secs(5);

impl Hub {
    /// Opens the port: to this host, or to the network.
    pub(super) async fn listen(&self, launch: &Launch) -> Result<TcpListener, JoinError> {
        let is_local = launch.is_counted_local() || launch.secret.is_none();
        // Kernels without IPv6 have no `::`.
        let addresses: &[IpAddr] = if is_local {
            match launch.root_address().parse() {
                Ok(IpAddr::V6(_)) => &[IpAddr::V6(Ipv6Addr::LOCALHOST)],
                _ => &[IpAddr::V4(Ipv4Addr::LOCALHOST)],
            }
        } else {
            &[Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()]
        };
        let begin = Instant::now();
        loop {
            let mut failure = None;
            for address in addresses {
                match open(SocketAddr::new(*address, launch.port)) {
                    Ok(listener) => return Ok(listener),
                    Err(error) => failure = Some((*address, error)),
                }
            }
            let is_in_use = |(_, error): &(_, io::Error)| error.kind() == io::ErrorKind::AddrInUse;
            if begin.elapsed() > REBIND || !failure.as_ref().is_some_and(is_in_use) {
                let (address, cause) =
                    failure.map(|(address, error)| (address.to_string(), error.to_string())).unwrap_or_default();
                let (host, address) = (self.root.host.name.clone(), format!("{address}, port {}", launch.port));
                return Err(JoinError::Bind { host, address, cause });
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Accepts connections until the hub is closed.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let mut handshakes = VecDeque::new();
        let mut number = 0;
        loop {
            let accepted = tokio::select! {
                () = self.closed() => return,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                // Too many open files, or a connection that is gone already.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            number += 1;
            let (sender, done) = oneshot::channel();
            let task = tokio::spawn(Arc::clone(&self).serve(stream, number, sender));
            handshakes.push_back((task.abort_handle(), done));
            limit(&mut handshakes).await;
        }
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream, number: u64, done: oneshot::Sender<()>) {
        let peer = stream.peer_addr().map(|address| address.ip().to_string()).unwrap_or_default();
        let handshake = tokio::select! {
            () = self.closed() => return,
            result = handshake::accept(&mut stream, self.secret.as_ref()) => result,
        };
        drop(done);
        match handshake {
            Ok(()) => {}
            Err(Refusal::Version { rank, version }) => {
                self.state().told += 1;
                return self.fail_to_form(JoinError::version(rank, peer, version, handshake::VERSION.to_owned()));
            }
            Err(refusal) => {
                let mut state = self.state();
                state.refused += 1;
                state.last_refusal = format!("{peer}: {refusal}");
                return;
            }
        }
        // Answers are small: they should not wait for more.
        let _ = stream.set_nodelay(true);
        let (half, writer) = stream.into_split();
        let ended = Arc::new(Notify::new());
        let stream = join(WatchedHalf { half, ended: Arc::clone(&ended) }, writer);
        let channel = BaseChannel::new(Config::default(), transport(stream)).max_concurrent_requests(CALLS);
        let connection = Connection::new(Arc::clone(&self), number);
        let calls = channel.execute(connection.clone().serve()).for_each_concurrent(None, |call| call);
        tokio::select! {
            biased;
            () = calls => {}
            () = ended.notified() => {}
            () = self.closed() => {}
        }
        connection.disconnected();
    }
}

/// Listens on an address, with room for all ranks of a large run to connect at once.
fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of an earlier run may be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Waits until few enough connections are in their handshake. Slow ones give way: ranks take milliseconds.
async fn limit(handshakes: &mut VecDeque<(AbortHandle, oneshot::Receiver<()>)>) {
    handshakes.retain_mut(|(_, done)| matches!(done.try_recv(), Err(TryRecvError::Empty)));
    if handshakes.len() >= HANDSHAKES
        && let Some((oldest, done)) = handshakes.pop_front()
        && timeout(PATIENCE, done).await.is_err()
    {
        oldest.abort();
    }
}

/// Connection of a process that has proved the secret.
#[derive(Clone)]
struct Connection {
    hub: Arc<Hub>,
    number: u64,
    /// Rank, once the process has joined.
    rank: Arc<OnceLock<usize>>,
    /// Part of a message that has arrived.
    received: Arc<Mutex<Vec<u8>>>,
}

impl Connection {
    fn new(hub: Arc<Hub>, number: u64) -> Self {
        Self { hub, number, rank: Arc::default(), received: Arc::default() }
    }

    /// Returns the rank behind the connection, and records that it is alive.
    fn alive(&self, pulse: Option<Pulse>) -> Option<usize> {
        let rank = *self.rank.get()?;
        let mut state = self.hub.state();
        let member = state.members[rank].as_mut().filter(|member| member.connection == self.number)?;
        member.seen = Instant::now();
        member.pulse = pulse.unwrap_or(member.pulse);
        Some(rank)
    }

    /// Returns the rank of a call that only members make.
    fn member(&self) -> Result<usize, Ended> {
        let message = || "a call came before its process had joined".to_owned();
        self.alive(None).ok_or_else(|| Ended::Rejected { kind: "join".to_owned(), message: message() })
    }

    fn disconnected(&self) {
        if let Some(rank) = self.rank.get() {
            self.hub.lose(*rank, self.number);
            self.hub.connections.send_modify(|count| *count -= 1);
        }
    }
}

impl Rendezvous for Connection {
    async fn join(self, _: context::Context, applicant: Applicant) -> Result<Host, JoinError> {
        let rank = applicant.rank;
        self.hub.admit(applicant, self.number)?;
        if self.rank.set(rank).is_ok() {
            self.hub.connections.send_modify(|count| *count += 1);
        }
        Ok(self.hub.root.host.clone())
    }

    async fn formed(self, _: context::Context) -> Result<Formation, JoinError> {
        let mut forming = self.hub.formation.subscribe();
        let decided = forming.wait_for(|forming| !matches!(forming, Forming::Waiting));
        let _ = timeout(REPORT, decided).await;
        match &*self.hub.formation.borrow() {
            Forming::Formed => Ok(Formation::Formed),
            Forming::Waiting => Ok(Formation::Waiting(self.hub.missing())),
            Forming::Failed(error) => {
                self.hub.state().told += 1;
                Err(error.clone())
            }
        }
    }

    async fn send(self, _: context::Context, piece: Piece) -> Result<(), Ended> {
        let rank = self.member()?;
        let message = {
            let mut received = self.received.lock().unwrap_or_else(PoisonError::into_inner);
            received.extend_from_slice(&piece.bytes);
            (received.len() >= piece.total).then(|| std::mem::take(&mut *received))
        };
        message.map_or(Ok(()), |message| self.hub.deposit(rank, piece.meeting, &piece.kind, message))
    }

    async fn receive(self, _: context::Context, meeting: u64, offset: usize) -> Result<Piece, Ended> {
        self.member()?;
        let reply = self.hub.reply(meeting).await?;
        Ok(Piece { meeting, kind: String::new(), total: reply.len(), bytes: piece_at(&reply, offset) })
    }

    async fn beat(self, _: context::Context, pulse: Pulse) {
        self.alive(Some(pulse));
    }

    async fn ended(self, _: context::Context) -> Ended {
        self.hub.ended.wait().await
    }

    async fn fail(self, _: context::Context, ended: Ended) {
        if self.member().is_ok() {
            self.hub.end(ended);
        }
    }

    async fn finish(self, _: context::Context) -> Result<(), Ended> {
        let rank = self.member()?;
        self.hub.finished(rank).await
    }
}

/// Reading half of a stream that notifies of its end. tarpc itself waits for calls in flight before it reports the end.
struct WatchedHalf {
    half: OwnedReadHalf,
    ended: Arc<Notify>,
}

impl AsyncRead for WatchedHalf {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context, buf: &mut ReadBuf) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.half).poll_read(cx, buf);
        let is_end = match &result {
            Poll::Ready(Ok(())) => buf.filled().len() == before && buf.remaining() > 0,
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        };
        if is_end {
            self.ended.notify_one();
        }
        result
    }
}
