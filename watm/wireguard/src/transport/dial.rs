//! Dialled connections, through a peer's tunnel.

use std::net::{IpAddr, SocketAddr};

use watm_core::{ByteStream, DatagramFlow, Destination, ErrorCode, Host, Instant, Level, Token};
use watm_netstack::{Netstack, Origin, PeerId};

use super::{TARGET, WireGuard};
use crate::{clock, routes};

/// The ends of a dialled flow.
struct Ends<'a> {
    origin: &'a Origin,
    source: IpAddr,
    target: SocketAddr,
    now: Instant,
}

impl WireGuard {
    /// Carry a stream of the application to `destination`, or to the configuration's `Target`.
    pub(super) fn open(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn ByteStream>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        self.begin(destination, host, |netstack, ends| {
            netstack.connect(ends.origin, ends.source, ends.target, application, ends.now)
        })
    }

    /// Like [`open`](Self::open), for datagrams.
    pub(super) fn open_datagrams(
        &mut self,
        destination: Option<&Destination>,
        application: Box<dyn DatagramFlow>,
        host: &mut dyn Host,
    ) -> Result<Token, ErrorCode> {
        self.begin(destination, host, |netstack, ends| {
            let Ends {
                origin,
                source,
                target,
                now,
            } = ends;
            netstack.connect_datagrams(origin, source, target, application, now)
        })
    }

    fn begin(
        &mut self,
        destination: Option<&Destination>,
        host: &mut dyn Host,
        connect: impl FnOnce(&mut Netstack, Ends<'_>) -> Result<Token, ErrorCode>,
    ) -> Result<Token, ErrorCode> {
        clock::set(host.now());
        if !self.generations.is_serving() {
            return Err(ErrorCode::InvalidState);
        }
        let target = self.target(destination)?;
        let Some(source) = routes::source(&self.config.addresses, target.ip()) else {
            return Err(ErrorCode::Other(format!(
                "[Interface] Address has no address of the family of {target}; add one as the \
                 source of connections"
            )));
        };
        let Some(id) = self.peers.route(target.ip()) else {
            // The error code has no text, and the user should know which rule refused.
            let why = format!(
                "{target} is refused: {} is not in the AllowedIPs of any [Peer], or is in its \
                 DisallowedIPs",
                target.ip()
            );
            host.log(Level::Warn, TARGET, &why);
            return Err(ErrorCode::AccessDenied);
        };
        self.reach(id, host)?;
        if self.peers.get(id).is_some_and(|peer| peer.room().is_none()) {
            self.learn_path(id, host);
        }
        let now = host.now();
        let (netstack, mut sink) = self.netstack_and_sink(now);
        let Some(peer) = sink.peers.get_mut(id) else {
            return Err(ErrorCode::InvalidState);
        };
        let ends = Ends {
            origin: &peer.origin().clone(),
            source,
            target,
            now,
        };
        let token = connect(netstack, ends)?;
        netstack.flush(host, &mut sink);
        self.out.flush(&mut self.counters);
        Ok(token)
    }

    /// End the flows of peers that could not be connected to.
    pub(super) fn give_up_unreachable(&mut self, host: &mut dyn Host) {
        let Some(streams) = &self.streams else {
            return;
        };
        for remote in streams.take_failed() {
            for id in self.peers.at(remote) {
                let (netstack, mut sink) = self.netstack_and_sink(host.now());
                netstack.remove_peer(id, host, &mut sink);
            }
        }
    }

    fn target(&self, destination: Option<&Destination>) -> Result<SocketAddr, ErrorCode> {
        match destination {
            Some(Destination::Address(address)) => Ok(*address),
            Some(Destination::Name(name, _)) => Err(ErrorCode::Other(format!(
                "{name} is a name, and a module cannot resolve names; use an address"
            ))),
            None => self.config.target.ok_or_else(|| {
                ErrorCode::Other("no destination was given, and [Watm] has no Target".to_owned())
            }),
        }
    }

    /// Make sure that the peer can be sent to.
    fn reach(&mut self, id: PeerId, host: &mut dyn Host) -> Result<(), ErrorCode> {
        let nowhere = self
            .peers
            .get(id)
            .is_some_and(|peer| peer.endpoint().is_none());
        if nowhere && self.names.has(id) {
            self.look_up(host);
            return self.unresolved(id, host).map_or(Ok(()), Err);
        }
        let Some(peer) = self.peers.get_mut(id) else {
            return Err(ErrorCode::InvalidState);
        };
        let no_endpoint = || {
            let name = &peer.origin().name;
            ErrorCode::Other(format!("[Peer] {name} has no Endpoint to connect to"))
        };
        match &self.streams {
            None if peer.endpoint().is_none() => Err(no_endpoint()),
            None => Ok(()),
            Some(streams) => match streams.connect(peer.endpoint(), host) {
                Ok(remote) => {
                    peer.set_endpoint(remote);
                    Ok(())
                }
                Err(_) if peer.endpoint().is_none() => Err(no_endpoint()),
                Err(error) => Err(error),
            },
        }
    }
}
