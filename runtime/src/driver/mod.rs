//! Runs a server's module, on one thread for each server. `server` starts it.
//!
//! It has a thread of its own because calls into a module are synchronous: a slow call delays
//! itself, and neither the application nor another server. The application's side of the flows is
//! reached only through wakers.

mod generation;
mod pace;
#[cfg(feature = "programs")]
mod program;
mod restart;
mod run;
mod swap;
mod water;

use std::sync::Arc;
use std::sync::mpsc as blocking;
use std::thread;

use tokio::runtime::{self, Handle};
use tokio::sync::{Semaphore, mpsc};

#[cfg(feature = "programs")]
use crate::ModuleKind;
use crate::{Capture, ClientConfig, Destination, Error, Module, Reach, Status};
#[cfg(feature = "programs")]
use program::ProgramServer;
use run::Driver;
pub(crate) use swap::Swap;
use water::WaterServer;
use watm_component::recording::Recorder;
use watm_component::{BegunDial, Dial, Grants, Tape};
use watm_engine::cpu_quota::CpuQuota;
use watm_engine::hub::Hub;
use watm_engine::slice;
use watm_net::connect::Connect;
use watm_net::flow::{DatagramFlow, StreamFlow};
use watm_net::ports::{CarriedPort, DatagramPort, Port};
use watm_net::sockets::{Admission, BoundSocket, PacketPort, TcpPort, UdpPort};
use watm_policy::access::{Access, MAX_LOOKUPS};
use watm_policy::keys::Keys;

/// The most requests that may wait for a module to return from a call.
const COMMAND_QUEUE: usize = 64;

/// The settings that a server is started with.
pub(crate) struct Plan {
    pub(crate) hub: Arc<Hub>,
    pub(crate) module: Module,
    pub(crate) config: Vec<u8>,
    /// The arguments of a program. `None` for those of a forwarder.
    #[cfg_attr(not(feature = "programs"), expect(dead_code, reason = "for programs"))]
    pub(crate) arguments: Option<Vec<String>>,
    /// The snapshot of another server's module, which this server's module starts with.
    pub(crate) beside: Option<Vec<u8>>,
    pub(crate) sockets: Vec<(String, BoundSocket)>,
    /// The admission of the listeners' connections.
    pub(crate) admission: Option<Arc<dyn Admission>>,
    pub(crate) reach: Reach,
    /// The connector of a component; runs in `home`, or with the dial that it is for.
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

/// A request of the application to the driver, answered between two calls. Closing the channel
/// closes the server.
pub(crate) enum Command {
    Status(Reply<Status>),
    ClientConfigs(Destination, Reply<Vec<ClientConfig>>),
    Reconfigure(Vec<u8>, Reply<()>),
    Dial(Dial, Reply<BegunDial<StreamFlow>>),
    DialDatagrams(Dial, Reply<BegunDial<DatagramFlow>>),
    Swap(Swap, Reply<u32>),
    Snapshot(Reply<Vec<u8>>),
    StopAccepting(Reply<()>),
    Capture(Option<Capture>, Reply<()>),
}

impl Command {
    /// Answers with an error.
    fn refuse(self, error: Error) {
        match self {
            Command::Status(reply) => reply(Err(error)),
            Command::ClientConfigs(_, reply) => reply(Err(error)),
            Command::Reconfigure(_, reply)
            | Command::StopAccepting(reply)
            | Command::Capture(_, reply) => reply(Err(error)),
            Command::Dial(_, reply) => reply(Err(error)),
            Command::DialDatagrams(_, reply) => reply(Err(error)),
            Command::Swap(_, reply) => reply(Err(error)),
            Command::Snapshot(reply) => reply(Err(error)),
        }
    }
}

/// The error of a capture that the module cannot begin while it runs.
fn cannot_capture(module: &str) -> Error {
    Error::NotGranted {
        module: module.to_owned(),
        reason: "cannot begin or end a capture while it runs; name its file when you start it"
            .to_owned(),
    }
}

/// Starts the thread, and waits until the module has started. Returns the sender of commands, and
/// the handle of the thread's executor.
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
    slice::begin();
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
        // The builder waits for this, too.
        let _ = started.send(result.map(|()| executor.clone()));
    };
    #[cfg(feature = "programs")]
    if plan.module.info().kind == ModuleKind::Program {
        runtime.block_on(async {
            match ProgramServer::new(plan).await {
                Ok(server) => {
                    outcome(Ok(()));
                    server.run(commands).await;
                }
                Err(error) => outcome(Err(error)),
            }
        });
        drop(runtime);
        drop(closed);
        return;
    }
    if !plan.module.is_component() {
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
    // The sockets are closed by now. The runtime is dropped before the closing is reported.
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
            // The task has no budget: sockets are polled through the module's tokens, and the
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
            BoundSocket::Udp(socket, local, place) => UdpPort::new(socket, local, counters)
                .map(|port| DatagramPort::bound(port, place, &hub.counters.account))
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
            BoundSocket::Packets(device) => {
                PacketPort::new(device, counters).map(|port| Port::Packets(Arc::new(port)))
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
        mailboxes: Arc::default(),
        access: Some(Arc::new(access)),
        home: plan.home,
        host_crypto: plan.host_crypto,
        keys: plan.keys,
        capture: plan.capture,
        log_level: plan.log_level,
        cpu_quota: CpuQuota::new(plan.module.granted().cpu_permille()),
        tape: plan
            .recorder
            .map(|recorder| Tape::Record(Arc::new(recorder))),
    };
    let name = grants.hub.name.clone();
    Driver::new(plan.module, plan.config, plan.beside.as_deref(), grants)
        .map_err(|failure| failure.error(&name))
}

/// Reports the closing whatever ends the thread, so that nobody waits in vain.
struct ClosedOnDrop(Arc<Hub>);

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        self.0.write_usage_record();
        self.0.set_closed();
    }
}
