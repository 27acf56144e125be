//! Connections to upstreams. `carry` makes them for flows, and `status` for checks.

use std::io;
use std::net::SocketAddr;

use tokio::net::{UdpSocket, lookup_host};
use tokio::time::timeout;
use watm_runtime::{
    BindTransparent, Destination, Error, FlowInfo, Network, Target, UpstreamStream,
    connect_upstream, connect_upstream_datagrams,
};

use super::attempts::Attempts;
use super::header::attribute;
use super::outcome::Ending;
use super::settings::Terms;
use super::values::Upstream;
use crate::system::LocalStream;

/// The reason why an upstream cannot be reached.
pub(super) struct Unreachable {
    pub(super) ending: Ending,
    pub(super) reason: String,
    /// The destination, if the configuration does not allow it.
    pub(super) refused: Option<String>,
}

impl Unreachable {
    pub(super) fn new(error: &io::Error) -> Unreachable {
        let ending = match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ending::UpstreamRefused,
            io::ErrorKind::TimedOut => Ending::UpstreamTimeout,
            _ => Ending::UpstreamFailed,
        };
        Unreachable {
            ending,
            reason: error.to_string(),
            refused: None,
        }
    }
}

impl From<Error> for Unreachable {
    fn from(error: Error) -> Unreachable {
        match &error {
            Error::Denied { target, .. } => Unreachable {
                ending: Ending::Denied,
                reason: format!(
                    "not allowed; the pattern \"{target}\" in allow (--allow) would allow it"
                ),
                refused: Some(target.clone()),
            },
            Error::Connect { source, .. } => Unreachable::new(source),
            _ => Unreachable {
                ending: Ending::UpstreamFailed,
                reason: error.to_string(),
                refused: None,
            },
        }
    }
}

/// Describes the destination of a flow.
pub(super) fn describe(terms: &Terms, info: &FlowInfo) -> String {
    match chosen(terms, info) {
        Ok(Upstream::Dynamic) => info.destination.to_string(),
        Ok(other) => other.to_string(),
        Err(_) => "none".to_owned(),
    }
}

/// Returns true if the module does not admit this client, which gets the decoy instead.
pub(super) fn is_decoys(info: &FlowInfo) -> bool {
    attribute(info, "decoy").is_some()
}

/// Chooses the upstream of a flow.
fn chosen<'a>(terms: &'a Terms, info: &FlowInfo) -> Result<&'a Upstream, Unreachable> {
    if !is_decoys(info) {
        return Ok(terms.upstream.of(info.source.ip()));
    }
    terms.decoy.as_ref().ok_or_else(|| Unreachable {
        ending: Ending::Denied,
        reason: "the module did not admit the client, and no decoy is configured".to_owned(),
        refused: None,
    })
}

/// Connects for a flow, within the time that the terms allow, which includes a wait for its turn. With `transparent`, connects from the
/// client's address.
pub(super) async fn connect(
    attempts: &Attempts,
    terms: &Terms,
    transparent: Option<&BindTransparent>,
    info: &FlowInfo,
) -> Result<Box<dyn UpstreamStream>, Unreachable> {
    let source = transparent.map(|transparent| (transparent, info.source));
    let connecting = async {
        match chosen(terms, info)? {
            Upstream::Unix(path) => match LocalStream::connect(path).await {
                Ok(stream) => Ok(Box::new(stream) as Box<dyn UpstreamStream>),
                Err(error) => Err(Unreachable::new(&error)),
            },
            upstream => {
                let addresses = addresses(upstream, terms, info, Network::Tcp).await?;
                let _place = attempts.begin().await;
                connect_tcp(&addresses, source).await
            }
        }
    };
    in_time(terms, connecting).await
}

/// Connects for datagrams, as [`connect`] does for streams.
pub(super) async fn connect_datagrams(
    terms: &Terms,
    transparent: Option<&BindTransparent>,
    info: &FlowInfo,
) -> Result<UdpSocket, Unreachable> {
    let source = transparent.map(|transparent| (transparent, info.source));
    let connecting = async {
        let upstream = chosen(terms, info)?;
        let addresses = addresses(upstream, terms, info, Network::Udp).await?;
        connect_upstream_datagrams(&addresses, source)
            .await
            .map_err(|error| Unreachable::new(&error))
    };
    in_time(terms, connecting).await
}

/// Returns true if the upstream answers; `None` if that depends on the flow.
pub(super) async fn answers(upstream: &Upstream, terms: &Terms) -> Option<bool> {
    let connected = async {
        match upstream {
            Upstream::Unix(path) => LocalStream::connect(path).await.is_ok(),
            Upstream::Tcp(destination) => match look_up(destination).await {
                Ok(addresses) => connect_tcp(&addresses, None).await.is_ok(),
                Err(_) => false,
            },
            Upstream::Dynamic | Upstream::ByFamily { .. } => true,
        }
    };
    match upstream {
        Upstream::Dynamic | Upstream::ByFamily { .. } => None,
        _ => Some(
            timeout(terms.connect_timeout, connected)
                .await
                .unwrap_or(false),
        ),
    }
}

async fn in_time<T>(
    terms: &Terms,
    connecting: impl Future<Output = Result<T, Unreachable>>,
) -> Result<T, Unreachable> {
    match timeout(terms.connect_timeout, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(Unreachable {
            ending: Ending::UpstreamTimeout,
            reason: format!("no answer within {:?}", terms.connect_timeout),
            refused: None,
        }),
    }
}

async fn addresses(
    upstream: &Upstream,
    terms: &Terms,
    info: &FlowInfo,
    network: Network,
) -> Result<Vec<SocketAddr>, Unreachable> {
    match upstream {
        Upstream::Dynamic => {
            let target = Target {
                network,
                ..Target::tcp(info.destination.clone())
            };
            Ok(terms.allow.resolve(&target).await?)
        }
        Upstream::Tcp(destination) => look_up(destination)
            .await
            .map_err(|error| Unreachable::new(&error)),
        // Paths serve streams alone, and callers handle them.
        Upstream::Unix(_) | Upstream::ByFamily { .. } => Err(Unreachable {
            ending: Ending::UpstreamFailed,
            reason: "cannot send datagrams to a unix: upstream".to_owned(),
            refused: None,
        }),
    }
}

async fn look_up(destination: &Destination) -> io::Result<Vec<SocketAddr>> {
    match destination {
        Destination::Address(address) => Ok(vec![*address]),
        Destination::Name(name, port) => Ok(lookup_host((name.as_str(), *port)).await?.collect()),
    }
}

async fn connect_tcp(
    addresses: &[SocketAddr],
    source: Option<(&BindTransparent, SocketAddr)>,
) -> Result<Box<dyn UpstreamStream>, Unreachable> {
    match connect_upstream(addresses, source).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(Unreachable::new(&error)),
    }
}
