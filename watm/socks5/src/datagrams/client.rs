//! The datagram flows that the application dials through a proxy, each with an association of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use watm_core::{Destination, ErrorCode, Host, Lookup};
use watm_stream::Streams;

use super::{LOOKUP, OURS};
use crate::client::Dialled;
use crate::codec::{SocksCodec, SocksStreams};
use crate::config::Proxy;
use crate::shared::Relay;

/// A client's flows.
#[derive(Default)]
pub struct Client {
    flows: BTreeMap<u64, Flow>,
    by_relay: BTreeMap<SocketAddr, BTreeSet<u64>>,
}

struct Flow {
    /// The number of the association's connection.
    control: u64,
    destination: Destination,
    /// The place that the proxy answered, until it is known as an address.
    answered: Option<SocketAddr>,
    lookup: Option<Box<dyn Lookup>>,
    /// The address to which datagrams go.
    relay: Option<SocketAddr>,
}

impl Client {
    /// Begin an association for the flow with this number.
    pub fn open(
        &mut self,
        number: u64,
        proxy: &Proxy,
        destination: &Destination,
        streams: &mut Streams<SocksStreams>,
        host: &mut dyn Host,
    ) -> Result<(), ErrorCode> {
        let dialled = Dialled::associate(proxy, streams.transport().shared(), number)?;
        let control = streams.dial_control(&proxy.address, SocksCodec::dialled(dialled), host)?;
        let flow = Flow {
            control,
            destination: destination.clone(),
            answered: None,
            lookup: None,
            relay: None,
        };
        self.flows.insert(number, flow);
        Ok(())
    }

    /// Use the place that the proxy has answered, or look up its name. A host admits the addresses that it has looked up, so
    /// the name of the proxy is looked up even if the answer has an address.
    pub fn granted(
        &mut self,
        number: u64,
        relay: Relay,
        proxy: Option<&Destination>,
        host: &mut dyn Host,
    ) -> Result<(), ErrorCode> {
        let Some(flow) = self.flows.get_mut(&number) else {
            return Ok(());
        };
        let (port, answered) = match &relay {
            Relay::Own(port) => (*port, None),
            Relay::At(Destination::Address(address)) => (address.port(), Some(*address)),
            Relay::At(Destination::Name(_, port)) => (*port, None),
        };
        let name = match (&relay, proxy) {
            (Relay::At(Destination::Name(name, _)), _) | (_, Some(Destination::Name(name, _))) => {
                Some(name)
            }
            _ => None,
        };
        flow.answered = answered;
        match (name, proxy) {
            (Some(name), _) => match host.lookup(name, port, OURS | LOOKUP | number) {
                Ok(lookup) => flow.lookup = Some(lookup),
                Err(error) => return self.found(number, Err(error)),
            },
            (None, Some(Destination::Address(own))) => {
                let own = SocketAddr::new(own.ip(), port);
                return self.found(number, Ok(own));
            }
            (None, _) => return self.found(number, Err(ErrorCode::InvalidState)),
        }
        Ok(())
    }

    /// Handle a possible answer to the lookup for a flow.
    pub fn looked_up(&mut self, number: u64) -> Result<(), ErrorCode> {
        let lookup = self
            .flows
            .get_mut(&number)
            .and_then(|flow| flow.lookup.as_mut());
        let found = match lookup.map(|lookup| lookup.addresses()) {
            None | Some(Ok(None)) => return Ok(()),
            Some(Ok(Some(addresses))) => addresses
                .first()
                .copied()
                .ok_or(ErrorCode::NameUnresolvable),
            Some(Err(error)) => Err(error),
        };
        self.found(number, found)
    }

    /// Record the place for datagrams: the address that the proxy answered, or else the one that was found.
    fn found(
        &mut self,
        number: u64,
        found: Result<SocketAddr, ErrorCode>,
    ) -> Result<(), ErrorCode> {
        let Some(flow) = self.flows.get_mut(&number) else {
            return Ok(());
        };
        flow.lookup = None;
        let relay = match flow.answered {
            Some(address) => address,
            None => found?,
        };
        let relay = SocketAddr::new(relay.ip().to_canonical(), relay.port());
        flow.relay = Some(relay);
        self.by_relay.entry(relay).or_default().insert(number);
        Ok(())
    }

    /// The address to which the datagrams of a flow go, once it is known.
    pub fn relay(&self, number: u64) -> Option<SocketAddr> {
        self.flows.get(&number)?.relay
    }

    /// Returns true if a datagram from this address, which is canonical, is an answer.
    pub fn is_relay(&self, remote: SocketAddr) -> bool {
        self.by_relay.contains_key(&remote)
    }

    /// The flow of an answer that came from `source` through this relay. Answers to a name come from an address, and belong
    /// to the only flow to a name with that port.
    pub fn route(&self, relay: SocketAddr, source: &Destination) -> Option<u64> {
        let source = canonical(source);
        let of = |number: &u64| Some(&self.flows.get(number)?.destination);
        let numbers = self.by_relay.get(&relay)?;
        let exact = |number: &&u64| of(number).is_some_and(|to| canonical(to) == source);
        if let Some(&number) = numbers.iter().find(exact) {
            return Some(number);
        }
        let named = |number: &&u64| matches!(of(number), Some(Destination::Name(_, port)) if *port == port_of(&source));
        let mut named = numbers.iter().filter(named);
        match (named.next(), named.next()) {
            (Some(&number), None) => Some(number),
            _ => None,
        }
    }

    /// End a flow. Returns the number of its association's connection.
    pub fn remove(&mut self, number: u64) -> Option<u64> {
        let flow = self.flows.remove(&number)?;
        if let Some(relay) = flow.relay
            && let Some(numbers) = self.by_relay.get_mut(&relay)
        {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_relay.remove(&relay);
            }
        }
        Some(flow.control)
    }
}

/// The destination, with IPv4 within IPv6 as IPv4.
fn canonical(destination: &Destination) -> Destination {
    match destination {
        Destination::Address(address) => {
            SocketAddr::new(address.ip().to_canonical(), address.port()).into()
        }
        name => name.clone(),
    }
}

fn port_of(destination: &Destination) -> u16 {
    match destination {
        Destination::Address(address) => address.port(),
        Destination::Name(_, port) => *port,
    }
}
