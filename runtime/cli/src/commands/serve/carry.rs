//! Connections from flow to record: `frontend` hands each flow over, and this module connects,
//! copies and logs it.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use watm_runtime::{
    Accepted, Admission, BindTransparent, DatagramFlow, Destination, ErrorCode, Flow, FlowInfo,
    JoinError, Network, StreamFlow, log_refusal, printable,
};

use super::attempts::Attempts;
use super::clients::Clients;
use super::flow_sockets::FlowSockets;
use super::gate::{Gate, Place};
use super::header::{self, attribute};
use super::metrics::ListenerMetrics;
use super::outcome::Ending;
use super::records::{Records, Verdict};
use super::settings::{Introduction, Terms};
use super::traffic::Traffic;
use super::upstream::{self, Unreachable};
use crate::accept_loop::Complaints;

/// Bytes that are kept here for each flow: half of it for the task, the rest for the upstream's
/// socket and the counters.
pub(super) const FLOW_BYTES: usize = 4096;

/// The time after which an idle flow of datagrams ends while the program ends. Datagrams have no
/// end, so a drain does not wait for one.
const DRAINING_IDLE: Duration = Duration::from_millis(500);

/// State shared by all connections of a listener.
pub(super) struct Common {
    pub(super) listener: String,
    pub(super) terms: Mutex<Arc<Terms>>,
    /// Set if connections continue from their clients' addresses.
    pub(super) transparent: Mutex<Option<BindTransparent>>,
    pub(super) gate: Arc<Gate>,
    pub(super) attempts: Attempts,
    pub(super) clients: Arc<Clients>,
    pub(super) metrics: ListenerMetrics,
    pub(super) complaints: Complaints,
    pub(super) records: Records,
    pub(super) flow_sockets: Arc<FlowSockets>,
    /// True once no more connections are accepted.
    pub(super) draining: watch::Sender<bool>,
    /// True once open connections must end.
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

impl Admission for Common {
    fn admit(&self, connection: &Arc<Accepted>) -> bool {
        let terms = self.terms();
        let Err(limit) = self.gate.admit(connection, &terms) else {
            return true;
        };
        let (remote, local) = (connection.remote(), connection.local());
        let info = FlowInfo {
            source: remote,
            destination: Destination::Address(local),
            peer: None,
            underlay: Some((remote, local)),
            attributes: Vec::new(),
        };
        self.metrics.opened();
        self.metrics.closed(limit);
        record(self, &terms, &info, &self.traffic(&info), limit);
        false
    }

    fn closed(&self, connection: &Accepted) {
        self.gate.leave(connection);
    }
}

/// Closes handshakes of clients that have too many connections.
pub(super) async fn clear(common: Arc<Common>) {
    loop {
        common.gate.crowded().await;
        common.gate.clear(&common.terms());
    }
}

/// Spawns a task that carries this flow. A flow without a place is refused without a task.
pub(super) fn begin(common: &Arc<Common>, flow: Flow) {
    let terms = common.terms();
    common.metrics.opened();
    let info = flow.info();
    if *common.force.borrow() {
        // A datagram that came while the program ends by force. It connects to no upstream.
        let traffic = Arc::new(common.traffic(info));
        return end(common, &terms, flow, &traffic, Ending::Forced);
    }
    let place = common
        .gate
        .enter(info.source.ip(), network_of(&flow), info.underlay, &terms);
    let traffic = Arc::new(common.traffic(info));
    match place {
        Ok(place) => {
            tokio::spawn(carry(common.clone(), terms, flow, traffic, place));
        }
        Err(limit) => end(common, &terms, flow, &traffic, limit),
    }
}

/// Carries this flow until it ends, and logs the end.
async fn carry(
    common: Arc<Common>,
    terms: Arc<Terms>,
    flow: Flow,
    traffic: Arc<Traffic>,
    place: Place,
) {
    let mut forced = common.force.subscribe();
    let ending = tokio::select! {
        biased;
        // Polled first, since it takes the place before a socket is made.
        () = evicted(&common, &flow, &traffic) => Ending::Evicted,
        ending = join(&common, &terms, &flow, &traffic) => ending,
        () = idle(&common, &terms, &flow, &traffic) => Ending::Idle,
        () = lifetime(terms.lifetime) => Ending::Lifetime,
        _ = forced.wait_for(|force| *force) => Ending::Forced,
    };
    end(&common, &terms, flow, &traffic, ending);
    drop(place);
}

/// Ends a flow, and logs the end.
fn end(common: &Common, terms: &Terms, flow: Flow, traffic: &Traffic, ending: Ending) {
    let info = flow.info().clone();
    if ending != Ending::Done {
        abort(&flow, ending);
    }
    drop(flow);
    common.metrics.closed(ending);
    record(common, terms, &info, traffic, ending);
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
        if let Some(destination) = &unreachable.refused {
            log_refusal(&common.listener, destination, &what);
        } else if unreachable.ending == Ending::Denied {
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
    let transparent = common.transparent();
    // Boxed, so that the flow does not keep the state of connecting.
    let (attempts, info) = (&common.attempts, flow.info());
    let connecting = Box::pin(upstream::connect(
        attempts,
        terms,
        transparent.as_ref(),
        info,
    ));
    let mut upstream = connecting.await?;
    common.works(traffic.age());
    let introduced = introduce(terms, flow.info(), &mut upstream).await;
    introduced.map_err(|error| Unreachable::new(&error))?;
    let joined = flow.join(upstream, traffic.clone()).await;
    Ok(ending(joined, flow.broken_off().as_ref()))
}

/// Returns the ending of a joined stream. `broken_off` is the module's reason for breaking the flow
/// off.
fn ending(joined: Result<(), JoinError>, broken_off: Option<&ErrorCode>) -> Ending {
    use ErrorCode::{ConnectionAborted, ConnectionReset, RemoteUnreachable};

    match (joined, broken_off) {
        (Ok(()), _) => Ending::Done,
        (Err(JoinError::Flow), Some(ConnectionReset | ConnectionAborted | RemoteUnreachable)) => {
            Ending::ClientReset
        }
        (Err(JoinError::Flow), _) => Ending::Module,
        (Err(JoinError::Upstream), _) => Ending::UpstreamReset,
    }
}

/// Announces the client to the upstream.
async fn introduce(
    terms: &Terms,
    info: &FlowInfo,
    upstream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<()> {
    match &terms.introduction {
        // A decoy must take the clients for its own.
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
    let transparent = common.transparent();
    let connecting = upstream::connect_datagrams(terms, transparent.as_ref(), flow.info());
    let upstream = Box::pin(connecting).await?;
    common.works(traffic.age());
    let before = each_begins(terms, flow.info());
    let joined = flow.join(upstream, before, traffic.clone()).await;
    Ok(ending(joined, None))
}

/// Returns the prefix of each datagram to an upstream, which names its client, since each stands
/// alone.
fn each_begins(terms: &Terms, info: &FlowInfo) -> Vec<u8> {
    match &terms.introduction {
        Introduction::Proxy(version) if !upstream::is_decoys(info) => {
            header::write(*version, info, Network::Udp)
        }
        // Tor's port accepts no datagrams.
        _ => Vec::new(),
    }
}

impl Common {
    /// Returns the counters of bytes for a connection of this client.
    fn traffic(&self, info: &FlowInfo) -> Traffic {
        let client = match &info.peer {
            Some(peer) => peer.clone(),
            None => info.source.ip().to_canonical().to_string(),
        };
        Traffic::new(self.clients.enter(&client), self.metrics.clone())
    }

    fn works(&self, after: Duration) {
        self.metrics.connected(after);
        self.complaints.works();
    }
}

fn network_of(flow: &Flow) -> Network {
    match flow {
        Flow::Stream(_) => Network::Tcp,
        Flow::Datagrams(_) => Network::Udp,
    }
}

/// Waits until nothing has been moved for as long as the terms allow.
async fn idle(common: &Common, terms: &Terms, flow: &Flow, traffic: &Traffic) {
    let timeout = terms.datagram_idle_timeout;
    if let Flow::Stream(_) = flow {
        return traffic.idle(terms.idle_timeout).await;
    }
    let mut draining = common.draining.subscribe();
    let drained = async {
        // The sender lives as long as `common`.
        let _ = draining.wait_for(|draining| *draining).await;
        traffic.idle(Some(timeout.min(DRAINING_IDLE))).await;
    };
    tokio::select! {
        () = traffic.idle(Some(timeout)) => {}
        () = drained => {}
    }
}

/// Waits until a flow of datagrams must make room for another; forever for a stream. The flow has a
/// place among the sockets while this is polled.
async fn evicted(common: &Common, flow: &Flow, traffic: &Arc<Traffic>) {
    match flow {
        Flow::Stream(_) => std::future::pending().await,
        Flow::Datagrams(_) => common.flow_sockets.take(traffic).evicted().await,
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
        Ending::UpstreamTimeout | Ending::Idle | Ending::Evicted | Ending::Lifetime => {
            ErrorCode::Timeout
        }
        Ending::Denied => ErrorCode::AccessDenied,
        Ending::Forced => ErrorCode::ConnectionAborted,
        _ => ErrorCode::ConnectionReset,
    };
    match flow {
        Flow::Stream(flow) => flow.abort(reason),
        Flow::Datagrams(flow) => flow.close(),
    }
}

/// Logs the end of a connection, unless too many end.
fn record(common: &Common, terms: &Terms, info: &FlowInfo, traffic: &Traffic, ending: Ending) {
    match common.records.admit(terms.log_records) {
        Verdict::Omit => return common.metrics.omits_record(),
        Verdict::Announce(omitted) => tracing::warn!(
            target: "watm",
            listener = &*common.listener,
            omitted,
            "{omitted} connections ended without a log record; log-records limits them"
        ),
        Verdict::Write => {}
    }
    write(common, terms, info, traffic, ending);
}

fn write(common: &Common, terms: &Terms, info: &FlowInfo, traffic: &Traffic, ending: Ending) {
    /// The most bytes of an attribute: a name of a host.
    const LONGEST: usize = 255;
    let attribute = |name| attribute(info, name).map(|text| printable(text, LONGEST));
    tracing::info!(
        target: "watm::connection",
        listener = common.listener.as_str(),
        client = %info.source,
        peer = info.peer.as_deref(),
        sni = attribute("sni").as_deref(),
        alpn = attribute("alpn").as_deref(),
        tls_version = attribute("tls.version").as_deref(),
        tls_cipher = attribute("tls.cipher").as_deref(),
        tls_resumed = attribute("tls.resumed").as_deref(),
        destination = upstream::describe(terms, info),
        bytes_in = traffic.received(),
        bytes_out = traffic.sent(),
        duration_ms = u64::try_from(traffic.age().as_millis()).unwrap_or(u64::MAX),
        reason = ending.name(),
        "closed"
    );
}
