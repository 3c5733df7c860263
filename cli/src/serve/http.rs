//! Requests and answers on the loopback address: GET only, one thread for each connection, bounded in size, number and time.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_attribute::sources::STACK;

/// Connections at a time.
const MOST_CONNECTIONS: usize = 16;
/// Bytes of a request.
const MOST_BYTES: usize = 16 * 1024;
/// Time to receive a request, and to send its answer.
const MOST_TIME: Duration = Duration::from_secs(5);

/// Time that a further connection waits.
const MOST_WAIT: Duration = Duration::from_secs(1);
const REST: Duration = Duration::from_millis(10);

/// Path of a request, and its decoded query.
#[derive(Debug)]
pub(super) struct Request {
    pub path: String,
    pub query: Vec<(String, String)>,
}

pub(super) struct Response {
    pub status: Status,
    /// Media type.
    pub kind: &'static str,
    pub body: String,
}

/// Number and phrase.
pub(super) type Status = (u16, &'static str);

pub(super) const OK: Status = (200, "OK");
pub(super) const NOT_FOUND: Status = (404, "Not Found");
pub(super) const REFUSED: Status = (422, "Unprocessable Content");
const BAD: Status = (400, "Bad Request");
const FORBIDDEN: Status = (403, "Forbidden");
const NOT_GET: Status = (405, "Method Not Allowed");
const TOO_SLOW: Status = (408, "Request Timeout");
const TOO_LONG: Status = (431, "Request Header Fields Too Large");
const BUSY: Status = (503, "Service Unavailable");

/// Answers requests for as long as the process runs.
pub(super) fn answer_all(
    listener: &TcpListener,
    port: u16,
    answer: impl Fn(&Request) -> Response + Send + Sync + 'static,
) {
    let answer = Arc::new(answer);
    // Each connection holds a copy.
    let open = Arc::new(());
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else {
            // There may be too many open files for a moment.
            thread::sleep(REST);
            continue;
        };
        let begin = Instant::now();
        let is_full = || Arc::strong_count(&open) > MOST_CONNECTIONS;
        while is_full() && begin.elapsed() < MOST_WAIT {
            thread::sleep(REST);
        }
        if is_full() {
            let _ = refuse(&mut stream);
            continue;
        }
        let (answer, open) = (Arc::clone(&answer), Arc::clone(&open));
        let connection = move || {
            // A client that has gone needs no answer.
            let _ = handle(stream, port, &*answer);
            drop(open);
        };
        // Plans read sources, which are parsed by recursion. Without memory for a thread, the connection is closed.
        let _ = thread::Builder::new().name("request".to_owned()).stack_size(STACK).spawn(connection);
    }
}

/// Refuses a connection that is one too many. What it has sent is read, as in [`handle`].
fn refuse(stream: &mut TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(REST))?;
    // It may have sent nothing yet.
    let _ = stream.read(&mut [0; 4096]);
    send(stream, &plain(BUSY), Instant::now() + REST)
}

fn handle(mut stream: TcpStream, port: u16, answer: &dyn Fn(&Request) -> Response) -> io::Result<()> {
    let request = match receive(&mut stream)? {
        Ok(head) => parse(&head, port),
        Err(status) => Err(status),
    };
    let response = request.map_or_else(plain, |request| answer(&request));
    let deadline = Instant::now() + MOST_TIME;
    send(&mut stream, &response, deadline)?;
    // The rest of a refused request is read, because a connection that is closed before is reset, and the answer is lost.
    stream.shutdown(Shutdown::Write)?;
    let (mut rest, mut read) = ([0; 4096], 0);
    while read < 16 * MOST_BYTES {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        match stream.read(&mut rest)? {
            0 => break,
            count => read += count,
        }
    }
    Ok(())
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let time = deadline.saturating_duration_since(Instant::now());
    if time.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(time) }
}

/// Reads a request up to the empty line, or returns why it is refused.
fn receive(stream: &mut TcpStream) -> io::Result<Result<Vec<u8>, Status>> {
    let deadline = Instant::now() + MOST_TIME;
    let (mut head, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let Ok(time) = remaining(deadline) else { return Ok(Err(TOO_SLOW)) };
        stream.set_read_timeout(Some(time))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(Err(BAD)),
            Ok(count) => head.extend_from_slice(&part[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(if end > MOST_BYTES { Err(TOO_LONG) } else { Ok(head) });
        }
        if head.len() > MOST_BYTES {
            return Ok(Err(TOO_LONG));
        }
    }
}

/// Parses a request of a page of this server. Others are refused: a name that another site directs to this machine, and a
/// page of another site.
fn parse(head: &[u8], port: u16) -> Result<Request, Status> {
    let head = str::from_utf8(head).map_err(|_| BAD)?;
    let mut lines = head.split("\r\n");
    let first: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, version] = first[..] else { return Err(BAD) };
    if !version.starts_with("HTTP/1.") {
        return Err(BAD);
    }
    if method != "GET" {
        return Err(NOT_GET);
    }
    let headers = lines.map(|line| line.split_once(':').map(|(name, value)| (name, value.trim())).ok_or(BAD));
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    let all = |wanted: &str| {
        headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| *value)
            .collect::<Vec<_>>()
    };
    let [host] = all("Host")[..] else { return Err(BAD) };
    let own =
        ["127.0.0.1", "localhost"].map(|name| if port == 80 { name.to_owned() } else { format!("{name}:{port}") });
    let is_own = own.iter().any(|own| own.eq_ignore_ascii_case(host));
    let origin = format!("http://{host}");
    let is_ours = all("Origin").iter().all(|from| from.eq_ignore_ascii_case(&origin));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    // A link on another site may open the page.
    let is_same_site = path == "/" || all("Sec-Fetch-Site").iter().all(|site| ["same-origin", "none"].contains(site));
    if !is_own || !is_ours || !is_same_site {
        return Err(FORBIDDEN);
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name)?, decode(value)?))
    });
    let query = pairs.collect::<Option<_>>().ok_or(BAD)?;
    Ok(Request { path: path.to_owned(), query })
}

/// Decodes `%20` and `+`; `None` for a sign without two digits and for broken UTF-8.
fn decode(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(digits[0])? * 16 + digit(digits[1])?).ok()?
            }
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// An answer without a page.
fn plain(status: Status) -> Response {
    Response { status, kind: "text/plain", body: format!("{}\n", status.1) }
}

/// What a page may do: its own style and script, and requests to this server.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

fn send(stream: &mut TcpStream, response: &Response, deadline: Instant) -> io::Result<()> {
    let Response { status: (number, phrase), kind, body } = response;
    let head = format!(
        "HTTP/1.1 {number} {phrase}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\
         Allow: GET\r\nCache-Control: no-store\r\nContent-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\r\n",
        body.len()
    );
    let bytes = [head.as_bytes(), body.as_bytes()].concat();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(remaining(deadline)?))?;
        match stream.write(rest)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => rest = &rest[count..],
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{BAD, FORBIDDEN, NOT_GET, decode, parse};

    fn refusal(head: &str) -> u16 {
        parse(head.as_bytes(), 4711).err().map_or(200, |(number, _)| number)
    }

    #[test]
    fn requests_of_the_own_page_are_taken() {
        let request =
            parse(b"GET /a?arg=x+y&arg=%C2%B1&b HTTP/1.1\r\nhost: LOCALHOST:4711\r\nsec-fetch-site: same-origin", 4711);
        let request = request.expect("a request");
        assert_eq!(request.path, "/a");
        let pairs = [("arg", "x y"), ("arg", "±"), ("b", "")];
        assert_eq!(request.query, pairs.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(parse(b"GET / HTTP/1.1\r\nHost: 127.0.0.1", 80).is_ok());
    }

    #[test]
    fn other_hosts_sites_and_methods_are_refused() {
        let with = |more: &str| refusal(&format!("GET /plan.json HTTP/1.1\r\nHost: 127.0.0.1:4711{more}"));
        assert_eq!(with(""), 200);
        assert_eq!(with("\r\nOrigin: http://127.0.0.1:4711"), 200);
        assert_eq!(with("\r\nOrigin: http://evil.example"), FORBIDDEN.0);
        assert_eq!(with("\r\nOrigin: null"), FORBIDDEN.0);
        assert_eq!(with("\r\nSec-Fetch-Site: cross-site"), FORBIDDEN.0);
        assert_eq!(with("\r\nHost: 127.0.0.1:4711"), BAD.0);
        for host in
            ["evil.example:4711", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:4711", "localhost:4711.", ""]
        {
            assert_eq!(refusal(&format!("GET / HTTP/1.1\r\nHost: {host}")), FORBIDDEN.0, "{host}");
        }
        assert_eq!(refusal("GET / HTTP/1.1\r\nHost: localhost:4711\r\nSec-Fetch-Site: cross-site"), 200);
        for method in ["POST", "HEAD", "OPTIONS", "get", "CONNECT"] {
            assert_eq!(refusal(&format!("{method} / HTTP/1.1\r\nHost: localhost:4711")), NOT_GET.0, "{method}");
        }
        for head in ["", "GET /", "GET  / HTTP/1.1", "GET / HTTP/2", "GET / HTTP/1.1", "GET / HTTP/1.1\r\nHost"] {
            assert_eq!(refusal(head), BAD.0, "{head}");
        }
    }

    #[test]
    fn texts_are_decoded_whole_or_refused() {
        assert_eq!(decode("a%20b+c").as_deref(), Some("a b c"));
        for broken in ["%", "%2", "%zz", "%+1", "%FF", "%C2"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
        assert_eq!(parse(b"GET /?a=%FF HTTP/1.1\r\nHost: localhost:4711", 4711).err(), Some(BAD));
        assert_eq!(parse(b"GET /\xff HTTP/1.1\r\nHost: localhost:4711", 4711).err(), Some(BAD));
    }
}
