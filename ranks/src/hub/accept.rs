//! Connections to rank 0.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use tarpc::server::{BaseChannel, Channel as _, Config};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::connection::Connection;
use super::stream::WatchedStream;
use super::{Hub, LOOPBACK};
use crate::handshake;
use crate::join_error::JoinError;
use crate::protocol::{Rendezvous as _, transport};

/// Connections that may be in their handshake at one time.
const HANDSHAKES: usize = 256;
/// Calls of one member at one time.
const CALLS: usize = 8;
/// Time for a program that used the port before to end.
const REBIND: Duration = Duration::from_secs(10);

impl Hub {
    /// Opens the port: to this host, or to the network.
    pub(super) async fn listen(port: u16, is_one_host: bool) -> Result<TcpListener, JoinError> {
        let begin = Instant::now();
        loop {
            let host = if is_one_host { LOOPBACK } else { "::" };
            let mut listener = TcpListener::bind((host, port)).await;
            if !is_one_host && listener.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AddrInUse) {
                // Kernels without IPv6.
                listener = TcpListener::bind(("0.0.0.0", port)).await;
            }
            match listener {
                Ok(listener) => return Ok(listener),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < REBIND => {
                    sleep(Duration::from_millis(200)).await;
                }
                Err(error) => {
                    return Err(JoinError::Bind { address: format!("{host}:{port}"), cause: error.to_string() });
                }
            }
        }
    }

    /// Accepts connections until the hub is closed.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
        let mut number = 0;
        loop {
            let permit = Arc::clone(&handshakes).acquire_owned();
            let accepted = tokio::select! {
                () = self.closed() => return,
                accepted = async { (permit.await, listener.accept().await) } => accepted,
            };
            match accepted {
                (Ok(permit), Ok((stream, _))) => {
                    number += 1;
                    tokio::spawn(Arc::clone(&self).serve(stream, number, permit));
                }
                // Too many open files, or a connection that is gone already.
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream, number: u64, permit: OwnedSemaphorePermit) {
        let peer = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        let handshake = tokio::select! {
            () = self.closed() => return,
            result = handshake::accept(&mut stream, &self.secret) => result,
        };
        if let Err(refusal) = handshake {
            let mut state = self.state();
            state.refused += 1;
            state.last_refusal = format!("{peer}: {refusal}");
            return;
        }
        drop(permit);
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
