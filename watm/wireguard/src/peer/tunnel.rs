//! boringtun's state machine of a peer, and its inputs.

use std::rc::Rc;
use std::sync::Arc;

use boringtun::noise::Tunn;
use boringtun::noise::rate_limiter::RateLimiter;
use boringtun::x25519::{PublicKey, StaticSecret};
use watm_netstack::PeerId;

use crate::clock::Dates;
use crate::config::{Config, PeerConfig};
use crate::floor::Initiation;
use crate::handshake_time::{self, Timestamp};

/// The state that all peers share.
pub struct Identity {
    pub(super) private_key: StaticSecret,
    public_key: PublicKey,
    /// The limiter that boringtun requires. It sees only handshakes that `admission` has admitted.
    limiter: Arc<RateLimiter>,
    dates: Rc<Dates>,
}

impl Identity {
    /// Makes the identity of this configuration.
    pub fn new(config: &Config, dates: Rc<Dates>) -> Rc<Self> {
        Rc::new(Identity {
            private_key: config.private_key.clone(),
            public_key: config.public_key,
            limiter: Arc::new(RateLimiter::new(&config.public_key, u64::MAX)),
            dates,
        })
    }

    /// The timestamp of an initiation of this peer.
    pub(super) fn time(&self, peer: &PublicKey, message: &Initiation) -> Option<Timestamp> {
        handshake_time::timestamp(&self.private_key, &self.public_key, peer, message)
    }
}

/// boringtun's state, made when it is first needed: making it takes two key exchanges, which for
/// thousands of peers would take seconds at the start.
pub(super) struct Tunnel {
    pub(super) identity: Rc<Identity>,
    pub(super) tunn: Option<Box<Tunn>>,
}

impl Tunnel {
    /// Returns it, and makes it if necessary.
    pub(super) fn get(&mut self, id: PeerId, config: &PeerConfig) -> &mut Tunn {
        self.tunn.get_or_insert_with(|| {
            let identity = &self.identity;
            let make = || {
                Tunn::new(
                    identity.private_key.clone(),
                    config.public_key,
                    config.preshared_key,
                    // The keepalive interval is kept here, so that it can change while the session
                    // stays.
                    None,
                    id,
                    Some(Arc::clone(&identity.limiter)),
                )
            };
            Box::new(identity.dates.tunnel(make))
        })
    }
}
