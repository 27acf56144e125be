//! DNS servers that the resolver asks.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use watm_socks::{Carried, Datagrams, Destination, Dial, Refusal, Resolver, Servers};

use crate::check_line;

const NAME: &str = "www.example.com";
const PORT: u16 = 443;
/// Most addresses of a name that are tried.
const MOST: usize = 16;

/// The bytes before the question: an identifier, flags, four counts.
const HEAD: usize = 12;

/// Runs the server's answers, in the order of the questions: messages, each after its length in two
/// bytes. The first bit of a length means that the message is arbitrary, and not an answer to the
/// question.
pub fn run(mut input: &[u8]) {
    let mut messages = VecDeque::new();
    while let Some((length, rest)) = input.split_first_chunk() {
        let length = u16::from_be_bytes(*length);
        let (message, rest) = rest.split_at(usize::from(length & 0x7fff).min(rest.len()));
        messages.push_back((length & 0x8000 == 0, message.to_vec()));
        input = rest;
    }
    let server = Server::default();
    server.known().messages = messages;
    let servers = Servers::new(vec![SocketAddr::from(([192, 0, 2, 53], 53))]);
    let resolver = Resolver::Servers(servers);
    let to = Destination::Name(NAME.to_owned(), PORT);
    let places = || RUNTIME.with_borrow(|runtime| runtime.block_on(resolver.places(&server, &to)));
    let found = match places() {
        Ok(found) => found,
        Err(refusal) => return check_line(&refusal.to_string()),
    };
    assert!((1..=MOST).contains(&found.len()), "{found:?}");
    let said = server.known().said.concat();
    for place in &found {
        let Destination::Address(address) = place else {
            panic!("a name has become {place}");
        };
        assert_eq!(address.port(), PORT);
        let is_said = match address.ip() {
            IpAddr::V4(ip) => said.windows(4).any(|four| four == ip.octets()),
            IpAddr::V6(ip) => said.windows(16).any(|sixteen| sixteen == ip.octets()),
        };
        assert!(is_said, "nobody has said {address}");
    }
    // An answer with a lifetime is cached, and not requested again.
    let asked = server.known().asked;
    let again = places();
    if server.known().asked == asked {
        assert_eq!(again, Ok(found));
    }
}

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(crate::runtime());
}

/// A server. Clones are the same one.
#[derive(Default, Clone)]
struct Server(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    messages: VecDeque<(bool, Vec<u8>)>,
    said: Vec<Vec<u8>>,
    asked: usize,
}

impl Server {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no panic under this lock")
    }

    /// The next message, for this question. `None` if there is none.
    fn answer(&self, question: &[u8]) -> Option<Vec<u8>> {
        let mut known = self.known();
        known.asked += 1;
        let (is_answer, message) = known.messages.pop_front()?;
        let (id, asked) = (&question[..2], &question[HEAD..]);
        let said = match message.split_at_checked(8) {
            Some(([flags, more, counts @ ..], rest)) if is_answer => {
                [id, &[flags | 0x80, *more, 0, 1], counts, asked, rest].concat()
            }
            _ => [id, &message].concat(),
        };
        known.said.push(said.clone());
        Some(said)
    }
}

impl Dial for Server {
    type Stream = Stream;
    type Datagrams = Flow;

    async fn stream(&self, _: &Destination) -> Result<Stream, Refusal> {
        Ok(Stream {
            server: self.clone(),
            question: Vec::new(),
            answer: VecDeque::new(),
        })
    }

    async fn datagrams(&self, _: &Destination) -> Result<Flow, Refusal> {
        Ok(Flow {
            server: self.clone(),
            answers: Mutex::default(),
        })
    }
}

/// Questions and answers, which come at once. It ends when there is none.
struct Flow {
    server: Server,
    answers: Mutex<VecDeque<Vec<u8>>>,
}

impl Datagrams for Flow {
    fn send(&self, question: &[u8]) -> io::Result<bool> {
        let answer = self.server.answer(question);
        let mut answers = self.answers.lock().expect("no panic under this lock");
        answers.extend(answer);
        Ok(true)
    }

    async fn receive(&self) -> io::Result<Option<Vec<u8>>> {
        let mut answers = self.answers.lock().expect("no panic under this lock");
        Ok(answers.pop_front())
    }
}

/// The same with a length before each (RFC 7766).
struct Stream {
    server: Server,
    question: Vec<u8>,
    answer: VecDeque<u8>,
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.question.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let question = std::mem::take(&mut self.question);
        if let Some((length, question)) = question.split_first_chunk() {
            assert_eq!(usize::from(u16::from_be_bytes(*length)), question.len());
            let answer = self.server.answer(question).unwrap_or_default();
            let length = answer.len() as u16;
            self.answer.extend(length.to_be_bytes());
            self.answer.extend(answer);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let length = self.answer.len().min(buffer.remaining());
        let now: Vec<u8> = self.answer.drain(..length).collect();
        buffer.put_slice(&now);
        Poll::Ready(Ok(()))
    }
}

impl Carried for Stream {
    fn reset(&mut self) {
        self.answer.clear();
    }
}
