//! The host of a transport, built on the functions that WATER gives a module.

use std::cell::{Ref, RefCell, RefMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;

use watm_core::{
    ByteStream, DatagramFlow, DatagramSocket, Destination, ErrorCode, FlowInfo, Host, Instant,
    Level, Listener, Token,
};

use super::LOG_LEVEL;
use super::port::Port;
use crate::carrier::Connect;
use crate::descriptor::Descriptor;
use crate::env;

/// The label of a transport's listener.
const LISTEN: &str = "listen";

/// The placeholder for addresses that WATER hosts do not tell.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The resources for the transport, and those that it has taken.
#[derive(Clone, Default)]
pub struct World(Rc<RefCell<Inner>>);

#[derive(Default)]
pub struct Inner {
    /// The token of the listener, once it is taken.
    pub listener: Option<Token>,
    /// The connection that waits at the listener.
    pub waiting: Option<Descriptor>,
    /// The address that the transport may connect to, during a dial.
    pub connect: Option<Connect>,
    /// The errno with which the host refused to connect.
    pub failure: Option<i32>,
    pub network: Option<Port>,
    /// The application's stream for the first flow.
    pub offered: Option<Descriptor>,
    pub application: Option<Port>,
}

impl World {
    pub fn borrow(&self) -> Ref<'_, Inner> {
        self.0.borrow()
    }

    pub fn borrow_mut(&self) -> RefMut<'_, Inner> {
        self.0.borrow_mut()
    }
}

/// The world during one call.
pub struct Imports {
    pub world: World,
    pub now: Instant,
}

impl Host for Imports {
    fn datagram_socket(
        &mut self,
        _label: &str,
        _token: Token,
    ) -> Result<Box<dyn DatagramSocket>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn listener(&mut self, label: &str, token: Token) -> Result<Box<dyn Listener>, ErrorCode> {
        if label != LISTEN {
            return Err(ErrorCode::AccessDenied);
        }
        if self.world.borrow_mut().listener.replace(token).is_some() {
            return Err(ErrorCode::InvalidState);
        }
        Ok(Box::new(Doorway(self.world.clone())))
    }

    fn connect(
        &mut self,
        destination: &Destination,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let world = &mut *self.world.borrow_mut();
        let connected = match world.connect.take() {
            None => return Err(ErrorCode::NotSupported),
            Some(Connect::Caller) => env::dial_fixed(),
            Some(Connect::Configured) if *destination == Destination::Address(UNKNOWN) => {
                return Err(ErrorCode::InvalidArgument);
            }
            Some(Connect::Configured) => env::dial(&destination.to_string()),
        };
        match connected {
            Ok(network) => Ok(open(&mut world.network, network, token)),
            Err(number) => {
                world.failure = Some(number);
                Err(ErrorCode::RemoteUnreachable)
            }
        }
    }

    fn open_stream(
        &mut self,
        _info: &FlowInfo,
        token: Token,
    ) -> Result<Box<dyn ByteStream>, ErrorCode> {
        let world = &mut *self.world.borrow_mut();
        // A WATER connection is a single stream.
        let application = world.offered.take().ok_or(ErrorCode::LimitReached)?;
        Ok(open(&mut world.application, application, token))
    }

    fn open_datagrams(
        &mut self,
        _info: &FlowInfo,
        _token: Token,
    ) -> Result<Box<dyn DatagramFlow>, ErrorCode> {
        Err(ErrorCode::AccessDenied)
    }

    fn log(&mut self, level: Level, target: &str, message: &str) {
        if self.log_enabled(level) {
            eprintln!("{target}: {message}");
        }
    }

    fn log_enabled(&self, level: Level) -> bool {
        level >= LOG_LEVEL
    }

    fn now(&self) -> Instant {
        self.now
    }
}

/// The listener at which the one accepted connection waits.
struct Doorway(World);

impl Listener for Doorway {
    fn accept(&mut self, token: Token) -> Result<Option<Box<dyn ByteStream>>, ErrorCode> {
        let world = &mut *self.0.borrow_mut();
        let waiting = world.waiting.take();
        Ok(waiting.map(|network| open(&mut world.network, network, token)))
    }

    fn local_address(&self) -> SocketAddr {
        UNKNOWN
    }
}

fn open(place: &mut Option<Port>, descriptor: Descriptor, token: Token) -> Box<dyn ByteStream> {
    let port = Port::new(descriptor);
    port.set_token(token);
    let stream = port.stream();
    *place = Some(port);
    stream
}
