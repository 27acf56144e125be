//! Steps a module: one thread a server.
//!
//! A thread of its own, because calls into a module are synchronous: a slow one stalls
//! itself, and neither the application nor another server. The application's side of the
//! flows is reached through wakers alone.

mod backoff;
mod generation;
mod pace;
mod restart;
mod run;
mod swap;
mod water;

use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread;

use tokio::runtime::{self, Handle};
use tokio::sync::{Semaphore, mpsc};

use crate::component::{Begun, Dial, Grants, Tape};
use crate::flow::{DatagramFlow, StreamFlow};
use crate::hub::Hub;
use crate::keys::Keys;
use crate::net::{Admission, BoundSocket, CarriedPort, DatagramPort, Port, TcpPort, UdpPort};
use crate::recording::Recorder;
use crate::roles::{Access, Connect, MAX_LOOKUPS};
use crate::share::Share;
use crate::{Capture, ClientConfig, Destination, Error, Module, Reach, Status};
use run::Driver;
pub(crate) use swap::Swap;
use water::WaterServer;

/// Requests that may wait for a module to return from a call.
const COMMAND_QUEUE: usize = 64;

/// What a server is started with.
pub(crate) struct Plan {
    pub(crate) hub: Arc<Hub>,
    pub(crate) module: Module,
    pub(crate) config: Vec<u8>,
    /// What another server's module would leave to its successor, which is for this one too.
    pub(crate) beside: Option<Vec<u8>>,
    pub(crate) sockets: Vec<(String, BoundSocket)>,
    /// Of the listeners.
    pub(crate) admission: Option<Arc<dyn Admission>>,
    pub(crate) reach: Reach,
    /// A component's; runs in `home`, or with the dial that it is for.
    pub(crate) connector: Option<Arc<dyn Connect>>,
    pub(crate) home: Option<Handle>,
    pub(crate) host_crypto: bool,
    pub(crate) keys: Keys,
    pub(crate) capture: Option<Capture>,
    pub(crate) log_level: tracing::Level,
    pub(crate) recorder: Option<Recorder>,
}

/// Takes the answer to a command. Dropped unused when the server closes.
pub(crate) type Reply<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

/// What the application asks of the driver, answered between two calls. The end of the
/// commands closes the server.
pub(crate) enum Command {
    Status(Reply<Status>),
    ClientConfigs(Destination, Reply<Vec<ClientConfig>>),
    Reconfigure(Vec<u8>, Reply<()>),
    Dial(Dial, Reply<Begun<StreamFlow>>),
    DialDatagrams(Dial, Reply<Begun<DatagramFlow>>),
    Swap(Swap, Reply<u32>),
    Snapshot(Reply<Vec<u8>>),
    StopAccepting(Reply<()>),
}

/// Start the thread, and wait until the module has started. What the thread's executor is reached
/// by comes along.
pub(crate) fn start(plan: Plan) -> Result<(mpsc::Sender<Command>, Handle), Error> {
    let (sender, receiver) = mpsc::channel(COMMAND_QUEUE);
    let (started, outcome) = blocking::sync_channel(1);
    thread::Builder::new()
        .name("watm-server".to_owned())
        .spawn(move || serve(plan, receiver, &started))
        .map_err(|error| Error::System(format!("cannot start a thread: {error}")))?;
    match outcome.recv() {
        Ok(Ok(executor)) => Ok((sender, executor)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::System("the server's thread ended".to_owned())),
    }
}

fn serve(
    plan: Plan,
    commands: mpsc::Receiver<Command>,
    started: &blocking::SyncSender<Result<Handle, Error>>,
) {
    let closed = ClosedOnDrop(plan.hub.clone());
    let failed = |error| {
        // The builder waits for this, unless its thread is gone.
        let _ = started.send(Err(error));
    };
    let runtime = match runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return failed(Error::System(format!("cannot wait for sockets: {error}")));
        }
    };
    let executor = runtime.handle().clone();
    let outcome = |result: Result<(), Error>| {
        // As above.
        let _ = started.send(result.map(|()| executor.clone()));
    };
    if plan.module.water().is_some() {
        runtime.block_on(async {
            match WaterServer::new(plan).await {
                Ok(server) => {
                    outcome(Ok(()));
                    server.run(commands).await;
                }
                Err(error) => outcome(Err(error)),
            }
        });
    } else {
        serve_component(&runtime, plan, commands, &outcome);
    }
    // The sockets are closed by now; that of the runtime itself goes before the news.
    drop(runtime);
    drop(closed);
}

fn serve_component(
    runtime: &runtime::Runtime,
    plan: Plan,
    commands: mpsc::Receiver<Command>,
    outcome: &impl Fn(Result<(), Error>),
) {
    let context = runtime.enter();
    let prepared = prepare(plan);
    drop(context);
    match prepared {
        Ok(driver) => {
            outcome(Ok(()));
            // Without a budget: sockets are polled through the module's tokens, and the
            // driver yields by itself.
            let run = driver.run(commands);
            runtime.block_on(tokio::task::coop::unconstrained(run));
        }
        Err(error) => outcome(Err(error)),
    }
}

fn prepare(plan: Plan) -> Result<Driver, Error> {
    let hub = plan.hub;
    let mut ports = Vec::new();
    for (label, socket) in plan.sockets {
        let counters = hub.counters.clone();
        let port = match socket {
            BoundSocket::Udp(socket, local) => UdpPort::new(socket, local, counters)
                .map(|port| DatagramPort::bound(port, &hub.counters.account))
                .map(|port| Port::Udp(Arc::new(port))),
            BoundSocket::Carried => {
                let connector = plan.connector.clone().ok_or_else(|| {
                    Error::System(format!("socket with label \"{label}\": no connector"))
                })?;
                let home = plan.home.clone().unwrap_or_else(Handle::current);
                let limit = hub.limits.connect_timeout;
                let port = CarriedPort::new(connector, home, limit, counters);
                let port = DatagramPort::carried(port, &hub.counters.account);
                Ok(Port::Udp(Arc::new(port)))
            }
            BoundSocket::Tcp(listener, local) => {
                TcpPort::new(listener, local, counters, plan.admission.clone())
                    .map(|port| Port::Tcp(Arc::new(port)))
            }
        };
        let port =
            port.map_err(|error| Error::System(format!("socket with label \"{label}\": {error}")))?;
        ports.push((label, port));
    }
    let access = Access {
        name: hub.name.clone(),
        reach: plan.reach,
        connector: plan.connector,
        connect_timeout: hub.limits.connect_timeout,
        counters: hub.counters.clone(),
        lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
    };
    let grants = Grants {
        hub,
        ports: Arc::new(ports),
        post: Arc::default(),
        access: Some(Arc::new(access)),
        home: plan.home,
        host_crypto: plan.host_crypto,
        keys: plan.keys,
        capture: plan.capture,
        log_level: plan.log_level,
        share: Share::new(plan.module.granted().cpu_permille()),
        tape: plan
            .recorder
            .map(|recorder| Tape::Record(Arc::new(recorder))),
    };
    let name = grants.hub.name.clone();
    Driver::new(plan.module, plan.config, plan.beside.as_deref(), grants)
        .map_err(|failure| failure.error(&name))
}

/// Whatever ends the thread, nobody waits for it in vain.
struct ClosedOnDrop(Arc<Hub>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.keep();
        self.0.set_closed();
    }
}
