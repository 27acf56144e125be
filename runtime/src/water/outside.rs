use std::sync::Arc;

use tokio::sync::Notify;

use crate::flow::{FlowCount, FlowPermit};
use crate::roles::{Access, Wire};
use crate::{Error, ErrorCode, Role, Target};

/// What one instance may have of the network.
pub(super) struct Outside {
    role: Role,
    /// Where the application wants to go.
    target: Option<Target>,
    accepted: Option<Wire>,
    access: Arc<Access>,
    /// Connections of the module.
    descriptors: FlowCount,
    /// Why the last connection could not be had.
    failure: Option<Error>,
    /// Notified when the client has reset its connection.
    reset: Arc<Notify>,
    /// In a check there is no connection; whether the module has asked for one.
    check: Option<bool>,
}

impl Outside {
    pub(super) fn new(
        role: Role,
        target: Option<Target>,
        accepted: Option<Wire>,
        access: Arc<Access>,
        descriptors: FlowCount,
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

    /// For a module that is to look at its configuration, and gets no connection.
    pub(super) fn for_check(role: Role, access: Arc<Access>, descriptors: FlowCount) -> Outside {
        Outside {
            check: Some(false),
            ..Outside::new(role, None, None, access, descriptors)
        }
    }

    /// Notes that the module asks for the connection that came in. True: it is a check, which is
    /// over with that.
    pub(super) fn ends_check(&mut self) -> bool {
        let asked = self.check.as_mut().map(|asked| *asked = true);
        asked.is_some()
    }

    /// Whether the module has asked for a connection in a check.
    pub(super) fn has_asked(&self) -> bool {
        self.check == Some(true)
    }

    /// Notified when the client has reset its connection.
    pub(super) fn reset(&self) -> Arc<Notify> {
        self.reset.clone()
    }

    /// Where the application wants to go, if this role has the module go there.
    pub(super) fn target(&self) -> Option<Target> {
        self.target.clone()
    }

    /// Whether this role has connections that go out.
    pub(super) fn connects(&self) -> bool {
        !matches!(self.role, Role::Listener)
    }

    /// Whether this role has connections that come in.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.role, Role::Listener | Role::Relay)
    }

    /// The connection that came in; once.
    pub(super) fn take_accepted(&mut self) -> Option<Wire> {
        self.accepted.take()
    }

    /// For one more connection. The error names the limit.
    pub(super) fn descriptor(&self) -> Result<FlowPermit, Error> {
        self.descriptors.permit().ok_or_else(|| Error::Refused {
            module: self.access.name.clone(),
            code: ErrorCode::Other(
                format!(
                    "{} connections are open, as many as limits.descriptors lets the module have",
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

    /// What it takes to connect, apart from the state, which the guest's call holds.
    pub(super) fn connecting(&self) -> Connecting {
        Connecting {
            own: self.target.clone(),
            access: self.access.clone(),
        }
    }
}

pub(super) struct Connecting {
    /// Where the application wants to go.
    own: Option<Target>,
    access: Arc<Access>,
}

impl Connecting {
    /// Connect, if the module may.
    pub(super) async fn to(self, target: Target) -> Result<Wire, Error> {
        let own = self.own.as_ref() == Some(&target);
        self.access.connect(&target, own).await
    }
}

/// A target as a module names it.
pub(super) fn parse_target(network: &[u8], address: &[u8]) -> Option<Target> {
    let network = std::str::from_utf8(network).ok()?;
    let address = std::str::from_utf8(address).ok()?;
    Target::parse(network, address).ok()
}
