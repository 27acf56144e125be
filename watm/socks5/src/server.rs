//! The handshake of a client that has connected, for `codec`.

use std::net::SocketAddr;
use std::rc::Rc;

use watm_core::{Destination, ErrorCode, FlowInfo};
use watm_socks_wire::{
    ASSOCIATE, Address, BIND, CONNECT, NO_AUTHENTICATION, NOTHING_ACCEPTABLE, Reply, Request,
    USER_AND_PASSWORD, USERS_VERSION, Unread, VERSION, Wrong, credentials, methods, request,
};
use watm_stream::Buffer;

use crate::config::Config;
use crate::destination;
use crate::shared::{Association, Shared};

/// An accepted connection.
pub struct Accepted {
    config: Rc<Config>,
    shared: Rc<Shared>,
    /// The address of the client, if the host tells it.
    client: Option<SocketAddr>,
    stage: Stage,
    user: Option<String>,
}

/// The message that comes next, or the request.
enum Stage {
    Methods,
    Credentials,
    Request,
    Connect(Destination),
    Associate { _association: Association },
}

/// The reason why a client is refused, for a log.
type Refusal = &'static str;

impl Accepted {
    /// Makes the connection of this client.
    pub fn new(config: Rc<Config>, shared: Rc<Shared>, client: Option<SocketAddr>) -> Accepted {
        Accepted {
            config,
            shared,
            client,
            stage: Stage::Methods,
            user: None,
        }
    }

    /// Returns true if the request has arrived.
    pub fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Connect(_) | Stage::Associate { .. })
    }

    /// Returns true if the request was one for an association.
    pub fn is_control(&self) -> bool {
        matches!(self.stage, Stage::Associate { .. })
    }

    /// Adds the destination and the user.
    pub fn describe(&self, info: &mut FlowInfo) {
        if let Stage::Connect(destination) = &self.stage {
            info.destination = destination.clone();
        }
        info.peer.clone_from(&self.user);
    }

    /// Reads the next message. Returns false if it is not complete.
    pub fn step(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<bool, ErrorCode> {
        let mut answer = Vec::new();
        let read = match self.stage {
            Stage::Methods => self.methods(from.bytes(), &mut answer),
            Stage::Credentials => self.credentials(from.bytes(), &mut answer),
            Stage::Request => self.request(from.bytes(), &mut answer),
            Stage::Connect(_) | Stage::Associate { .. } => return Ok(false),
        };
        network.extend(&answer);
        match read {
            Ok(length) => {
                from.consume(length);
                Ok(true)
            }
            Err(Stop::Short) => Ok(false),
            Err(Stop::Refused(why)) => Err(ErrorCode::Other(why)),
        }
    }

    /// Answers CONNECT.
    pub fn answer(&self, outcome: Result<(), &ErrorCode>, network: &mut Buffer) {
        if let Stage::Connect(_) = self.stage {
            let code = outcome.map_or_else(reply, |()| Reply::SUCCEEDED);
            let mut answer = Vec::new();
            code.write(Address::NONE, &mut answer);
            network.extend(&answer);
        }
    }

    fn methods(&mut self, bytes: &[u8], answer: &mut Vec<u8>) -> Result<usize, Stop> {
        let (offered, length) = methods(bytes)?;
        let (method, next) = match self.config.users.is_empty() {
            true => (NO_AUTHENTICATION, Stage::Request),
            false => (USER_AND_PASSWORD, Stage::Credentials),
        };
        if !offered.contains(&method) {
            answer.extend([VERSION, NOTHING_ACCEPTABLE]);
            return refuse(match method {
                USER_AND_PASSWORD => "the client offers no user and password",
                _ => "the client accepts no server without authentication",
            });
        }
        answer.extend([VERSION, method]);
        self.stage = next;
        Ok(length)
    }

    fn credentials(&mut self, bytes: &[u8], answer: &mut Vec<u8>) -> Result<usize, Stop> {
        const KNOWN: u8 = 0;
        const UNKNOWN: u8 = 1;
        let (name, password, length) = credentials(bytes)?;
        let Some(user) = self.config.user(name, password) else {
            answer.extend([USERS_VERSION, UNKNOWN]);
            return refuse("unknown user, or wrong password");
        };
        answer.extend([USERS_VERSION, KNOWN]);
        self.user = Some(user.name.clone());
        self.stage = Stage::Request;
        Ok(length)
    }

    fn request(&mut self, bytes: &[u8], answer: &mut Vec<u8>) -> Result<usize, Stop> {
        let (Request { command, address }, length) = request(bytes).inspect_err(|unread| {
            if *unread == Unread::Wrong(Wrong::AddressKind) {
                Reply::ADDRESS_NOT_SUPPORTED.write(Address::NONE, answer);
            }
        })?;
        let mut no = |code: Reply, why| {
            code.write(Address::NONE, answer);
            refuse(why)
        };
        self.stage = match command {
            CONNECT => match destination::of(address) {
                Some(destination) => Stage::Connect(destination),
                None => return no(Reply::FAILED, "an invalid name or port"),
            },
            ASSOCIATE => {
                let (Some(socket), Some(client)) = (self.shared.socket.get(), self.client) else {
                    return no(
                        Reply::COMMAND_NOT_SUPPORTED,
                        "UDP ASSOCIATE, without a UDP socket",
                    );
                };
                let user = self.user.clone();
                let Some(association) = self.shared.associate(client.ip(), address.port, user)
                else {
                    return no(Reply::FAILED, "too many associations");
                };
                Reply::SUCCEEDED.write(self.relay(socket, client), answer);
                Stage::Associate {
                    _association: association,
                }
            }
            BIND => return no(Reply::COMMAND_NOT_SUPPORTED, "BIND is not supported"),
            _ => return no(Reply::COMMAND_NOT_SUPPORTED, "an unknown command"),
        };
        Ok(length)
    }

    /// The address that the client sends datagrams to.
    fn relay(&self, socket: SocketAddr, client: SocketAddr) -> Address<'static> {
        let ip = self.config.udp_address.unwrap_or(socket.ip());
        match ip.to_canonical() {
            ip if ip.is_unspecified() => Address::unspecified(client.ip(), socket.port()),
            ip => SocketAddr::new(ip, socket.port()).into(),
        }
    }
}

/// The reason why a message was not read.
enum Stop {
    Short,
    Refused(String),
}

impl From<Unread> for Stop {
    fn from(unread: Unread) -> Stop {
        match unread {
            Unread::Short(_) => Stop::Short,
            Unread::Wrong(wrong) => Stop::Refused(format!("the client sent {wrong}")),
        }
    }
}

fn refuse<T>(why: Refusal) -> Result<T, Stop> {
    Err(Stop::Refused(why.to_owned()))
}

/// The code for an application that did not take a flow.
fn reply(reason: &ErrorCode) -> Reply {
    match reason {
        ErrorCode::AccessDenied => Reply::NOT_ALLOWED,
        ErrorCode::RemoteUnreachable | ErrorCode::NameUnresolvable => Reply::HOST_UNREACHABLE,
        ErrorCode::ConnectionRefused => Reply::REFUSED,
        ErrorCode::Timeout => Reply::TIMED_OUT,
        ErrorCode::NotSupported => Reply::COMMAND_NOT_SUPPORTED,
        _ => Reply::FAILED,
    }
}
