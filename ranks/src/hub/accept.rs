//! Connections to rank 0.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tarpc::server::{BaseChannel, Channel as _, Config};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::Hub;
use super::connection::Connection;
use super::stream::WatchedStream;
use crate::handshake::{self, Refusal};
use crate::join_error::JoinError;
use crate::launch::Launch;
use crate::protocol::{Rendezvous as _, transport};

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
    pub(super) async fn listen(launch: &Launch) -> Result<TcpListener, JoinError> {
        let is_local = launch.is_counted_local() || launch.secret.is_none();
        // Kernels without IPv6 have no `::`.
        let addresses: &[IpAddr] = if is_local {
            &[Ipv4Addr::LOCALHOST.into()]
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
                return Err(JoinError::Bind { address: format!("{address}, port {}", launch.port), cause });
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
            result = handshake::accept(&mut stream, &self.secret) => result,
        };
        drop(done);
        match handshake {
            Ok(()) => {}
            Err(Refusal::Version { rank, version }) => {
                self.state().told += 1;
                return self.fail_to_form(JoinError::version(rank, peer, version, handshake::version()));
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
        let (stream, ended) = WatchedStream::new(stream);
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
