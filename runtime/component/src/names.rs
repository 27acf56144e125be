//! The import `names`: host names that a module looks up for the destinations of its datagrams.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::sync::oneshot;
use tokio::time::timeout;
use wasmtime::component::Resource;

use super::bindings::watm::transport::{names, types};
use super::connect::code;
use super::convert::{address_to_guest, check_destination};
use super::{Failure, HostObject, State};
use crate::recording::import;
use crate::{Destination, ErrorCode, Family, Network, Target};
use watm_net::ports::Port;
use watm_policy::access::Access;

type Found = Result<Vec<SocketAddr>, ErrorCode>;

/// A lookup of a name.
pub struct Lookup {
    answer: Answer,
    waker: Waker,
}

enum Answer {
    Expected(oneshot::Receiver<Found>),
    There(Found),
}

impl HostObject for Lookup {
    /// Returns an estimate for the result, and for the channel that delivers it.
    fn bytes(&self) -> usize {
        1024
    }
}

impl names::Host for State {}

impl names::HostLookup for State {
    fn start(&mut self, name: String, port: u16, token: u64) -> Result<Resource<Lookup>, Failure> {
        self.turn(import::LookupStart, || (&name, port, token))
            .take(self, |state| {
                let waker = state.token(token)?.into();
                let answer = Answer::Expected(state.look_up(name, port)?);
                let mut lookup = Lookup { answer, waker };
                // This registers the waker of the token.
                lookup.poll();
                Ok(state.keep(lookup)?.rep())
            })
            .map(Resource::new_own)
    }

    fn addresses(
        &mut self,
        lookup: Resource<Lookup>,
    ) -> Result<Option<Vec<types::IpSocketAddress>>, Failure> {
        self.turn(import::LookupAddresses, || (lookup.rep(),))
            .take(self, |state| {
                let lookup = state.table.get_mut(&lookup)?;
                let Some(found) = lookup.poll() else {
                    return Ok(None);
                };
                let addresses = found.clone()?.into_iter().map(address_to_guest);
                Ok(Some(addresses.collect()))
            })
    }

    fn drop(&mut self, lookup: Resource<Lookup>) -> wasmtime::Result<()> {
        self.turn(import::LookupDrop, || (lookup.rep(),))
            .take(self, |state| {
                state.release(lookup)?;
                Ok(())
            })
            .map_err(Failure::into_trap)
    }
}

impl State {
    /// Begins the lookup, if the module may send datagrams there.
    fn look_up(&self, name: String, port: u16) -> Result<oneshot::Receiver<Found>, Failure> {
        let access = self.access.clone().ok_or(ErrorCode::AccessDenied)?;
        let target = Target {
            network: Network::Udp,
            family: Family::Any,
            destination: Destination::Name(name, port),
        };
        check_destination(&target.destination)?;
        if access.check(&target, false).is_err() {
            return Err(ErrorCode::AccessDenied.into());
        }
        let permit = self.hub.lookups.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ErrorCode::LimitReached)?;
        let (answer, expected) = oneshot::channel();
        let ports = self.ports.clone();
        tokio::spawn(async move {
            let mut looking = pin!(resolve(&access, &target, &ports));
            match timeout(access.connect_timeout, &mut looking).await {
                // The receiver may be gone, here and below.
                Ok(found) => drop(answer.send(found)),
                Err(_) => {
                    let _ = answer.send(Err(ErrorCode::Timeout));
                    // The thread is busy until the system returns.
                    let _ = looking.await;
                }
            }
            drop(permit);
        });
        Ok(expected)
    }
}

/// Returns the addresses of a target, and lets the module's sockets send to them.
async fn resolve(access: &Access, target: &Target, ports: &[(String, Port)]) -> Found {
    let found = access.resolve(target).await.map_err(|error| code(&error))?;
    for (_, port) in ports {
        if let Port::Udp(port) = port {
            let mut known = port.known();
            for address in &found {
                known.found(*address, &target.destination);
            }
        }
    }
    Ok(found)
}

impl Lookup {
    /// Returns the result, once there is one; the token is woken for that.
    fn poll(&mut self) -> Option<&Found> {
        if let Answer::Expected(expected) = &mut self.answer {
            let mut cx = Context::from_waker(&self.waker);
            let Poll::Ready(answer) = Pin::new(expected).poll(&mut cx) else {
                return None;
            };
            // The task ends without an answer when the server closes.
            self.answer = Answer::There(answer.unwrap_or(Err(ErrorCode::ConnectionAborted)));
        }
        match &self.answer {
            Answer::There(found) => Some(found),
            Answer::Expected(_) => None,
        }
    }
}
