//! One connection through a module: the settings, the request and its result. Dialers, listeners and
//! relays ask for it, and the hosts make it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use watm_net::connect::{Connect, Wire};
use watm_net::counters::Counters;
use watm_net::flow::StreamFlow;
use watm_net::quota::Quota;
use watm_policy::{Capture, Keys, Reach};

use crate::hub::Accepting;
use crate::{Error, Limits, Role, Target};

/// The settings that all connections of a dialer, listener or relay share.
#[derive(Clone)]
pub struct Settings {
    /// The name in errors and logs.
    pub name: String,
    /// The limits, within the grant of the module.
    pub limits: Limits,
    /// The configuration, if there is one.
    pub config: Option<Vec<u8>>,
    /// The datagram sockets of a component, each with its label.
    pub sockets: Vec<(String, OuterSocket)>,
    /// The address that a WATER module takes connections at, for the module's record.
    pub listens: Option<SocketAddr>,
    /// The time that open connections may last after a swap; `None` for no limit.
    pub drain: Option<Duration>,
    /// The destinations that the module may reach beside the one of the job.
    pub reach: Reach,
    /// The application's own way to connect.
    pub connector: Option<Arc<dyn Connect>>,
    /// The private keys of a component.
    pub keys: Keys,
    /// The capture of a component.
    pub capture: Option<Capture>,
    /// Decides which flows the other end of a component may open. `None`: all.
    pub accepting: Option<Accepting>,
    /// The least severe level of the records that are passed on.
    pub log_level: tracing::Level,
    /// The counters of the host.
    pub counters: Arc<Counters>,
    /// The count of open flows.
    pub flows: Quota,
    /// The count of a WATER module's connections.
    pub descriptors: Quota,
    /// The permits of lookups, as in `Access`.
    pub lookups: Arc<Semaphore>,
}

/// A datagram socket that a module is granted.
#[derive(Clone, Copy)]
pub enum OuterSocket {
    /// A socket of the system, bound to this address.
    Bound(SocketAddr),
    /// A socket that the connector carries.
    Carried,
}

/// A connection to be made.
pub struct Job {
    /// The destination, for a dialer and a relay.
    pub target: Option<Target>,
    /// The incoming connection, for a listener and a relay.
    pub accepted: Option<Wire>,
    /// The configuration, in place of that of the settings.
    pub config: Option<Arc<[u8]>>,
}

impl Job {
    /// Returns the role that makes such a connection.
    pub fn role(&self) -> Role {
        match (&self.target, &self.accepted) {
            (Some(_), None) => Role::Dialer,
            (None, None) => Role::FixedDialer,
            (None, Some(_)) => Role::Listener,
            (Some(_), Some(_)) => Role::Relay,
        }
    }
}

/// A connection that is ready.
pub struct Opened {
    /// The application's end; a relay has none.
    pub flow: Option<StreamFlow>,
    /// The addresses on the network's side.
    pub local: Option<SocketAddr>,
    /// The address of the other end.
    pub peer: Option<SocketAddr>,
    /// For a client's connection: receives when the module first uses the flow.
    pub used: Option<oneshot::Receiver<()>>,
    /// Dropping it closes a relay's connection. Others are closed by their flow.
    pub stop: oneshot::Sender<()>,
    /// Fails once the connection is gone.
    pub finished: oneshot::Receiver<()>,
}

/// The longest time that a module may wait only for a client. Modules with a handshake bound it
/// themselves, and vary the time, since strangers can measure it.
const LONGEST_HANDSHAKE: Duration = Duration::from_secs(300);

impl Opened {
    /// Waits until the handshake with a client is over, which it is when the module uses the flow or
    /// ends without an error. While the module waits only for the client, nobody else needs to know of
    /// the connection.
    ///
    /// Fails with the reason why the module refused the client, or if it takes too long.
    pub async fn established(&mut self, name: &str) -> Result<(), Error> {
        let (Some(used), Some(flow)) = (&mut self.used, &self.flow) else {
            return Ok(());
        };
        let after = LONGEST_HANDSHAKE;
        match timeout(after, used).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => match flow.broken_off() {
                None => Ok(()),
                Some(reason) => Err(Error::Handshake {
                    module: name.to_owned(),
                    reason: reason.to_string(),
                }),
            },
            Err(_) => Err(Error::Timeout {
                module: name.to_owned(),
                after,
            }),
        }
    }
}
