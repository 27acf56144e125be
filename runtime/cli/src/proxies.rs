//! Local proxies and port forwards, whose clients a module carries to their destinations. `dial`
//! and `tunnel` serve them.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use watm_runtime::Dialer;
use watm_socks::{
    Bypass, Bypassing, Counters, Destination, Error, Limits, Proxy, Resolver, Resolving, Servers,
    Users, forward,
};

use crate::accept_loop::{self, Complaints};
use crate::failure::Failure;
use crate::forward::{Forward, Network};
use crate::inputs::{listening_address, read};
use crate::logging::PROGRAM;
use crate::sealing::invalid;
use crate::stop::Stop;
use crate::tcp;

/// The default port of DNS servers.
pub(crate) const DNS_PORT: u16 = 53;

/// Options for proxies and port forwards. Each may be given several times.
#[derive(clap::Args)]
#[group(multiple = true)]
pub(crate) struct ProxyOptions {
    /// Serve SOCKS5 (CONNECT and UDP ASSOCIATE) and SOCKS4a here, and carry clients to the
    /// destinations that they name.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening_address)]
    socks5: Vec<SocketAddr>,
    /// Serve HTTP CONNECT and plain HTTP requests here.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = listening_address)]
    http: Vec<SocketAddr>,
    /// Forward this local port to one destination: tcp:ADDRESS:PORT=HOST:PORT or
    /// udp:ADDRESS:PORT=HOST:PORT.
    #[arg(long = "forward", value_name = "PORT=HOST:PORT")]
    forwards: Vec<Forward>,
    /// Connect to these destinations without the module: a name, *.name, address or network, then
    /// :port or :low-high, or a file with one a line. A network matches clients that ask by
    /// address: names are not looked up for it.
    #[arg(long, value_name = "PATTERN|FILE")]
    bypass: Vec<String>,
    /// Serve only clients that authenticate with this name and the password in the file.
    #[arg(long = "user", value_name = "NAME:FILE")]
    users: Vec<String>,
    /// Look names up by asking this DNS server through the module, or `host` for the machine's own
    /// resolver, in place of the module or of the servers in a tunnel's file.
    #[arg(long, value_name = "ADDRESS|host")]
    dns: Vec<String>,
}

/// Checked options of the proxies.
pub(crate) struct Proxies {
    socks5: Vec<SocketAddr>,
    http: Vec<SocketAddr>,
    forwards: Vec<Forward>,
    bypass: Bypass,
    users: Users,
    resolver: Resolver,
}

type Carrier = Bypassing<Resolving<Dialer>>;

impl ProxyOptions {
    /// Returns true if there is any listener.
    pub(crate) fn any(&self) -> bool {
        !(self.socks5.is_empty() && self.http.is_empty() && self.forwards.is_empty())
    }

    /// Reads the files. Refuses proxies that a whole network could use. Without --dns, `resolver`
    /// looks names up.
    pub(crate) fn check(self, resolver: Resolver) -> Result<Proxies, Failure> {
        let mut users = Users::everybody();
        for user in &self.users {
            users = with_user(users, user)?;
        }
        for (option, address) in [("--socks5", &self.socks5), ("--http", &self.http)]
            .into_iter()
            .flat_map(|(option, addresses)| addresses.iter().map(move |address| (option, address)))
        {
            if users.is_everybody() && !address.ip().is_loopback() {
                return Err(Failure::unusable(format!(
                    "{option} {address}: an open proxy on a non-loopback address; use an address \
                     such as 127.0.0.1, or require a login with --user"
                )));
            }
        }
        for forward in &self.forwards {
            if !forward.from.ip().is_loopback() {
                tracing::warn!(
                    target: PROGRAM,
                    "--forward {forward}: anyone who can reach this port can use it"
                );
            }
        }
        Ok(Proxies {
            bypass: bypass(&self.bypass)?,
            resolver: asked(&self.dns)?.unwrap_or(resolver),
            socks5: self.socks5,
            http: self.http,
            forwards: self.forwards,
            users,
        })
    }
}

impl Proxies {
    /// Returns the resolver of names.
    pub(crate) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Serves clients until a signal ends the program.
    pub(crate) async fn serve(self, dialer: Dialer, stop: &Stop) -> Result<(), Failure> {
        let carrier: Arc<Carrier> = Arc::new(Bypassing::new(
            Resolving::new(dialer, self.resolver),
            self.bypass,
        ));
        let proxy = Proxy::new(carrier.clone(), self.users, Limits::default());
        let complaints = Arc::new(Complaints::default());
        let mut listeners = JoinSet::new();
        for address in self.socks5 {
            let proxy = proxy.clone();
            let serve = move |client| {
                let proxy = proxy.clone();
                async move { proxy.socks(client).await }
            };
            let listener = bind(address, "socks5").await?;
            listeners.spawn(clients(listener, serve, complaints.clone(), stop.clone()));
        }
        for address in self.http {
            let proxy = proxy.clone();
            let serve = move |client| {
                let proxy = proxy.clone();
                async move { proxy.http(client).await }
            };
            let listener = bind(address, "http").await?;
            listeners.spawn(clients(listener, serve, complaints.clone(), stop.clone()));
        }
        for Forward { network, from, to } in self.forwards {
            let (carrier, counters) = (carrier.clone(), Arc::<Counters>::default());
            let complaints = complaints.clone();
            match network {
                Network::Tcp => {
                    let serve = move |client| {
                        let (to, carrier) = (to.clone(), carrier.clone());
                        let counters = counters.clone();
                        async move { forward::stream(client, &to, &*carrier, &counters).await }
                    };
                    let listener = bind(from, "tcp").await?;
                    listeners.spawn(clients(listener, serve, complaints, stop.clone()));
                }
                Network::Udp => {
                    let socket = bind_datagrams(from).await?;
                    listeners.spawn(datagrams(socket, to, carrier, complaints, stop.clone()));
                }
            }
        }
        while let Some(ended) = listeners.join_next().await {
            ended.map_err(Failure::failed)??;
        }
        Ok(())
    }
}

async fn bind(address: SocketAddr, what: &str) -> Result<TcpListener, Failure> {
    let (address, listener) = tcp::bind(address).await?;
    accept_loop::announce_as(what, address);
    Ok(listener)
}

async fn bind_datagrams(address: SocketAddr) -> Result<UdpSocket, Failure> {
    let bound = UdpSocket::bind(address)
        .await
        .and_then(|socket| Ok((socket.local_addr()?, socket)));
    let (address, socket) =
        bound.map_err(|error| Failure::failed(format!("udp {address}: {error}")))?;
    accept_loop::announce_as("udp", address);
    Ok(socket)
}

/// Serves each client of a listener until a signal ends the program.
pub(crate) async fn clients<Serving>(
    listener: TcpListener,
    serve_one: impl Fn(tokio::net::TcpStream) -> Serving + Clone + Send + Sync + 'static,
    complaints: Arc<Complaints>,
    mut stop: Stop,
) -> Result<(), Failure>
where
    Serving: Future<Output = Result<(), Error>> + Send + 'static,
{
    let listener = Arc::new(listener);
    let accept = move || {
        let listener = listener.clone();
        async move { Ok(tcp::accept(&listener).await) }
    };
    let carry = move |client, mut stop: Stop| {
        let (serving, complaints) = (serve_one(client), complaints.clone());
        async move {
            match stop.unless(serving).await {
                Some(Ok(())) => complaints.works(),
                Some(Err(error)) => complain(&complaints, &error),
                None => {}
            }
        }
    };
    accept_loop::all(accept, carry, &mut stop).await
}

async fn datagrams(
    socket: UdpSocket,
    to: Destination,
    carrier: Arc<Carrier>,
    complaints: Arc<Complaints>,
    mut stop: Stop,
) -> Result<(), Failure> {
    let failed = |error: Error| complain(&complaints, &error);
    let carrying = forward::datagrams(
        socket,
        &to,
        carrier,
        Limits::default(),
        Arc::default(),
        failed,
    );
    stop.unless(carrying).await;
    Ok(())
}

/// Logs a client's failure. Invalid requests say nothing about the module, but an unreachable
/// destination may.
pub(crate) fn complain(complaints: &Complaints, error: &Error) {
    match error {
        Error::Dial { .. } => complaints.failed(&error.to_string()),
        _ => tracing::debug!(target: "watm", "{error}"),
    }
}

fn with_user(users: Users, text: &str) -> Result<Users, Failure> {
    let refused = |why: &str| Failure::unusable(format!("--user {text}: {why}"));
    let (name, file) = text
        .split_once(':')
        .ok_or_else(|| refused("must be NAME:FILE, with the password in the file"))?;
    let path = PathBuf::from(file);
    let password = String::from_utf8(read(&path)?)
        .map_err(|_| invalid(&path, "the password must be UTF-8"))?;
    let password = password.trim_end_matches(['\r', '\n']);
    users.with(name, password).map_err(|why| refused(&why))
}

fn bypass(given: &[String]) -> Result<Bypass, Failure> {
    let mut bypass = Bypass::default();
    for text in given {
        let path = PathBuf::from(text);
        if path.is_file() {
            let lines = String::from_utf8(read(&path)?)
                .map_err(|_| invalid(&path, "must be UTF-8, with one pattern per line"))?;
            bypass
                .add_lines(&lines)
                .map_err(|why| invalid(&path, &why))?;
        } else {
            bypass.add(text).map_err(|why| {
                Failure::unusable(format!("--bypass {text}: {why}; no such file"))
            })?;
        }
    }
    Ok(bypass)
}

/// Returns the resolver in `--dns`, if it is given.
fn asked(given: &[String]) -> Result<Option<Resolver>, Failure> {
    if given.is_empty() {
        return Ok(None);
    }
    if given == ["host"] {
        return Ok(Some(Resolver::Host));
    }
    let servers = given.iter().map(|text| {
        let address = text.parse().ok();
        let ip = || text.parse::<IpAddr>().ok();
        let server = address.or_else(|| Some(SocketAddr::new(ip()?, DNS_PORT)));
        server.ok_or_else(|| {
            Failure::unusable(format!(
                "--dns {text}: must be the address of a server, or `host` without any other --dns"
            ))
        })
    });
    let servers = Servers::new(servers.collect::<Result<_, _>>()?);
    Ok(Some(Resolver::Servers(servers)))
}
