use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::component::ComponentRunner;
use super::connect::{Connect, Wire};
use super::reach::Reach;
use super::replaceable::Replaceable;
use super::role::Role;
use super::target::Target;
use crate::counters::Counters;
use crate::flow::{DatagramFlow, Flow, FlowCount, StreamFlow};
use crate::hub::Accepting;
use crate::{Capture, Error, Keys, Limits, Module, ModuleKind, Status};

/// What a module is behind a dialer, a listener or a relay, whichever kind of module it is.
pub(crate) trait Runner: Send + Sync {
    /// Make one connection ready. Dropping the future gives up on it; after that it lives by
    /// itself, in a task of the runtime that this was called in.
    fn open(self: Arc<Self>, job: Job) -> Opening<Opened>;

    /// Have datagrams carried to a target.
    fn open_datagrams(self: Arc<Self>, job: Job) -> Opening<DatagramFlow>;

    /// The next flow that the other end has opened; `None`: there will be none.
    fn accept(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Option<Flow>> + Send>> {
        Box::pin(async { None })
    }

    /// Have another module make the connections that are opened from now on; the others stay
    /// as they are. On an error nothing changes.
    fn swap(self: Arc<Self>, module: Module) -> Done;

    /// Have the module look at its configuration, unless it has as it started.
    fn check_config(self: Arc<Self>) -> Done {
        Box::pin(async { Ok(()) })
    }

    /// Take no more of what the module accepts itself.
    fn stop_accepting(self: Arc<Self>) -> Done {
        Box::pin(async { Ok(()) })
    }

    /// How the module is doing.
    fn status(self: Arc<Self>) -> Opening<Status>;
}

/// Ready when something is open.
pub(crate) type Opening<T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send>>;

/// Ready when something has been done.
pub(crate) type Done = Opening<()>;

/// What all connections of a dialer, listener or relay have in common.
#[derive(Clone)]
pub(crate) struct Settings {
    /// In errors and logs.
    pub(crate) name: String,
    pub(crate) limits: Limits,
    pub(crate) config: Option<Vec<u8>>,
    /// Of datagrams, for a component: each with its label.
    pub(crate) sockets: Vec<(String, OuterSocket)>,
    /// Of a WATER module that takes connections: where, for what is noted of it.
    pub(crate) listens: Option<SocketAddr>,
    /// How long what is open may last behind another module; `None`: as long as it does.
    pub(crate) drain: Option<Duration>,
    pub(crate) reach: Reach,
    pub(crate) connector: Option<Arc<dyn Connect>>,
    /// Of a component.
    pub(crate) keys: Keys,
    /// As well.
    pub(crate) capture: Option<Capture>,
    /// Of a component's flows, those that the other end may open. `None`: all.
    pub(crate) accepting: Option<Accepting>,
    pub(crate) log_level: tracing::Level,
    pub(crate) counters: Arc<Counters>,
    pub(crate) flows: FlowCount,
    /// Of a WATER module: its connections.
    pub(crate) descriptors: FlowCount,
    /// As in [`Access`](super::Access).
    pub(crate) lookups: Arc<Semaphore>,
}

/// A socket of datagrams that a module is granted.
#[derive(Clone, Copy)]
pub(crate) enum OuterSocket {
    /// The system's, bound to this address.
    Bound(SocketAddr),
    /// The connector's.
    Carried,
}

/// One connection to be made.
pub(crate) struct Job {
    /// Of a dialer and a relay: whereto.
    pub(crate) target: Option<Target>,
    /// Of a listener and a relay: what came in.
    pub(crate) accepted: Option<Wire>,
    /// In the place of the settings'.
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
    /// Of the network's side.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// Of a client's connection: sent to when the module first uses the flow.
    pub(crate) used: Option<oneshot::Receiver<()>>,
    /// Dropped, it closes a relay's connection. Others are closed by their flow.
    pub(crate) stop: oneshot::Sender<()>,
    /// An error, once the connection is gone.
    pub(crate) finished: oneshot::Receiver<()>,
}

/// How long a module may wait for a client alone. Modules that have a handshake bound it themselves, and
/// vary the time, since strangers can measure it.
const LONGEST_HANDSHAKE: Duration = Duration::from_secs(300);

impl Opened {
    /// Waits until the handshake with a client is over, which it is when the module uses the flow or
    /// ends without an error: while it waits for the client alone, nobody else needs to know of the
    /// connection.
    ///
    /// Fails with why the module refused the client, or if it takes too long.
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

/// What runs a module in this role. A component listens by [`ComponentRunner::listening`].
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
    // It is compiled and linked, and has the role; its instances come with the connections.
    module.accept()?;
    Ok(Arc::new(runner))
}

/// Whether a WATER module has this role.
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
