//! The parts around a module of the kit: the application, the peers on the network, and the system of
//! its device. `mod` gives it the steps of a case.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use socket2::SockRef;
use watm_runtime::{
    Capture, DatagramFlow, Destination, Error, ErrorCode, Flow, FlowInfo, Keys, Module, Network,
    Reach, Server, StreamFlow, SwapOptions,
};
use watm_test_support::{LOCALHOST, PATIENCE, directory, read, receive, records, run};

use super::case::{Case, Kind, ServerKind, Step};
use super::system::System;

type Outcome = Result<(), String>;

/// An end that steps use by its name.
enum End {
    Connection(TcpStream),
    Listener(TcpListener),
    /// A socket for datagrams, with the address that it answers to.
    Socket(UdpSocket, Option<SocketAddr>),
    Stream(StreamFlow),
    Datagrams(DatagramFlow),
}

/// A module of the kit, with everything around it.
pub struct Stage {
    name: String,
    module: Module,
    server: Server,
    system: Option<System>,
    ends: BTreeMap<String, End>,
    checks: u64,
    begin: Instant,
    /// The folder for files of the case.
    folder: PathBuf,
}

impl Stage {
    /// Starts the module of a case. Returns `None` if it needs a device or a network of its own, which only root
    /// can make.
    pub fn new(name: &str, case: &Case, module: Module) -> Option<Result<Stage, String>> {
        let full = format!("kit {name}");
        // The records of its life are collected from here on.
        records(&full);
        let mut system = None;
        if !case.packets.is_empty() || changes_network(case) {
            system = Some(System::new()?);
        }
        Some(Stage::start(full, case, module, system))
    }

    fn start(
        full: String,
        case: &Case,
        module: Module,
        system: Option<System>,
    ) -> Result<Stage, String> {
        let mut ends = BTreeMap::new();
        let mut addresses = BTreeMap::new();
        for (server, kind) in &case.servers {
            let address = match kind {
                ServerKind::Tcp => {
                    let listener = TcpListener::bind(LOCALHOST).expect("a port");
                    let address = listener.local_addr().expect("bound");
                    ends.insert(server.clone(), End::Listener(listener));
                    address
                }
                ServerKind::Udp => {
                    let socket = bound();
                    let address = socket.local_addr().expect("bound");
                    ends.insert(server.clone(), End::Socket(socket, None));
                    address
                }
                ServerKind::None => {
                    let listener = TcpListener::bind(LOCALHOST).expect("a port");
                    listener.local_addr().expect("bound")
                }
            };
            addresses.insert(format!("{{{server}}}"), address.to_string());
        }
        let filled = |text: &str| {
            addresses
                .iter()
                .fold(text.to_owned(), |text, (mark, address)| {
                    text.replace(mark, address)
                })
        };
        let folder = directory(&full.replace(' ', "-"));
        let mut keys = Keys::new();
        for (name, key) in &case.keys {
            let file = folder.join(name);
            let content =
                format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
            std::fs::write(&file, content).map_err(words)?;
            keys = keys.add_file(name, &file).map_err(words)?;
        }
        let mut builder = Server::builder(&module)
            .keys(keys)
            .name(&full)
            .config(filled(&case.config));
        for label in &case.tcp {
            builder = builder.tcp(label, LOCALHOST);
        }
        for label in &case.udp {
            builder = builder.udp(label, LOCALHOST);
        }
        if let Some(system) = &system {
            for label in &case.packets {
                builder = builder.packets(label, system.device());
            }
        }
        let mut reach = Reach::none();
        for pattern in &case.reach {
            reach = reach
                .allow(&filled(pattern))
                .map_err(|error| error.to_string())?;
        }
        if let Some(accepted) = case.accepts.clone() {
            builder = builder.accepting(move |_, to| accepted.contains(&to.to_string()));
        }
        if let Some(level) = &case.log_level {
            builder = builder.log_level(level.parse().expect("a level"));
        }
        let builder = builder.reach(reach);
        let begin = Instant::now();
        let server = match &system {
            // Its sockets are there too, and so is the socket that tells it of changes.
            Some(system) if changes_network(case) => {
                system.run("ip link set lo up")?;
                system.within(|| builder.start())
            }
            _ => builder.start(),
        };
        Ok(Stage {
            name: full,
            module,
            server: server.map_err(|error| format!("start: {error}"))?,
            system,
            ends,
            checks: case.checks,
            begin,
            folder,
        })
    }

    /// Performs one step.
    pub fn perform(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Connect { r#as, to } => {
                let address = self.address(Network::Tcp, to)?;
                let stream = TcpStream::connect(address).map_err(words)?;
                stream.set_read_timeout(Some(PATIENCE)).map_err(words)?;
                self.ends.insert(r#as.clone(), End::Connection(stream));
                Ok(())
            }
            Step::Bind { r#as, to } => {
                let address = self.address(Network::Udp, to)?;
                self.ends
                    .insert(r#as.clone(), End::Socket(bound(), Some(address)));
                Ok(())
            }
            Step::Accept { r#as, at } => self.accept(r#as, at),
            Step::Flow { r#as, kind, .. } => self.flow(r#as, *kind, step),
            Step::Dial {
                r#as,
                to,
                kind,
                error,
            } => self.dial(r#as, to.as_deref(), *kind, error.as_deref()),
            Step::Send { on, content } => self.send(on, &content.bytes()),
            Step::Receive { on, content } => self.receive(on, &content.bytes()),
            Step::ReceiveNothing { on, ms } => self.receive_nothing(on, Duration::from_millis(*ms)),
            Step::ReceiveEnd { on } => self.receive_end(on),
            Step::ReceiveError { on, error } => self.receive_error(on, error),
            Step::End { on } => match self.end(on)? {
                End::Connection(stream) => stream.shutdown(Shutdown::Write).map_err(words),
                End::Stream(flow) => flow.shutdown_write().map_err(words),
                _ => Err("has no directions".to_owned()),
            },
            Step::Reset { on } => match self.ends.remove(on) {
                Some(End::Connection(stream)) => {
                    // Closing then sends a reset.
                    let socket = SockRef::from(&stream);
                    socket.set_linger(Some(Duration::ZERO)).map_err(words)
                }
                _ => Err("is not a connection".to_owned()),
            },
            Step::Close { on } => match self.ends.remove(on) {
                Some(_) => Ok(()),
                None => Err("there is no such end".to_owned()),
            },
            Step::Pause { ms } => {
                std::thread::sleep(Duration::from_millis(*ms));
                Ok(())
            }
            Step::Reconfigure { config, refused } => {
                outcome(self.server.reconfigure(config.as_str()), refused.as_deref())
            }
            Step::Swap { config, refused } => {
                let options = SwapOptions {
                    config: config.clone().map(String::into_bytes),
                    probation: Duration::ZERO,
                    ..SwapOptions::default()
                };
                outcome(self.server.swap(&self.module, options), refused.as_deref())
            }
            Step::ClientConfigs {
                host,
                port,
                name,
                content,
            } => {
                let configs = self.server.client_configs(host, *port).map_err(words)?;
                match configs.as_slice() {
                    [one] if one.name == *name && one.content == *content => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            }
            Step::BeginCapture => {
                let capture = Capture::new(Some(self.folder.join("kit.pcapng")), None);
                self.server.start_capture(capture).map_err(words)
            }
            Step::EndCapture { has, lacks } => {
                self.server.stop_capture().map_err(words)?;
                let written = std::fs::read(self.folder.join("kit.pcapng")).map_err(words)?;
                let found = |text: &String| {
                    let mut parts = written.windows(text.len());
                    parts.any(|part| part == text.as_bytes())
                };
                match (
                    has.as_ref().is_none_or(found),
                    lacks.as_ref().is_some_and(found),
                ) {
                    (true, false) => Ok(()),
                    _ => Err(shown(&written)),
                }
            }
            Step::Log { has, lacks } => self.log(has.as_deref(), lacks.as_deref()),
            Step::NetworkChanged => self.system("ip address add 192.0.2.7/32 dev lo"),
            Step::System { run } => self.system(run),
            Step::Verdict { at_least_ms } => {
                self.verdict()?;
                let least = Duration::from_millis(at_least_ms.unwrap_or(0));
                match self.begin.elapsed() {
                    early if early < least => Err(format!("came after {early:?}")),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Runs a command in the namespace of the device.
    fn system(&self, command: &str) -> Outcome {
        match &self.system {
            Some(system) => system.run(command),
            None => Err("there is no device".to_owned()),
        }
    }

    /// Returns the module's complaints.
    pub fn complaints(&self) -> String {
        let told = records(&self.name);
        let errors = told.iter().filter(|it| it.level == tracing::Level::ERROR);
        errors.map(|it| format!("\n{}", it.text)).collect()
    }

    /// Waits for the module's verdict.
    fn verdict(&self) -> Outcome {
        let begin = Instant::now();
        loop {
            let counters = self.server.status().map_err(words)?.counters;
            let counter = |name: &str| counters.get(name).copied().unwrap_or_default();
            if counter("kit.failed") > 0 {
                return Err("the module finds a fault".to_owned());
            }
            let checks = counter("kit.checks");
            if counter("kit.done") == 1 {
                return match checks == self.checks {
                    true => Ok(()),
                    false => Err(format!("{checks} checks in place of {}", self.checks)),
                };
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("the module waits after {checks} checks"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn address(&self, network: Network, label: &str) -> Result<SocketAddr, String> {
        let address = self.server.local_addr_of(network, label);
        address.ok_or_else(|| format!("no socket was granted under {label}"))
    }

    fn end(&mut self, name: &str) -> Result<&mut End, String> {
        let end = self.ends.get_mut(name);
        end.ok_or_else(|| format!("there is no end {name}"))
    }

    fn accept(&mut self, name: &str, at: &str) -> Outcome {
        let End::Listener(listener) = self.end(at)? else {
            return Err(format!("{at} does not listen"));
        };
        listener.set_nonblocking(true).map_err(words)?;
        let begin = Instant::now();
        let stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock && begin.elapsed() < PATIENCE =>
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(words(error)),
            }
        };
        stream.set_nonblocking(false).map_err(words)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(words)?;
        self.ends.insert(name.to_owned(), End::Connection(stream));
        Ok(())
    }

    /// Takes the next flow that the module offers, and checks the facts that the step names.
    fn flow(&mut self, name: &str, kind: Kind, step: &Step) -> Outcome {
        let flow = run(self.server.accept()).ok_or("the server is closed")?;
        check_info(flow.info(), step)?;
        let end = match (flow, kind) {
            (Flow::Stream(flow), Kind::Bytes) => End::Stream(flow),
            (Flow::Datagrams(flow), Kind::Datagrams) => End::Datagrams(flow),
            (other, _) => return Err(format!("another kind of flow: {other:?}")),
        };
        self.ends.insert(name.to_owned(), end);
        Ok(())
    }

    fn dial(&mut self, name: &str, to: Option<&str>, kind: Kind, error: Option<&str>) -> Outcome {
        let to = to.map(|to| Destination::Address(to.parse().expect("an address")));
        let dialled = match kind {
            Kind::Bytes => run(self.server.dial_connected(to)).map(End::Stream),
            Kind::Datagrams => run(self.server.dial_datagrams(to)).map(End::Datagrams),
        };
        match (dialled, error) {
            (Ok(end), None) => {
                self.ends.insert(name.to_owned(), end);
                Ok(())
            }
            (Err(Error::Refused { code, .. }), Some(expected)) if named(&code) == expected => {
                Ok(())
            }
            // The host has an error of its own for this code.
            (Err(Error::NoDatagrams { .. }), Some("not-supported")) => Ok(()),
            (Ok(_), Some(expected)) => Err(format!("no error, and not {expected}")),
            (Err(error), _) => Err(words(error)),
        }
    }

    fn send(&mut self, on: &str, content: &[u8]) -> Outcome {
        match self.end(on)? {
            End::Connection(stream) => stream.write_all(content).map_err(words),
            End::Socket(socket, Some(to)) => socket.send_to(content, *to).map(drop).map_err(words),
            End::Stream(flow) => flow.queue_write(content).map_err(words),
            End::Datagrams(flow) => match flow.send(content) {
                Ok(true) => Ok(()),
                Ok(false) => Err("the flow is full".to_owned()),
                Err(code) => Err(words(code)),
            },
            _ => Err("cannot send".to_owned()),
        }
    }

    fn receive(&mut self, on: &str, content: &[u8]) -> Outcome {
        let found = match self.end(on)? {
            End::Connection(stream) => {
                let mut found = vec![0; content.len()];
                stream.read_exact(&mut found).map_err(words)?;
                found
            }
            End::Socket(socket, _) => datagram(socket, PATIENCE)?.ok_or("no datagram came")?,
            End::Stream(flow) => {
                let mut found = Vec::new();
                while found.len() < content.len() {
                    let more = run(read(flow)).map_err(words)?;
                    if more.is_empty() {
                        return Err(format!("the end came after {} bytes", found.len()));
                    }
                    found.extend(more);
                }
                found
            }
            End::Datagrams(flow) => {
                let found = run(receive(flow)).map_err(words)?;
                found.ok_or("the end came")?
            }
            End::Listener(_) => return Err("cannot receive".to_owned()),
        };
        match found == content {
            true => Ok(()),
            false => Err(format!("{}, and not {}", shown(&found), shown(content))),
        }
    }

    fn receive_nothing(&mut self, on: &str, time: Duration) -> Outcome {
        let found = match self.end(on)? {
            End::Socket(socket, _) => datagram(socket, time)?,
            End::Datagrams(flow) => run(async {
                let waited = tokio::time::timeout(time, receive(flow)).await;
                waited.map_or(Ok(None), |received| received.map_err(words))
            })?,
            _ => return Err("is not for datagrams".to_owned()),
        };
        match found {
            None => Ok(()),
            Some(found) => Err(shown(&found)),
        }
    }

    fn receive_end(&mut self, on: &str) -> Outcome {
        let found = match self.end(on)? {
            End::Connection(stream) => {
                let mut found = [0; 16];
                let count = stream.read(&mut found).map_err(words)?;
                found[..count].to_vec()
            }
            End::Stream(flow) => run(read(flow)).map_err(words)?,
            End::Datagrams(flow) => match run(receive(flow)).map_err(words)? {
                None => return Ok(()),
                Some(found) => return Err(shown(&found)),
            },
            _ => return Err("has no end".to_owned()),
        };
        match found.is_empty() {
            true => Ok(()),
            false => Err(shown(&found)),
        }
    }

    fn receive_error(&mut self, on: &str, error: &str) -> Outcome {
        let End::Stream(flow) = self.end(on)? else {
            return Err("is not a stream of the application".to_owned());
        };
        match run(read(flow)) {
            Err(code) if named(&code) == error => Ok(()),
            Err(code) => Err(format!("{}, and not {error}", named(&code))),
            Ok(data) if data.is_empty() => Err("the end".to_owned()),
            Ok(data) => Err(shown(&data)),
        }
    }

    fn log(&self, has: Option<&str>, lacks: Option<&str>) -> Outcome {
        let told = records(&self.name);
        let found = |text: &str| told.iter().any(|record| record.text.contains(text));
        match (has.is_none_or(found), lacks.is_some_and(found)) {
            (true, false) => Ok(()),
            _ => Err(format!("{told:?}")),
        }
    }
}

/// Returns true if the network changes around the module, which then has one of its own.
fn changes_network(case: &Case) -> bool {
    let mut steps = case.steps.iter();
    steps.any(|step| matches!(step, Step::NetworkChanged))
}

fn bound() -> UdpSocket {
    UdpSocket::bind(LOCALHOST).expect("a port")
}

/// Returns the next datagram, if one comes in this time.
fn datagram(socket: &UdpSocket, time: Duration) -> Result<Option<Vec<u8>>, String> {
    socket.set_read_timeout(Some(time)).map_err(words)?;
    let mut buffer = vec![0; 1 << 16];
    match socket.recv_from(&mut buffer) {
        Ok((count, _)) => Ok(Some(buffer[..count].to_vec())),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        Err(error) => Err(words(error)),
    }
}

/// Compares the facts that a step names with those of a flow.
fn check_info(info: &FlowInfo, step: &Step) -> Outcome {
    let Step::Flow {
        source,
        destination,
        peer,
        attributes,
        ..
    } = step
    else {
        return Ok(());
    };
    let good = source
        .as_ref()
        .is_none_or(|it| *it == info.source.to_string())
        && destination
            .as_ref()
            .is_none_or(|it| *it == info.destination.to_string())
        && peer
            .as_ref()
            .is_none_or(|it| Some(it) == info.peer.as_ref())
        && attributes.as_ref().is_none_or(|it| *it == info.attributes);
    match good {
        true => Ok(()),
        false => Err(format!("{info:?}")),
    }
}

/// Compares the outcome of a request with the words that its refusal must have.
fn outcome<T>(result: Result<T, Error>, refused: Option<&str>) -> Outcome {
    match (result, refused) {
        (Ok(_), None) => Ok(()),
        (Ok(_), Some(_)) => Err("was not refused".to_owned()),
        (Err(error), Some(expected)) if error.to_string().contains(expected) => Ok(()),
        (Err(error), _) => Err(words(error)),
    }
}

/// Returns the name of an error as `wit/` has it.
fn named(code: &ErrorCode) -> String {
    code.to_string().replace(' ', "-")
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn shown(bytes: &[u8]) -> String {
    let first = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
    format!("{} bytes, {first:?}", bytes.len())
}
