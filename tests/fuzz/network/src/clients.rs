//! Clients of the local proxies.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::yield_now;
use watm_socks::{Carried, Datagrams, Destination, Dial, Limits, Proxy, Refusal, Users};

use crate::{check_line, contains};

/// The one user of the proxy, if it has users.
const USER: &str = "ann";
const PASSWORD: &str = "hunter2";
/// Both, as HTTP says them.
const BASIC: &[u8] = b"YW5uOmh1bnRlcjI=";
/// Both, as SOCKS5 says them.
const SUBNEGOTIATION: &[u8] = b"\x01\x03ann\x07hunter2";

/// The upstream's greeting to every client.
const ANSWER: &[u8] = b"from upstream";
/// The name of an upstream that refuses.
const CLOSED: &str = "closed";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Socks,
    Http,
}

/// SOCKS5 or SOCKS4a.
pub fn socks(input: &[u8]) {
    run(Protocol::Socks, input);
}

/// CONNECT, and requests in absolute form.
pub fn http(input: &[u8]) {
    run(Protocol::Http, input);
}

/// The outcome of one client's connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// The requested destination.
    dialled: Option<Destination>,
    /// The bytes that reached the upstream.
    passed: Vec<u8>,
    /// The bytes that reached the client.
    answers: Vec<u8>,
    error: Option<String>,
}

/// The first byte decides if the proxy has users. The others are the client's data.
fn run(protocol: Protocol, input: &[u8]) {
    let Some((&mode, said)) = input.split_first() else {
        return;
    };
    let users = match mode % 2 {
        0 => Users::everybody(),
        _ => Users::everybody()
            .with(USER, PASSWORD)
            .expect("a user and a password"),
    };
    let outcome =
        |pieces: Vec<&[u8]>| WORLD.with_borrow(|world| world.serve(protocol, &users, pieces));
    let whole = outcome(vec![said]);
    let cut = outcome(cuts(said));
    // An association is told a port of its own.
    let is_association = whole.dialled.is_none() && whole.error.is_none();
    if is_association {
        assert_eq!(cut.error, None);
        assert!(whole.passed.is_empty() && whole.answers.len() >= 12);
        return;
    }
    assert_eq!(whole, cut, "not the same in pieces");
    if let Some(error) = &whole.error {
        check_line(error);
        assert!(!error.contains(PASSWORD), "{error}");
    }
    if whole.dialled.is_none() {
        assert!(whole.passed.is_empty() && !contains(&whole.answers, ANSWER));
        assert!(whole.error.is_some());
        return;
    }
    let credentials = match protocol {
        Protocol::Socks => SUBNEGOTIATION,
        Protocol::Http => BASIC,
    };
    assert!(
        users.is_everybody() || contains(said, credentials),
        "served a stranger"
    );
    let refused = whole.error.is_some();
    assert_eq!(refused, !whole.answers.ends_with(ANSWER));
    if refused {
        assert!(whole.passed.is_empty());
        return;
    }
    if protocol == Protocol::Http && !whole.answers.starts_with(b"HTTP/1.1 200 ") {
        return check_request(said, &whole);
    }
    // All of the request is read, and nothing else.
    assert!(said.ends_with(&whole.passed), "another thing is passed on");
    let request = &said[..said.len() - whole.passed.len()];
    let alone = outcome(vec![request]);
    assert_eq!(alone.dialled, whole.dialled);
    assert!(alone.passed.is_empty());
    let less = outcome(vec![&request[..request.len() - 1]]);
    assert_eq!(
        less.dialled, None,
        "connected before the request was complete"
    );
    if protocol == Protocol::Http {
        check_head(request);
    }
}

/// A request in absolute form is passed on as one, without what is between client and proxy.
fn check_request(said: &[u8], outcome: &Outcome) {
    let end = outcome
        .passed
        .windows(4)
        .position(|four| four == b"\r\n\r\n");
    let (head, body) = outcome.passed.split_at(end.expect("a request") + 4);
    assert!(said.ends_with(body), "another body");
    let request = &said[..said.len() - body.len()];
    check_head(request);
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    assert!(first.ends_with(b" HTTP/1.1\r"));
    let fields: Vec<Vec<u8>> = lines
        .filter_map(|line| {
            Some(line[..line.iter().position(|byte| *byte == b':')?].to_ascii_lowercase())
        })
        .collect();
    let count = |name: &[u8]| fields.iter().filter(|field| field[..] == *name).count();
    assert_eq!(count(b"connection"), 1);
    assert_eq!(
        count(b"proxy-authorization") + count(b"proxy-connection"),
        0
    );
    // The fields are the client's, and one that the proxy adds.
    let lines = request.iter().filter(|byte| **byte == b'\n').count();
    assert!(fields.len() <= lines, "a field that nobody has said");
}

/// The head of a request has one end.
fn check_head(head: &[u8]) {
    let text = head.strip_suffix(b"\n").unwrap_or(head);
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let is_empty = |line: &&[u8]| line.is_empty() || **line == *b"\r";
    // Empty lines before the first one are ignored.
    let begin = lines
        .iter()
        .position(|line| !is_empty(line))
        .expect("a line");
    let end = lines[begin..].iter().position(is_empty).expect("an end");
    assert_eq!(
        begin + end,
        lines.len() - 1,
        "a head that ends before its end"
    );
}

/// Cuts bytes into pieces of one byte, of two, of three and so on.
fn cuts(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    for length in 1.. {
        let (piece, rest) = bytes.split_at(usize::min(length, bytes.len()));
        pieces.push(piece);
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    pieces
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

struct World {
    runtime: Runtime,
    listener: TcpListener,
}

impl World {
    fn new() -> World {
        let runtime = crate::runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        World {
            runtime,
            listener: listener.expect("a port of loopback"),
        }
    }

    /// Sends these pieces as a client, one after another.
    fn serve(&self, protocol: Protocol, users: &Users, pieces: Vec<&[u8]>) -> Outcome {
        let upstreams = Upstreams::default();
        let proxy = Proxy::new(
            Arc::new(upstreams.clone()),
            users.clone(),
            Limits::default(),
        );
        let (answers, error) = self.runtime.block_on(async {
            let address = self.listener.local_addr().expect("an address");
            let (client, accepted) =
                tokio::join!(TcpStream::connect(address), self.listener.accept());
            let (client, (accepted, _)) = (client.expect("connected"), accepted.expect("accepted"));
            let serving = async {
                match protocol {
                    Protocol::Socks => proxy.socks(accepted).await,
                    Protocol::Http => proxy.http(accepted).await,
                }
            };
            let (served, answers) = tokio::join!(serving, talk(client, pieces));
            (answers, served.err().map(|error| error.to_string()))
        });
        let mut known = upstreams.known();
        Outcome {
            dialled: known.dialled.take(),
            passed: std::mem::take(&mut known.told),
            answers,
            error,
        }
    }
}

/// Sends these pieces, and returns the answer.
async fn talk(client: TcpStream, pieces: Vec<&[u8]>) -> Vec<u8> {
    client.set_nodelay(true).expect("an option of TCP");
    let (mut from, mut to) = client.into_split();
    let saying = async {
        for piece in pieces {
            // The client may have left.
            if to.write_all(piece).await.is_err() {
                break;
            }
            for _ in 0..3 {
                yield_now().await;
            }
        }
        let _ = to.shutdown().await;
    };
    let mut answers = Vec::new();
    // An error: the proxy has not read all.
    let (_, _) = tokio::join!(saying, from.read_to_end(&mut answers));
    answers
}

/// The stand-in for the network. Clones share what they know.
#[derive(Default, Clone)]
struct Upstreams(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    dialled: Option<Destination>,
    told: Vec<u8>,
}

impl Upstreams {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no panic under this lock")
    }
}

impl Dial for Upstreams {
    type Stream = Upstream;
    type Datagrams = Nothing;

    async fn stream(&self, to: &Destination) -> Result<Upstream, Refusal> {
        let before = self.known().dialled.replace(to.clone());
        assert_eq!(before, None, "connected twice");
        match to {
            Destination::Name(name, _) if name == CLOSED => Err(Refusal::Refused),
            _ => Ok(Upstream {
                upstreams: self.clone(),
                says: ANSWER,
            }),
        }
    }

    async fn datagrams(&self, _: &Destination) -> Result<Nothing, Refusal> {
        Err(Refusal::NotSupported)
    }
}

/// A connection, which keeps its input and always has the same output.
struct Upstream {
    upstreams: Upstreams,
    says: &'static [u8],
}

impl AsyncRead for Upstream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.says.len().min(buffer.remaining());
        let (now, later) = self.says.split_at(length);
        buffer.put_slice(now);
        self.says = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.upstreams.known().told.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Carried for Upstream {
    fn reset(&mut self) {
        self.says = &[];
    }
}

/// No datagrams.
struct Nothing;

impl Datagrams for Nothing {
    fn send(&self, _: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    async fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
