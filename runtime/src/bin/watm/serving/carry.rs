//! One connection, from its flow to its record.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use watm_runtime::{
    BindTransparent, DatagramFlow, ErrorCode, Flow, FlowInfo, JoinError, Network, StreamFlow,
};

use super::clients::Clients;
use super::gate::Gate;
use super::header::{self, attribute};
use super::metrics::ListenerMetrics;
use super::outcome::Ending;
use super::settings::{Introduction, Terms};
use super::traffic::Traffic;
use super::upstream::{self, Unreachable};
use crate::serve::Complaints;

/// What all connections of a listener have in common.
pub(super) struct Common {
    pub(super) listener: String,
    pub(super) terms: Mutex<Arc<Terms>>,
    /// Whether connections go on from their clients' addresses.
    pub(super) transparent: Mutex<Option<BindTransparent>>,
    pub(super) gate: Arc<Gate>,
    pub(super) clients: Arc<Clients>,
    pub(super) metrics: ListenerMetrics,
    pub(super) complaints: Complaints,
    /// Whether those that are open have to end.
    pub(super) force: watch::Sender<bool>,
}

impl Common {
    pub(super) fn terms(&self) -> Arc<Terms> {
        self.terms.lock().expect("no panic under this lock").clone()
    }
}

impl Common {
    pub(super) fn set_transparent(&self, transparent: Option<BindTransparent>) {
        *self.transparent.lock().expect("no panic under this lock") = transparent;
    }

    fn transparent(&self) -> Option<BindTransparent> {
        self.transparent
            .lock()
            .expect("no panic under this lock")
            .clone()
    }
}

/// Carry this flow until it ends, and write that down.
pub(super) async fn carry(common: Arc<Common>, flow: Flow) {
    let terms = common.terms();
    let info = flow.info().clone();
    let client = match &info.peer {
        Some(peer) => peer.clone(),
        None => info.source.ip().to_canonical().to_string(),
    };
    common.metrics.opened();
    let place = common.gate.enter(info.source.ip(), &terms);
    let traffic = Traffic::new(common.clients.enter(&client), common.metrics.clone());
    let traffic = Arc::new(traffic);
    let ending = match (&place, &flow) {
        (Err(limit), _) => *limit,
        (Ok(_), flow) => {
            let mut forced = common.force.subscribe();
            tokio::select! {
                ending = join(&common, &terms, flow, &traffic) => ending,
                () = traffic.idle(idle_timeout(&terms, flow)) => Ending::Idle,
                () = lifetime(terms.lifetime) => Ending::Lifetime,
                _ = forced.wait_for(|force| *force) => Ending::Forced,
            }
        }
    };
    if ending != Ending::Done {
        abort(&flow, ending);
    }
    drop(flow);
    common.metrics.closed(ending);
    record(&common, &terms, &info, &traffic, ending);
    drop(place);
}

async fn join(common: &Common, terms: &Terms, flow: &Flow, traffic: &Arc<Traffic>) -> Ending {
    let info = flow.info();
    let joined = match flow {
        Flow::Stream(flow) => join_stream(common, terms, flow, traffic).await,
        Flow::Datagrams(flow) => join_datagrams(common, terms, flow, traffic).await,
    };
    joined.unwrap_or_else(|unreachable| {
        let upstream = upstream::describe(terms, info);
        let what = format!("upstream {upstream}: {}", unreachable.reason);
        if unreachable.ending == Ending::Denied {
            tracing::debug!(target: "watm", listener = &*common.listener, "{what}");
        } else {
            common.metrics.upstream_fails();
            common
                .complaints
                .failed(&format!("listener {}: {what}", common.listener));
        }
        unreachable.ending
    })
}

async fn join_stream(
    common: &Common,
    terms: &Terms,
    flow: &StreamFlow,
    traffic: &Arc<Traffic>,
) -> Result<Ending, Unreachable> {
    let mut upstream = upstream::connect(terms, common.transparent().as_ref(), flow.info()).await?;
    common.works(traffic.age());
    let introduced = introduce(terms, flow.info(), &mut upstream).await;
    introduced.map_err(|error| Unreachable::new(&error))?;
    Ok(ending(flow.join(upstream, traffic.clone()).await))
}

fn ending(joined: Result<(), JoinError>) -> Ending {
    match joined {
        Ok(()) => Ending::Done,
        Err(JoinError::Flow) => Ending::ClientReset,
        Err(JoinError::Upstream) => Ending::UpstreamReset,
    }
}

/// Tell an upstream who comes.
async fn introduce(
    terms: &Terms,
    info: &FlowInfo,
    upstream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<()> {
    match &terms.introduction {
        // A decoy is to take them for its own clients.
        _ if upstream::is_decoys(info) => Ok(()),
        Introduction::None => Ok(()),
        Introduction::Proxy(version) => {
            let header = header::write(*version, info, Network::Tcp);
            upstream.write_all(&header).await
        }
        Introduction::Tor(port) => port.introduce(upstream, info.source).await,
    }
}

async fn join_datagrams(
    common: &Common,
    terms: &Terms,
    flow: &DatagramFlow,
    traffic: &Arc<Traffic>,
) -> Result<Ending, Unreachable> {
    let upstream =
        upstream::connect_datagrams(terms, common.transparent().as_ref(), flow.info()).await?;
    common.works(traffic.age());
    let before = each_begins(terms, flow.info());
    Ok(ending(flow.join(upstream, before, traffic.clone()).await))
}

/// What each datagram to an upstream begins with: who it is from, since each is by itself.
fn each_begins(terms: &Terms, info: &FlowInfo) -> Vec<u8> {
    match &terms.introduction {
        Introduction::Proxy(version) if !upstream::is_decoys(info) => {
            header::write(*version, info, Network::Udp)
        }
        // Tor's port has no datagrams.
        _ => Vec::new(),
    }
}

impl Common {
    fn works(&self, after: Duration) {
        self.metrics.connected(after);
        self.complaints.works();
    }
}

fn idle_timeout(terms: &Terms, flow: &Flow) -> Option<Duration> {
    match flow {
        Flow::Stream(_) => terms.idle_timeout,
        Flow::Datagrams(_) => Some(terms.datagram_idle_timeout),
    }
}

async fn lifetime(longest: Option<Duration>) {
    match longest {
        Some(longest) => tokio::time::sleep(longest).await,
        None => std::future::pending().await,
    }
}

fn abort(flow: &Flow, ending: Ending) {
    let reason = match ending {
        Ending::UpstreamRefused | Ending::Limit | Ending::ClientLimit => {
            ErrorCode::ConnectionRefused
        }
        Ending::UpstreamTimeout | Ending::Idle | Ending::Lifetime => ErrorCode::Timeout,
        Ending::Denied => ErrorCode::AccessDenied,
        Ending::Forced => ErrorCode::ConnectionAborted,
        _ => ErrorCode::ConnectionReset,
    };
    match flow {
        Flow::Stream(flow) => flow.abort(reason),
        Flow::Datagrams(flow) => flow.close(),
    }
}

fn record(common: &Common, terms: &Terms, info: &FlowInfo, traffic: &Traffic, ending: Ending) {
    tracing::info!(
        target: "watm::connection",
        listener = common.listener.as_str(),
        client = %info.source,
        peer = info.peer.as_deref(),
        sni = attribute(info, "sni"),
        alpn = attribute(info, "alpn"),
        tls_version = attribute(info, "tls.version"),
        tls_cipher = attribute(info, "tls.cipher"),
        tls_resumed = attribute(info, "tls.resumed"),
        destination = upstream::describe(terms, info),
        bytes_in = traffic.received(),
        bytes_out = traffic.sent(),
        duration_ms = u64::try_from(traffic.age().as_millis()).unwrap_or(u64::MAX),
        reason = ending.name(),
        "closed"
    );
}
