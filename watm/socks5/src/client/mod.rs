//! The handshake with a proxy, for `codec`.

mod http;
mod socks5;

use std::rc::Rc;

use watm_core::{Destination, ErrorCode};
use watm_socks_wire::{ASSOCIATE, Address, CONNECT};
use watm_stream::Buffer;

use crate::config::{Protocol, Proxy};
use crate::destination;
use crate::shared::{Event, Made, Relay, Shared};

/// A dialled connection.
pub struct Dialled {
    handshake: Handshake,
    /// The association, if the connection is one for it.
    made: Option<Made>,
}

enum Handshake {
    Socks5(socks5::Steps),
    Http(http::Connect),
    Over,
}

/// The progress of a handshake.
pub enum Step {
    /// More bytes are needed.
    Short,
    /// This many bytes were read, and others follow.
    Read(usize),
    /// The handshake is over with this many bytes. The place is the one of a SOCKS5 proxy.
    Over(usize, Option<Relay>),
}

impl Dialled {
    /// Makes a connection through this proxy. Fails if its protocol cannot express the destination.
    pub fn connect(proxy: &Proxy, to: &Destination) -> Result<Dialled, ErrorCode> {
        let handshake = match proxy.protocol {
            Protocol::Socks5 => {
                let steps =
                    socks5::Steps::new(proxy.user.as_ref(), CONNECT, destination::address(to));
                steps.map(Handshake::Socks5)
            }
            Protocol::Http => http::Connect::new(proxy.user.as_ref(), to).map(Handshake::Http),
        };
        Ok(Dialled {
            handshake: handshake.ok_or(ErrorCode::InvalidArgument)?,
            made: None,
        })
    }

    /// Makes an association at this proxy, which reports to `shared` under `number`. Fails if the proxy carries no
    /// datagrams.
    pub fn associate(
        proxy: &Proxy,
        shared: &Rc<Shared>,
        number: u64,
    ) -> Result<Dialled, ErrorCode> {
        if proxy.protocol != Protocol::Socks5 {
            return Err(ErrorCode::NotSupported);
        }
        // The address of the datagrams is the host's. It is not known here (RFC 1928, section 7).
        let steps = socks5::Steps::new(proxy.user.as_ref(), ASSOCIATE, Address::NONE);
        Ok(Dialled {
            handshake: Handshake::Socks5(steps.ok_or(ErrorCode::InvalidArgument)?),
            made: Some(Made::new(shared, number)),
        })
    }

    /// Returns true if the proxy has granted the request.
    pub fn is_established(&self) -> bool {
        matches!(self.handshake, Handshake::Over)
    }

    /// Returns true if the connection is one for an association.
    pub fn is_control(&self) -> bool {
        self.made.is_some()
    }

    /// Writes the first message.
    pub fn begin(&self, network: &mut Buffer) {
        match &self.handshake {
            Handshake::Socks5(steps) => network.extend(&steps.begin()),
            Handshake::Http(connect) => network.extend(connect.request()),
            Handshake::Over => {}
        }
    }

    /// Reads the next message. Returns false if it is not complete.
    pub fn step(&mut self, from: &mut Buffer, network: &mut Buffer) -> Result<bool, ErrorCode> {
        let step = match &mut self.handshake {
            Handshake::Socks5(steps) => steps.step(from.bytes(), network),
            Handshake::Http(connect) => connect.step(from.bytes()),
            Handshake::Over => Ok(Step::Short),
        };
        match step {
            Ok(Step::Short) => Ok(false),
            Ok(Step::Read(length)) => {
                from.consume(length);
                Ok(true)
            }
            Ok(Step::Over(length, relay)) => {
                from.consume(length);
                self.handshake = Handshake::Over;
                if let (Some(made), Some(relay)) = (&self.made, relay) {
                    made.report(Event::Ready(relay));
                }
                Ok(true)
            }
            Err(why) => {
                if let Some(made) = &self.made {
                    made.report(Event::Refused(why.clone()));
                }
                Err(ErrorCode::Other(why))
            }
        }
    }
}
