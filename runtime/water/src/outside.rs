//! The network as one guest may use it: the connection that came in, and those that it makes. `env`
//! calls it.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{Error, ErrorCode, Role, Target};
use watm_net::connect::Wire;
use watm_net::quota::{Permit, Quota};
use watm_policy::access::Access;

/// The network access of one instance.
pub(super) struct Outside {
    role: Role,
    /// The application's destination.
    target: Option<Target>,
    accepted: Option<Wire>,
    access: Arc<Access>,
    /// The count of the module's connections.
    descriptors: Quota,
    /// The reason why the last connection attempt failed.
    failure: Option<Error>,
    /// Notified when the client has reset its connection.
    reset: Arc<Notify>,
    /// Some in a check, which has no connection: true once the module has asked for one. `None`
    /// otherwise.
    check: Option<bool>,
}

impl Outside {
    pub(super) fn new(
        role: Role,
        target: Option<Target>,
        accepted: Option<Wire>,
        access: Arc<Access>,
        descriptors: Quota,
    ) -> Outside {
        Outside {
            role,
            target,
            accepted,
            access,
            descriptors,
            failure: None,
            reset: Arc::default(),
            check: None,
        }
    }

    /// Makes the access for a module that checks its configuration, and gets no connection.
    pub(super) fn for_check(role: Role, access: Arc<Access>, descriptors: Quota) -> Outside {
        Outside {
            check: Some(false),
            ..Outside::new(role, None, None, access, descriptors)
        }
    }

    /// Notes that the module asks for the connection that came in. Returns true in a check, which
    /// ends with that.
    pub(super) fn ends_check(&mut self) -> bool {
        let asked = self.check.as_mut().map(|asked| *asked = true);
        asked.is_some()
    }

    /// Returns true if the module has asked for a connection in a check.
    pub(super) fn has_asked(&self) -> bool {
        self.check == Some(true)
    }

    /// Returns the notification of a client that has reset its connection.
    pub(super) fn reset(&self) -> Arc<Notify> {
        self.reset.clone()
    }

    /// Returns the application's destination, if this role has the module connect to it.
    pub(super) fn target(&self) -> Option<Target> {
        self.target.clone()
    }

    /// Returns true if this role makes outgoing connections.
    pub(super) fn connects(&self) -> bool {
        !matches!(self.role, Role::Listener)
    }

    /// Returns true if this role has incoming connections.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.role, Role::Listener | Role::Relay)
    }

    /// Returns true if the connection that came in still waits for the module to take it.
    pub(super) fn waits(&self) -> bool {
        self.accepted.is_some()
    }

    /// Returns true if the module has taken the connection that came in to pass it on to another,
    /// and has nothing else to do.
    pub(super) fn relays(&self) -> bool {
        matches!(self.role, Role::Relay) && !self.waits()
    }

    /// Takes the connection that came in; `None` after the first call.
    pub(super) fn take_accepted(&mut self) -> Option<Wire> {
        self.accepted.take()
    }

    /// Reserves a place for one more connection. The error names the limit.
    pub(super) fn descriptor(&self) -> Result<Permit, Error> {
        self.descriptors.permit().ok_or_else(|| Error::Refused {
            module: self.access.name.clone(),
            code: ErrorCode::Other(
                format!(
                    "{} connections are open, the module's limit (limits.descriptors)",
                    self.descriptors.limit()
                )
                .into(),
            ),
        })
    }

    pub(super) fn fail(&mut self, error: Error) {
        self.failure = Some(error);
    }

    pub(super) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Returns what is needed to connect without the state, which the guest's call holds.
    pub(super) fn connecting(&self) -> Connecting {
        Connecting {
            own: self.target.clone(),
            access: self.access.clone(),
        }
    }
}

pub(super) struct Connecting {
    /// The application's destination.
    own: Option<Target>,
    access: Arc<Access>,
}

impl Connecting {
    /// Connects, if the module may.
    pub(super) async fn to(self, target: Target) -> Result<Wire, Error> {
        let own = self.own.as_ref() == Some(&target);
        self.access.connect(&target, own).await
    }
}

/// Parses a destination as a module names it.
pub(super) fn parse_target(network: &[u8], address: &[u8]) -> Option<Target> {
    let network = std::str::from_utf8(network).ok()?;
    let address = std::str::from_utf8(address).ok()?;
    Target::parse(network, address).ok()
}
