//! Resolvers of names: the dialer, DNS servers asked through it, or the host. `watm` and the Python
//! package let users choose one.

mod cache;
mod servers;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::lookup_host;
use tokio::time::timeout;

pub use self::servers::Servers;
use crate::{Datagrams, Destination, Dial, Refusal};

/// The time limit of one server. A stub resolver allows 5 s for servers that ask others first.
/// Those have answered by then if they ever do.
const PATIENCE: Duration = Duration::from_secs(3);
/// The interval at which a question is repeated, as datagrams may be lost.
const REPEAT: Duration = Duration::from_millis(800);
/// The most addresses of one name that are tried.
const ADDRESSES: usize = 16;
/// The longest answer, in bytes: the limit of its two-byte length.
const LONGEST: usize = 65_535;

/// A resolver of names.
#[derive(Debug, Clone)]
pub enum Resolver {
    /// The dialer, which gets names unresolved.
    Dialer,
    /// These DNS servers, asked through the dialer.
    Servers(Servers),
    /// The host.
    Host,
}

/// A dialer that gets addresses in place of names.
pub struct Resolving<D> {
    dial: D,
    resolver: Resolver,
}

impl<D: Dial> Resolving<D> {
    /// Resolves the destinations for `dial` with `resolver`.
    pub fn new(dial: D, resolver: Resolver) -> Resolving<D> {
        Resolving { dial, resolver }
    }

    /// Returns the addresses of `to`, in the order in which to try them. If the dialer resolves
    /// names itself, the host looks them up.
    pub async fn addresses(&self, to: &Destination) -> Result<Vec<SocketAddr>, Refusal> {
        let resolver = match &self.resolver {
            Resolver::Dialer => &Resolver::Host,
            known => known,
        };
        let places = resolver.places(&self.dial, to).await?.into_iter();
        let address = |place| match place {
            Destination::Address(address) => Some(address),
            Destination::Name(..) => None,
        };
        Ok(places.filter_map(address).collect())
    }
}

impl Resolver {
    /// Returns the destinations to dial for `to`, in order: never empty. Servers are asked through
    /// `dial`.
    pub async fn places(
        &self,
        dial: &impl Dial,
        to: &Destination,
    ) -> Result<Vec<Destination>, Refusal> {
        let Destination::Name(name, port) = to else {
            return Ok(vec![to.clone()]);
        };
        let found: Vec<SocketAddr> = match self {
            Resolver::Dialer => return Ok(vec![to.clone()]),
            Resolver::Servers(servers) => {
                let found = look_up(dial, servers, name).await?;
                let places = found.into_iter().map(|ip| SocketAddr::new(ip, *port));
                places.collect()
            }
            Resolver::Host => match timeout(PATIENCE, lookup_host((name.as_str(), *port))).await {
                Ok(Ok(found)) => found.collect(),
                Ok(Err(_)) => Vec::new(),
                Err(_) => return Err(Refusal::TimedOut),
            },
        };
        match found.is_empty() {
            true => Err(Refusal::HostUnreachable),
            false => Ok(found
                .into_iter()
                .take(ADDRESSES)
                .map(Destination::Address)
                .collect()),
        }
    }
}

impl<D: Dial> Dial for Resolving<D> {
    type Stream = D::Stream;
    type Datagrams = D::Datagrams;

    async fn stream(&self, to: &Destination) -> Result<D::Stream, Refusal> {
        let mut last = Refusal::HostUnreachable;
        for place in self.resolver.places(&self.dial, to).await? {
            match self.dial.stream(&place).await {
                Ok(stream) => return Ok(stream),
                Err(refusal) => last = refusal,
            }
        }
        Err(last)
    }

    async fn datagrams(&self, to: &Destination) -> Result<D::Datagrams, Refusal> {
        let mut last = Refusal::HostUnreachable;
        for place in self.resolver.places(&self.dial, to).await? {
            match self.dial.datagrams(&place).await {
                Ok(flow) => return Ok(flow),
                Err(refusal) => last = refusal,
            }
        }
        Err(last)
    }
}

/// Looks up a name and its variants in search domains. Returns the addresses of the first that has
/// any, or an empty list.
async fn look_up(dial: &impl Dial, servers: &Servers, name: &str) -> Result<Vec<IpAddr>, Refusal> {
    for name in servers.candidates(name) {
        let now = Instant::now();
        let addresses = match servers.cache.get(&name, now) {
            Some(known) => known,
            None => {
                let found = ask_all(dial, &servers.addresses, &name).await?;
                servers
                    .cache
                    .put(&name, &found.addresses, found.good_for, now);
                found.addresses
            }
        };
        if !addresses.is_empty() {
            return Ok(addresses);
        }
    }
    Ok(Vec::new())
}

/// Returns the answer of the first server that gives one.
async fn ask_all(dial: &impl Dial, servers: &[SocketAddr], name: &str) -> Result<Found, Refusal> {
    let mut last = Refusal::TimedOut;
    for server in servers {
        let server = Destination::Address(*server);
        match timeout(PATIENCE, ask(dial, &server, name)).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(refusal)) => last = refusal,
            Err(_) => last = Refusal::TimedOut,
        }
    }
    Err(last)
}

async fn ask(dial: &impl Dial, server: &Destination, name: &str) -> Result<Found, Refusal> {
    let questions = [TYPE::A, TYPE::AAAA].map(|kind| Query::new(name, kind));
    let [v4, v6] = questions;
    let queries = [v4?, v6?];
    let flow = dial.datagrams(server).await?;
    let mut answers: [Option<Answer>; 2] = [None, None];
    while answers.iter().any(Option::is_none) {
        for (query, answer) in queries.iter().zip(&answers) {
            if answer.is_none() {
                flow.send(&query.message)
                    .map_err(|error| Refusal::from(&error))?;
            }
        }
        let all = async {
            while answers.iter().any(Option::is_none) {
                let Some(message) = flow
                    .receive()
                    .await
                    .map_err(|error| Refusal::from(&error))?
                else {
                    return Err(Refusal::Failed(
                        "the flow to the DNS server ended".to_owned(),
                    ));
                };
                for (query, answer) in queries.iter().zip(&mut answers) {
                    if let Some(said) = query.answer(&message) {
                        *answer = Some(said);
                    }
                }
            }
            Ok(())
        };
        // The questions are repeated otherwise. The caller limits the time.
        if let Ok(result) = timeout(REPEAT, all).await {
            result?;
        }
    }
    let mut all = Found::nothing();
    for (query, answer) in queries.iter().zip(answers) {
        let answer = match answer {
            Some(Answer::CutShort) => ask_by_stream(dial, server, query).await?,
            Some(answer) => answer,
            None => Answer::Found(Found::nothing()),
        };
        match answer {
            Answer::Found(found) => {
                all.addresses.extend(found.addresses);
                all.good_for = all.good_for.min(found.good_for);
            }
            Answer::CutShort | Answer::Failed => {
                return Err(Refusal::Failed(format!("{server} does not resolve names")));
            }
        }
    }
    Ok(all)
}

/// Asks over a stream, where each message is preceded by its length (RFC 7766).
async fn ask_by_stream(
    dial: &impl Dial,
    server: &Destination,
    query: &Query,
) -> Result<Answer, Refusal> {
    let mut stream = dial.stream(server).await?;
    let exchange = async {
        let length = query.message.len() as u16;
        let framed = [&length.to_be_bytes(), &query.message[..]].concat();
        stream.write_all(&framed).await?;
        stream.flush().await?;
        let length = stream.read_u16().await?;
        let mut message = vec![0; usize::from(length).min(LONGEST)];
        stream.read_exact(&mut message).await?;
        std::io::Result::Ok(message)
    };
    let message = exchange.await.map_err(|error| Refusal::from(&error))?;
    Ok(query.answer(&message).unwrap_or(Answer::Failed))
}

/// A question.
struct Query {
    id: u16,
    name: String,
    kind: TYPE,
    message: Vec<u8>,
}

/// The addresses in an answer, IPv4 before IPv6, as not every tunnel carries the latter. May be
/// empty.
struct Found {
    addresses: Vec<IpAddr>,
    /// The shortest time to live of all records.
    good_for: Duration,
}

impl Found {
    fn nothing() -> Found {
        Found {
            addresses: Vec::new(),
            good_for: Duration::MAX,
        }
    }
}

enum Answer {
    Found(Found),
    /// The answer was truncated, and a stream gives all of it.
    CutShort,
    Failed,
}

impl Query {
    fn new(name: &str, kind: TYPE) -> Result<Query, Refusal> {
        let refused = |_| Refusal::HostUnreachable;
        let mut id = [0; 2];
        getrandom::fill(&mut id).map_err(|error| Refusal::Failed(error.to_string()))?;
        let id = u16::from_be_bytes(id);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let asked = Name::new(&name).map_err(refused)?;
        let question = Question::new(asked, kind.into(), CLASS::IN.into(), false);
        packet.questions.push(question);
        let message = packet.build_bytes_vec().map_err(refused)?;
        Ok(Query {
            id,
            name,
            kind,
            message,
        })
    }

    /// Parses a message. Returns `None` if it is not an answer to this question.
    fn answer(&self, message: &[u8]) -> Option<Answer> {
        let packet = Packet::parse(message).ok()?;
        let [question] = &packet.questions[..] else {
            return None;
        };
        let asked = packet.id() == self.id
            && packet.has_flags(PacketFlag::RESPONSE)
            && question.qname.to_string().eq_ignore_ascii_case(&self.name)
            && question.qtype == self.kind.into();
        if !asked {
            return None;
        }
        if packet.has_flags(PacketFlag::TRUNCATION) {
            return Some(Answer::CutShort);
        }
        if !matches!(packet.rcode(), RCODE::NoError | RCODE::NameError) {
            return Some(Answer::Failed);
        }
        let addresses = packet
            .answers
            .iter()
            .filter_map(|record| match &record.rdata {
                RData::A(a) if self.kind == TYPE::A => Some(Ipv4Addr::from(a.address).into()),
                RData::AAAA(a) if self.kind == TYPE::AAAA => Some(Ipv6Addr::from(a.address).into()),
                _ => None,
            });
        // Includes the records of aliases on the way to an address.
        let times = packet.answers.iter().map(|record| record.ttl);
        Some(Answer::Found(Found {
            addresses: addresses.take(ADDRESSES).collect(),
            good_for: times
                .min()
                .map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.into())),
        }))
    }
}
