//! The headers of received datagrams.

use std::net::SocketAddr;

use watm_proxy_header::{Protocol, Tlvs};

use crate::config::{Config, Mode};
use crate::facts::{Facts, ends};
use crate::header::{Addresses, Header, Proxied};
use crate::parse::{Parsed, Rules, parse};
use crate::reason::Reason;
use crate::refused::Refused;
use crate::spp::{SPP_LENGTH, parse_spp};

/// A datagram's header, and its payload.
pub struct Opened<'a> {
    /// The client and its destination. `None`: the sender's own datagram.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    pub payload: &'a [u8],
    header: Header<'a>,
}

impl Opened<'_> {
    /// The facts for a new flow.
    pub fn facts(&self) -> Facts {
        match &self.header {
            Header::Proxied(proxied) => Facts::of(proxied),
            Header::Local => Facts::default(),
        }
    }
}

/// Parses the header at the beginning of a datagram.
pub fn open<'a>(datagram: &'a [u8], config: &Config) -> Result<Opened<'a>, Reason> {
    if config.datagrams.mode == Mode::Spp {
        let (client, proxy) = parse_spp(datagram)?;
        let header = Header::Proxied(Proxied {
            addresses: Addresses::Inet {
                source: client,
                destination: proxy,
            },
            protocol: Protocol::Datagram,
            tlvs: Tlvs::default(),
        });
        return Ok(Opened {
            ends: Some((client, proxy)),
            payload: &datagram[SPP_LENGTH..],
            header,
        });
    }
    // A line of version 1 describes TCP only.
    let rules = Rules {
        v1: false,
        v2: true,
        ..config.rules
    };
    let (length, header) = match parse(datagram, &rules)? {
        Parsed::Complete(length, header) => (length, header),
        // A datagram is complete: no more bytes follow.
        Parsed::Incomplete => return Err(Refused::TooShort.into()),
    };
    let ends = match header {
        Header::Local if config.local => None,
        Header::Local => return Err(Reason::Local),
        Header::Proxied(proxied) if proxied.protocol != Protocol::Datagram => {
            return Err(Reason::Protocol);
        }
        // Answers to Unix sockets could not be delivered.
        Header::Proxied(proxied) => Some(ends(&proxied.addresses).ok_or(Reason::Protocol)?),
    };
    Ok(Opened {
        ends,
        payload: &datagram[length..],
        header,
    })
}
