//! Dialers that carry the connections of other modules, and look up their names.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use watm_net::connect::{Connect, Wire};
use watm_socks::{Dial, Resolver, Resolving};

use super::builder::RoleBuilder;
use super::dialer::Dialer;
use crate::{Network, Target};

/// Carries the connections of another module: a chain is made of these. A [`Dialer`] alone is a
/// connector too, but leaves names to its module.
#[derive(Clone)]
pub struct Carrier(Arc<Resolving<Dialer>>);

impl Carrier {
    /// Makes a carrier of `dialer`. `resolver` looks up the names that other modules connect to.
    pub fn new(dialer: Dialer, resolver: Resolver) -> Carrier {
        Carrier(Arc::new(Resolving::new(dialer, resolver)))
    }

    /// Makes this dialer carry the module's connections, and with a label also the datagrams of
    /// that socket.
    pub fn carry<R>(&self, builder: RoleBuilder<R>, datagrams: Option<&str>) -> RoleBuilder<R> {
        let builder = builder.connector(self.clone());
        match datagrams {
            Some(label) => builder.datagrams(label),
            None => builder,
        }
    }
}

impl Connect for Carrier {
    fn connect(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        Box::pin(async move {
            let to = &target.destination;
            Ok(match target.network {
                Network::Tcp => Wire::stream(self.0.stream(to).await?),
                Network::Udp => Wire::datagrams(self.0.datagrams(to).await?),
            })
        })
    }

    fn resolve(
        &self,
        target: Target,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send + '_>> {
        Box::pin(async move { Ok(self.0.addresses(&target.destination).await?) })
    }
}
