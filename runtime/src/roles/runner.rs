//! The common interface of modules of all kinds behind a dialer, a listener or a relay.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::component::ComponentRunner;
use super::replaceable::Replaceable;
use crate::Role;
use crate::Target;
use crate::hub::Accepting;
use crate::{Capture, Error, Keys, Limits, Module, ModuleKind, Status};
use watm_net::connect::{Connect, Wire};
use watm_net::counters::Counters;
use watm_net::flow::{DatagramFlow, Flow, StreamFlow};
use watm_net::quota::Quota;
use watm_policy::reach::Reach;

/// A module behind a dialer, a listener or a relay, of whichever kind it is.
pub(crate) trait Runner: Send + Sync {
    /// Opens one connection. Dropping the future abandons the attempt; after that the connection lives
    /// in a task of its own, in the runtime that this was called in.
    fn open(self: Arc<Self>, job: Job) -> Opening<Opened>;

    /// Has datagrams carried to a target.
    fn open_datagrams(self: Arc<Self>, job: Job) -> Opening<DatagramFlow>;

    /// Returns the next flow that the other end has opened; `None` if there will be none.
    fn accept(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Flow>> + Send>> {
        Box::pin(async { None })
    }

    /// Has another module make the connections that are opened from now on; the others continue
    /// unchanged. An error changes nothing.
    fn swap(self: Arc<Self>, module: Module) -> Done;

    /// Has the module check its configuration, unless it did so when it started.
    fn check_config(self: Arc<Self>) -> Done {
        Box::pin(async { Ok(()) })
    }

    /// Stops accepting what the module accepts itself.
    fn stop_accepting(self: Arc<Self>) -> Done {
        Box::pin(async { Ok(()) })
    }

    /// Returns the module's state.
    fn status(self: Arc<Self>) -> Opening<Status>;
}

/// A future that returns what was opened.
pub(crate) type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// A future that returns when something has been done.
pub(crate) type Done = Opening<()>;

/// The settings that all connections of a dialer, listener or relay share.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The name in errors and logs.
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) config: Option<Vec<u8>>,
    /// The datagram sockets of a component, each with its label.
    pub(crate) sockets: Vec<(String, OuterSocket)>,
    /// The address that a WATER module takes connections at, for the module's record.
    pub(crate) listens: Option<SocketAddr>,
    /// The time that open connections may last after a swap; `None` for no limit.
    pub(crate) drain: Option<Duration>,
    pub(crate) reach: Reach,
    pub(crate) connector: Option<Arc<dyn Connect>>,
    /// The private keys of a component.
    pub(crate) keys: Keys,
    /// The capture of a component.
    pub(crate) capture: Option<Capture>,
    /// Decides which flows the other end of a component may open. `None`: all.
    pub(crate) accepting: Option<Accepting>,
    pub(crate) log_level: tracing::Level,
    pub(crate) counters: Arc<Counters>,
    pub(crate) flows: Quota,
    /// The count of a WATER module's connections.
    pub(crate) descriptors: Quota,
    /// The permits of lookups, as in [`Access`](super::Access).
    pub(crate) lookups: Arc<Semaphore>,
}

/// A datagram socket that a module is granted.
#[derive(Clone, Copy)]
pub(crate) enum OuterSocket {
    /// A socket of the system, bound to this address.
    Bound(SocketAddr),
    /// A socket that the connector carries.
    Carried,
}

/// A connection to be made.
pub(crate) struct Job {
    /// The destination, for a dialer and a relay.
    pub(crate) target: Option<Target>,
    /// The incoming connection, for a listener and a relay.
    pub(crate) accepted: Option<Wire>,
    /// The configuration, in place of that of the settings.
    pub(crate) config: Option<Arc<[u8]>>,
}

impl Job {
    pub(crate) fn role(&self) -> Role {
        match (&self.target, &self.accepted) {
            (Some(_), None) => Role::Dialer,
            (None, None) => Role::FixedDialer,
            (None, Some(_)) => Role::Listener,
            (Some(_), Some(_)) => Role::Relay,
        }
    }
}

/// A connection that is ready.
pub(crate) struct Opened {
    /// The application's end; a relay has none.
    pub(crate) flow: Option<StreamFlow>,
    /// The addresses on the network's side.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// For a client's connection: receives when the module first uses the flow.
    pub(crate) used: Option<oneshot::Receiver<()>>,
    /// Dropping it closes a relay's connection. Others are closed by their flow.
    pub(crate) stop: oneshot::Sender<()>,
    /// Fails once the connection is gone.
    pub(crate) finished: oneshot::Receiver<()>,
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
    pub(crate) async fn established(&mut self, name: &str) -> Result<(), Error> {
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

/// Makes the runner of a module in this role. A component listens by [`ComponentRunner::listening`].
pub(crate) fn runner(
    module: &Module,
    role: Role,
    settings: Settings,
) -> Result<Arc<dyn Runner>, Error> {
    module.check_granted(&settings.name, [])?;
    settings.limits.check()?;
    if module.info().kind == ModuleKind::Component {
        return Ok(Arc::new(ComponentRunner::dialling(module, settings)?));
    }
    module.check_keys(&settings.name, &settings.keys)?;
    if settings.capture.is_some() {
        module.check_capture(&settings.name)?;
    }
    if let Some((label, _)) = settings.sockets.first() {
        return Err(Error::Options(format!(
            "{}: a WATER module has no use for a socket of datagrams (label \"{label}\")",
            settings.name
        )));
    }
    let runner = Replaceable::new(module, role, settings)?;
    // The module is compiled and linked, and has the role; its instances come with the connections.
    module.accept()?;
    Ok(Arc::new(runner))
}

/// Fails if a WATER module does not have this role.
pub(super) fn check_role(module: &Module, role: Role) -> Result<(), Error> {
    let info = module.info();
    if info.roles.contains(&role) {
        return Ok(());
    }
    let roles: Vec<String> = info.roles.iter().map(Role::to_string).collect();
    Err(Error::Module {
        module: module.name().to_owned(),
        reason: format!("has not the role of a {role}; it has: {}", roles.join(", ")),
    })
}
