//! User of the process at the other end of a connection within this host, for ranks without a secret.

use tokio::net::TcpStream;

/// The system shows which user has the other end of a connection.
pub(crate) const ARE_VISIBLE: bool = cfg!(target_os = "linux");

/// Checks that the other end of a connection belongs to this user.
///
/// # Errors
/// A clause, if it does not, or is not on this host.
#[cfg(target_os = "linux")]
pub(crate) fn check_peer(stream: &TcpStream) -> Result<(), String> {
    let ends = stream.peer_addr().and_then(|peer| Ok((peer, stream.local_addr()?)));
    let (peer, local) = ends.map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    match linux::user(peer, local) {
        Some(user) if user == own => Ok(()),
        Some(user) => Err(format!("the other side is a process of user {user}, not {own}")),
        None => Err("the user of the other side is unknown".to_owned()),
    }
}

/// Ranks need a secret on other systems.
#[cfg(not(target_os = "linux"))]
pub(crate) fn check_peer(_: &TcpStream) -> Result<(), String> {
    Err("this system does not show the user of the other side".to_owned())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::net::{IpAddr, SocketAddr};

    /// Returns the user of the socket that has these two ends, from the kernel's table.
    pub(super) fn user(own: SocketAddr, other: SocketAddr) -> Option<u32> {
        let table = if own.is_ipv4() { "/proc/self/net/tcp" } else { "/proc/self/net/tcp6" };
        find(&fs::read_to_string(table).ok()?, own, other)
    }

    /// Finds an open connection in lines of `number: own other state queues timer retries user …`. A socket that its process
    /// has closed would count as one of root.
    fn find(table: &str, own: SocketAddr, other: SocketAddr) -> Option<u32> {
        const ESTABLISHED: &str = "01";
        let wanted = [shown(own), shown(other), ESTABLISHED.to_owned()];
        table.lines().find_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            wanted.iter().all(|wanted| fields.next() == Some(wanted)).then(|| fields.nth(3)?.parse().ok())?
        })
    }

    /// An address as the kernel prints it: words of four bytes as numbers, then the port.
    fn shown(address: SocketAddr) -> String {
        let bytes = match address.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let words = bytes.as_chunks().0.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
        format!("{}:{:04X}", words.collect::<String>(), address.port())
    }

    #[cfg(test)]
    mod tests {
        use std::net::{TcpListener, TcpStream};
        use std::os::unix::fs::MetadataExt as _;

        use super::*;

        #[test]
        fn the_user_of_a_connection_is_this_one() {
            let own = fs::metadata("/proc/self").unwrap().uid();
            for loopback in ["127.0.0.1:0", "[::1]:0"] {
                // Kernels without IPv6 have the first only.
                let Ok(listener) = TcpListener::bind(loopback) else { continue };
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (local, peer) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
                assert_eq!((user(local, peer), user(peer, local)), (Some(own), Some(own)), "{loopback}");
                drop(stream);
                assert_eq!(user(local, peer), None, "a closed connection has no user");
            }
        }

        /// Lines of Linux 6.1, where user 1000 has connected to itself.
        #[cfg(target_endian = "little")]
        #[test]
        fn a_line_of_the_table_is_found_by_its_ends_and_state() {
            let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                         0: 0100007F:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000   109        0 1 1 0\n   \
                         1: 0100007F:C350 0100007F:733C 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0\n   \
                         2: 0100007F:733C 0100007F:C350 08 00000000:00000000 00:00000000 00000000     0        0 0 1 0\n";
            let ends = ["127.0.0.1:50000", "127.0.0.1:29500"].map(|end| end.parse().unwrap());
            assert_eq!(find(table, ends[0], ends[1]), Some(1000));
            assert_eq!(find(table, ends[1], ends[0]), None, "closed by its process");
        }
    }
}
