//! The module under test, and the servers and dialers made of it. Used by the checks.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use watm_runtime::{Destination, Dialer, Error, Module, Network, Reach, Role, Server};

use super::report::Verdict;

/// The label of a module's sockets, unless its description has others.
const LABEL: &str = "listen";

/// The destination of connections, if flows name one. Nothing connects to it.
const SOMEWHERE: &str = "10.9.8.7:80";

/// Attempts to find a port that is free for both protocols.
const ATTEMPTS: usize = 50;

/// The part of a configuration of a client that stands for the server's address.
pub(super) const SERVER: &str = "{server}";

/// A module, and the options for its checks.
pub(super) struct Subject {
    pub(super) module: Module,
    /// The configuration of a server.
    pub(super) config: Vec<u8>,
    /// The configuration of a client.
    pub(super) dial_config: Option<String>,
    /// The destination of a client's connections.
    pub(super) to: Option<Destination>,
    pub(super) seed: u64,
}

/// A server with its address.
pub(super) struct Serving {
    pub(super) server: Server,
    pub(super) address: SocketAddr,
    /// The protocols that it listens on.
    pub(super) networks: Vec<Network>,
}

impl Subject {
    /// Skips a module that does not describe itself.
    pub(super) fn described(&self) -> Result<(), Verdict> {
        match &self.module.info().about {
            Some(_) => Ok(()),
            None => Err(Verdict::Skipped(
                "has no section watm.about, so hosts know neither its title nor its options"
                    .to_owned(),
            )),
        }
    }

    /// Starts a server with this configuration, on a port of its own.
    pub(super) fn serve(&self, config: &[u8]) -> Result<Serving, Error> {
        let sockets = self.sockets();
        let (tcp, udp) = bind().map_err(|error| Error::System(error.to_string()))?;
        let address = tcp
            .local_addr()
            .map_err(|error| Error::System(error.to_string()))?;
        let (mut tcp, mut udp) = (Some(tcp), Some(udp));
        let mut builder = Server::builder(&self.module).config(config).name("check");
        for (network, label) in &sockets {
            builder = match network {
                Network::Tcp => match tcp.take() {
                    Some(listener) => builder.tcp_listener(label, listener),
                    None => builder.tcp(label, local()),
                },
                Network::Udp => match udp.take() {
                    Some(socket) => builder.udp_socket(label, socket),
                    None => builder.udp(label, local()),
                },
            };
        }
        Ok(Serving {
            server: builder.start()?,
            address,
            networks: sockets.into_iter().map(|(network, _)| network).collect(),
        })
    }

    /// Makes a dialer whose server is at this address.
    pub(super) fn dialer(&self, server: SocketAddr) -> Result<Dialer, Error> {
        let config = match &self.dial_config {
            Some(config) => config.replace(SERVER, &server.to_string()).into_bytes(),
            None => self.config.clone(),
        };
        let reach = Reach::none()
            .with_datagrams()
            .allow(&format!("tcp://{server}"))?
            .allow(&format!("udp://{server}"))?;
        let builder = Dialer::builder(&self.module)
            .config(config)
            .reach(reach)
            .name("check");
        let sockets = self.sockets();
        let by_datagrams = self.module.is_component()
            && !sockets.iter().any(|(network, _)| *network == Network::Tcp);
        match sockets.first() {
            Some((_, label)) if by_datagrams => builder.udp(label, local()),
            _ => builder,
        }
        .build()
    }

    /// Returns the destination to dial, for a server at this address.
    pub(super) fn target(&self, server: SocketAddr) -> String {
        match (&self.to, self.names_destinations()) {
            (Some(to), _) => to.to_string(),
            (None, true) => SOMEWHERE.to_owned(),
            (None, false) => server.to_string(),
        }
    }

    /// Fails with the reason if no client can be made of the module.
    pub(super) fn can_pair(&self) -> Result<(), String> {
        let info = self.module.info();
        if info
            .about
            .as_ref()
            .is_some_and(|about| !about.dials || !about.accepts)
        {
            return Err("has one end only, by its description".to_owned());
        }
        let both = [Role::Dialer, Role::Listener];
        let has_both = both.iter().all(|role| info.roles.contains(role));
        if !self.module.is_component() && !has_both {
            return Err("has no role dialer, or no role listener".to_owned());
        }
        match self.dial_config.is_none() && self.names_destinations() {
            true => Err("needs --dial-config, the configuration of a client".to_owned()),
            false => Ok(()),
        }
    }

    /// Returns true if a client finds the server: by its configuration, or by its destination.
    pub(super) fn finds_server(&self) -> bool {
        let names = |config: &String| config.contains(SERVER);
        !self.names_destinations() || self.dial_config.as_ref().is_none_or(names)
    }

    /// Returns true if flows name a destination. A component without a description may.
    fn names_destinations(&self) -> bool {
        match &self.module.info().about {
            Some(about) => about.destinations,
            None => false,
        }
    }

    /// Returns the sockets of a server.
    fn sockets(&self) -> Vec<(Network, String)> {
        let known = |network: &str| match network {
            "tcp" => Some(Network::Tcp),
            "udp" => Some(Network::Udp),
            _ => None,
        };
        if let Some(about) = &self.module.info().about {
            let sockets = about.sockets.iter();
            return sockets
                .filter_map(|socket| Some((known(&socket.transport)?, socket.label.clone())))
                .collect();
        }
        let listens = self.module.listens_on().first();
        listens
            .map(|network| (*network, LABEL.to_owned()))
            .into_iter()
            .collect()
    }
}

fn local() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Binds a port of both protocols.
fn bind() -> std::io::Result<(TcpListener, UdpSocket)> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let listener = TcpListener::bind(local())?;
        match UdpSocket::bind(listener.local_addr()?) {
            Ok(socket) => return Ok((listener, socket)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()))
}
