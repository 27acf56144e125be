//! The builder of servers: it collects the grants, binds the sockets and starts the driver.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::{Handle, Server};
use crate::driver::{self, Command, Plan};
use crate::{Capture, Destination, Error, Limits, Module, Network, Reach};
use watm_component::recording::{Header, Recorder, Socket};
use watm_engine::hub::{Accepting, Hub};
use watm_engine::log;
use watm_net::connect::Connect;
use watm_net::sockets::{Admission, BoundSocket, DatagramSocket, Grant, PacketDevice, Protocol};
use watm_policy::keys::Keys;

/// Options for starting a module. Methods chain by value; [`start`](ServerBuilder::start) ends the
/// chain.
#[must_use = "nothing happens before `start`"]
pub struct ServerBuilder {
    module: Module,
    config: Vec<u8>,
    grants: Vec<Grant>,
    carried: Vec<String>,
    listeners: Vec<(String, TcpListener)>,
    datagram_sockets: Vec<(String, DatagramSocket)>,
    devices: Vec<(String, PacketDevice)>,
    limits: Limits,
    reach: Reach,
    connector: Option<Arc<dyn Connect>>,
    accepting: Option<Accepting>,
    admission: Option<Arc<dyn Admission>>,
    host_crypto: bool,
    keys: Keys,
    capture: Option<Capture>,
    name: Option<String>,
    log_level: Option<tracing::Level>,
    record: Option<PathBuf>,
    beside: Option<Server>,
    arguments: Option<Vec<String>>,
}

impl ServerBuilder {
    pub(super) fn new(module: &Module) -> ServerBuilder {
        ServerBuilder {
            module: module.clone(),
            config: Vec::new(),
            grants: Vec::new(),
            carried: Vec::new(),
            listeners: Vec::new(),
            datagram_sockets: Vec::new(),
            devices: Vec::new(),
            limits: Limits::default(),
            reach: Reach::none(),
            connector: None,
            accepting: None,
            admission: None,
            host_crypto: true,
            keys: Keys::new(),
            capture: None,
            name: None,
            log_level: None,
            record: None,
            beside: None,
            arguments: None,
        }
    }

    /// Sets the configuration, in the module's own format. Default: empty.
    pub fn config(mut self, config: impl Into<Vec<u8>>) -> Self {
        self.config = config.into();
        self
    }

    /// Grants a datagram socket bound to `address`; with port 0 the system chooses one, and `[::]`
    /// takes IPv4 too. Modules use the label `listen` for their first socket. A datagram socket and a
    /// listener may have the same label, two of either may not. The module may send to addresses that
    /// it has heard from on the socket, and to those that [`Reach`] admits.
    pub fn udp(self, label: &str, address: SocketAddr) -> Self {
        self.grant(label, Network::Udp, address)
    }

    /// Grants a listener bound to `address`, with the same rules as in [`udp`](ServerBuilder::udp).
    pub fn tcp(self, label: &str, address: SocketAddr) -> Self {
        self.grant(label, Network::Tcp, address)
    }

    /// Grants a listener that is already bound.
    pub fn tcp_listener(mut self, label: &str, listener: TcpListener) -> Self {
        self.listeners.push((label.to_owned(), listener));
        self
    }

    /// Grants a datagram socket that is already bound: a `UdpSocket` of the standard library, or one of
    /// several on one address ([`share_datagram_address`](crate::share_datagram_address)).
    pub fn udp_socket(mut self, label: &str, socket: impl Into<DatagramSocket>) -> Self {
        self.datagram_sockets
            .push((label.to_owned(), socket.into()));
        self
    }

    /// Grants a device for IP packets. The modules of this project use the label `tun`. A module can
    /// use no other device of the system.
    pub fn packets(mut self, label: &str, device: PacketDevice) -> Self {
        self.devices.push((label.to_owned(), device));
        self
    }

    /// Grants a datagram socket whose datagrams the connector carries.
    pub(crate) fn datagrams(mut self, label: &str) -> Self {
        self.carried.push(label.to_owned());
        self
    }

    /// Sets whether `[::]` leaves IPv4 alone, for the sockets granted so far. Default: no.
    pub fn ipv6_only(mut self, only: bool) -> Self {
        for grant in &mut self.grants {
            grant.ipv6_only = only;
        }
        self
    }

    /// Bounds what the module may use. Default: [`Limits::default`].
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the destinations that the module may reach, besides the one of a [`dial`](Server::dial) in
    /// progress. Default: none.
    pub fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }

    /// Makes a component's connections with `connector`, in the runtime of the dial that they are for,
    /// or else in the one that the server is started in.
    pub(crate) fn connector(mut self, connector: Option<Arc<dyn Connect>>) -> Self {
        self.connector = connector;
        self
    }

    /// Accepts only flows for which `accepts` returns true, given their protocol ([`Network::Udp`]:
    /// datagrams) and their destination; the module refuses all others in the way of its protocol.
    /// Called on the server's thread, so it must not block. Default: all.
    pub fn accepting(
        mut self,
        accepts: impl Fn(Network, &Destination) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.accepting = Some(Arc::new(accepts));
        self
    }

    /// Has `admission` decide which connections the module's listeners take, before the module knows of
    /// them. A WATER module's listener takes all. Default: all.
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = Some(admission);
        self
    }

    /// Sets whether the host may run the module's ciphers for it. Default: yes.
    pub fn host_crypto(mut self, granted: bool) -> Self {
        self.host_crypto = granted;
        self
    }

    /// Sets the private keys that the module may sign with, without seeing them. Its seal and grant
    /// must have `host-keys`. Default: none.
    pub fn keys(mut self, keys: Keys) -> Self {
        self.keys = keys;
        self
    }

    /// Writes copies of the packets and the keys of the module's tunnels to files. Its seal and grant
    /// must have `capture`. Default: none.
    pub fn capture(mut self, capture: Option<Capture>) -> Self {
        self.capture = capture;
        self
    }

    /// Sets the server's name in logs and errors. Default: the module's name.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Sets the least level of the module's own records. Default: the level that the `tracing`
    /// subscriber lets through when the server starts.
    pub fn log_level(mut self, level: tracing::Level) -> Self {
        self.log_level = Some(level);
        self
    }

    /// Starts the module with the snapshot of `other`'s module, such as its ticket keys, so that each
    /// knows the clients of the other: for servers with one configuration that share an address.
    /// Default: none.
    pub fn beside(mut self, other: &Server) -> Self {
        self.beside = Some(other.clone());
        self
    }

    /// Sets the arguments of a program of WASI, after its name. Default: the address of the listener, and
    /// `application.internal` with the port of the listener, as a forwarder takes them.
    pub fn arguments(mut self, arguments: impl IntoIterator<Item = String>) -> Self {
        self.arguments = Some(arguments.into_iter().collect());
        self
    }

    /// Records the module's life in a new file, for [`Recording`](crate::Recording) and the command
    /// `watm replay`. Default: no.
    ///
    /// The file holds the configuration with its keys and all payload. It is created with mode 0600,
    /// and a file that exists is an error. A WARN record reports that it is being written. It ends with
    /// the server, at [`Limits::record_bytes`], or when it cannot be written fast enough or at all,
    /// which another WARN record reports; the server continues.
    pub fn record(mut self, path: impl Into<PathBuf>) -> Self {
        self.record = Some(path.into());
        self
    }

    /// Binds the sockets and starts the module. Blocks until the module has accepted its configuration,
    /// at most for the CPU limit of a call.
    ///
    /// Fails if a port is taken, if the module has no use for a socket ([`Module::listens_on`]), if it
    /// refuses the configuration (in its words), or if it traps.
    pub fn start(mut self) -> Result<Server, Error> {
        self.limits.check()?;
        let kind = self.module.info().kind;
        let limits = mem::take(&mut self.limits);
        let limits = self.module.granted().limits(kind, limits);
        self.check_labels()?;
        let name = self.name.take();
        let name = name.unwrap_or_else(|| self.module.name().to_owned());
        self.module.check_granted(&name, [])?;
        self.module.check_keys(&name, &self.keys)?;
        if self.capture.is_some() {
            self.module.check_capture(&name)?;
        }
        let sockets = self.bind(&name)?;
        let addresses: Vec<(String, Protocol, SocketAddr)> = sockets
            .iter()
            .map(|(label, socket)| (label.clone(), socket.protocol(), socket.local_addr()))
            .collect();
        let log_level = self.log_level.unwrap_or_else(log::subscribed_level);
        let recorder = self.recorder(&name, &limits, log_level, &addresses)?;
        let capturing = self.capture.as_ref().map(|capture| capture.begin(&name));
        let capturing = capturing.transpose()?.flatten();
        let used = addresses
            .iter()
            .map(|(label, protocol, address)| match protocol {
                Protocol::Udp => format!("udp {label} {address}"),
                Protocol::Tcp => format!("tcp {label} {address}"),
                Protocol::Packets => format!("packets {label}"),
            });
        let used = used.collect();
        let beside = self.beside.filter(|_| self.module.is_component());
        let beside = beside
            .map(|other| other.handle.ask(Command::Snapshot))
            .transpose()?;
        let hub = Arc::new(Hub::new(name, limits).accepting(self.accepting));
        let module = self.module.clone();
        let (commands, executor) = driver::start(Plan {
            hub: hub.clone(),
            module: self.module,
            config: self.config,
            arguments: self.arguments,
            beside,
            sockets,
            admission: self.admission,
            reach: self.reach,
            connector: self.connector,
            home: tokio::runtime::Handle::try_current().ok(),
            host_crypto: self.host_crypto,
            keys: self.keys,
            capture: self.capture.clone(),
            log_level,
            recorder,
        })?;
        let server = Server {
            handle: Arc::new(Handle {
                hub,
                addresses,
                commands: Mutex::new(Some(commands)),
                executor,
                capture: Mutex::new(self.capture),
            }),
        };
        module.accept()?;
        server.handle.hub.begin_usage_record(&module, used);
        if let Some(begun) = capturing {
            begun.keep();
        }
        Ok(server)
    }

    /// Fails if two sockets of one protocol have the same label.
    fn check_labels(&self) -> Result<(), Error> {
        let granted = self
            .grants
            .iter()
            .map(|it| (&it.label, protocol_of(it.network)));
        let devices = self.devices.iter().map(|(label, _)| label);
        let tcp = self.listeners.iter().map(|(label, _)| label);
        let sockets = self.datagram_sockets.iter().map(|(label, _)| label);
        let udp = self.carried.iter().chain(sockets);
        let mut labels: Vec<(&String, Protocol)> = granted
            .chain(tcp.map(|label| (label, Protocol::Tcp)))
            .chain(udp.map(|label| (label, Protocol::Udp)))
            .chain(devices.map(|label| (label, Protocol::Packets)))
            .collect();
        labels.sort();
        match labels.array_windows().find(|[one, next]| one == next) {
            Some([(label, _), _]) => Err(Error::Options(format!(
                "duplicate label \"{label}\"; each socket must have its own"
            ))),
            None => Ok(()),
        }
    }

    /// Binds the sockets of the server, or takes those that the caller has bound.
    fn bind(&mut self, name: &str) -> Result<Vec<(String, BoundSocket)>, Error> {
        let mut sockets = Vec::new();
        for grant in mem::take(&mut self.grants) {
            let protocol = protocol_of(grant.network);
            self.module.check_use(name, &grant.label, protocol)?;
            sockets.push((grant.label.clone(), grant.bind()?));
        }
        let unusable = |label: &str, error: io::Error| {
            Error::System(format!("socket with label \"{label}\": {error}"))
        };
        for (label, socket) in mem::take(&mut self.datagram_sockets) {
            self.module.check_use(name, &label, Protocol::Udp)?;
            let socket = BoundSocket::given_datagrams(socket);
            let socket = socket.map_err(|error| unusable(&label, error))?;
            sockets.push((label, socket));
        }
        for label in mem::take(&mut self.carried) {
            self.module.check_use(name, &label, Protocol::Udp)?;
            if self.connector.is_none() {
                return Err(Error::Options(format!(
                    "{name}: the datagram socket \"{label}\" has neither a connector nor an \
                     address; set one of them"
                )));
            }
            sockets.push((label, BoundSocket::Carried));
        }
        for (label, device) in mem::take(&mut self.devices) {
            self.module.check_use(name, &label, Protocol::Packets)?;
            sockets.push((label, BoundSocket::Packets(device)));
        }
        for (label, listener) in mem::take(&mut self.listeners) {
            self.module.check_use(name, &label, Protocol::Tcp)?;
            let socket = BoundSocket::given(listener);
            let socket = socket.map_err(|error| unusable(&label, error))?;
            sockets.push((label, socket));
        }
        Ok(sockets)
    }

    /// Creates the file of the recording, if the caller wants one.
    fn recorder(
        &self,
        name: &str,
        limits: &Limits,
        log_level: tracing::Level,
        addresses: &[(String, Protocol, SocketAddr)],
    ) -> Result<Option<Recorder>, Error> {
        let Some(path) = &self.record else {
            return Ok(None);
        };
        let granted = addresses.iter().map(|(label, _, address)| Socket {
            label: label.clone(),
            address: *address,
        });
        let header = Header {
            sockets: granted.collect(),
            host_crypto: self.host_crypto,
            ..Header::new(&self.module, name, limits, log_level)
        };
        let recorder = Recorder::create(path, &header, limits.record_bytes)?;
        Ok(Some(recorder))
    }

    fn grant(mut self, label: &str, network: Network, address: SocketAddr) -> Self {
        self.grants.push(Grant {
            label: label.to_owned(),
            network,
            address,
            ipv6_only: false,
        });
        self
    }
}

fn protocol_of(network: Network) -> Protocol {
    match network {
        Network::Udp => Protocol::Udp,
        Network::Tcp => Protocol::Tcp,
    }
}
