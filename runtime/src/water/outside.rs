use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::net::outgoing;
use crate::roles::{Connect, Verdict, Wire};
use crate::{Destination, Error, Reach, Role, Target};

/// What one instance may have of the network.
pub(super) struct Outside {
    role: Role,
    /// Where the application wants to go.
    target: Option<Target>,
    accepted: Option<Wire>,
    access: Arc<Access>,
    /// Why the last connection could not be had.
    failure: Option<Error>,
}

/// What all instances of one dialer, listener or relay have in common.
pub(super) struct Access {
    /// The module's name, for errors.
    pub(super) name: String,
    pub(super) reach: Reach,
    pub(super) connector: Option<Arc<dyn Connect>>,
    pub(super) connect_timeout: Duration,
}

impl Outside {
    pub(super) fn new(
        role: Role,
        target: Option<Target>,
        accepted: Option<Wire>,
        access: Arc<Access>,
    ) -> Outside {
        Outside {
            role,
            target,
            accepted,
            access,
            failure: None,
        }
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
    /// Where the application wants to go; nobody needs to be asked about that.
    own: Option<Target>,
    access: Arc<Access>,
}

impl Connecting {
    /// Connect, if the module may.
    pub(super) async fn to(self, target: Target) -> Result<Wire, Error> {
        let access = &self.access;
        let failed = |source| Error::Connect {
            module: access.name.clone(),
            target: target.to_string(),
            source,
        };
        let denied = || Error::Denied {
            module: access.name.clone(),
            target: target.to_string(),
        };
        let connecting = async {
            let own = self.own.as_ref() == Some(&target);
            match access.reach.judge(&target) {
                _ if own => access.connect(&target).await.map_err(failed),
                Verdict::Allowed => access.connect(&target).await.map_err(failed),
                Verdict::Denied => Err(denied()),
                Verdict::Resolved => {
                    let mut result = Err(denied());
                    for address in outgoing::resolve(&target).await.map_err(failed)? {
                        if !access.reach.admits(target.network, &address) {
                            continue;
                        }
                        let target = Target {
                            destination: Destination::Address(address),
                            ..target.clone()
                        };
                        result = access.connect(&target).await.map_err(failed);
                        if result.is_ok() {
                            break;
                        }
                    }
                    result
                }
            }
        };
        match tokio::time::timeout(access.connect_timeout, connecting).await {
            Ok(result) => result,
            Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl Access {
    async fn connect(&self, target: &Target) -> io::Result<Wire> {
        match &self.connector {
            Some(connector) => connector.connect(target.clone()).await,
            None => outgoing::connect(target).await,
        }
    }
}

/// A target as a module names it.
pub(super) fn parse_target(network: &[u8], address: &[u8]) -> Option<Target> {
    let network = std::str::from_utf8(network).ok()?;
    let address = std::str::from_utf8(address).ok()?;
    Target::parse(network, address).ok()
}
