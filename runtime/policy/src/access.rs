//! The policy of a module's connections, and the way they are made. `component` and `water` connect
//! and resolve by it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::Target;
use crate::grant::Granted;
use crate::reach::{Reach, Verdict};
use crate::{Destination, Error, Network, log_refusal};
use watm_net::connect::{Connect, Wire};
use watm_net::counters::Counters;
use watm_net::sockets::outgoing;
use watm_types::printable;

/// The most lookups of names at once for a module, even if nobody waits for them any more: each holds
/// one of the process's threads until the system's resolver answers.
pub const MAX_LOOKUPS: usize = 8;

/// The policy of a module's connections, and the way they are made.
pub struct Access {
    /// The module's name, for errors.
    pub name: String,
    /// The destinations that it may reach.
    pub reach: Reach,
    /// The application's own way to connect; `None` for the sockets of this machine.
    pub connector: Option<Arc<dyn Connect>>,
    /// The time limit of an attempt.
    pub connect_timeout: Duration,
    /// The counters that note the destinations.
    pub counters: Arc<Counters>,
    /// The permits of lookups: [`MAX_LOOKUPS`] of them; others wait.
    pub lookups: Arc<Semaphore>,
}

impl Access {
    /// Returns the same access, with a reach within the module's seal and grant.
    pub fn cut(&self, granted: &Granted) -> Arc<Access> {
        Arc::new(Access {
            name: self.name.clone(),
            reach: granted.reach(self.reach.clone()),
            connector: self.connector.clone(),
            connect_timeout: self.connect_timeout,
            counters: self.counters.clone(),
            lookups: self.lookups.clone(),
        })
    }

    /// Checks if the module may connect to the target, as far as that is known before a name is
    /// resolved. `own` is true for the application's destination, which is always allowed.
    pub fn check(&self, target: &Target, own: bool) -> Result<(), Error> {
        match self.verdict(target, own) {
            Verdict::Denied => {
                self.note(target, false);
                Err(self.refused(target, self.denied(target)))
            }
            Verdict::Allowed | Verdict::Resolved => Ok(()),
        }
    }

    /// Checks the same for datagrams to an address. `name` is the name that it was looked up by, if
    /// any.
    pub fn admits_datagrams(&self, remote: SocketAddr, name: Option<&Destination>) -> bool {
        self.reach.admits_datagrams(remote, name)
    }

    /// Notes and logs that datagrams to this address are dropped.
    pub fn refuse_datagrams(&self, remote: SocketAddr) {
        let target = Target {
            network: Network::Udp,
            ..Target::tcp(Destination::Address(remote))
        };
        self.note(&target, false);
        self.refused(&target, self.denied(&target));
    }

    fn note(&self, target: &Target, connected: bool) {
        let shown = shown(target);
        self.counters.usage.destinations.note(&shown, connected);
    }

    /// Connects, if the module may. `own` as in [`check`](Access::check).
    pub async fn connect(&self, target: &Target, own: bool) -> Result<Wire, Error> {
        let failed = |source| self.failed(target, source);
        let connecting = async {
            match self.verdict(target, own) {
                Verdict::Allowed => self.make(target).await.map_err(failed),
                Verdict::Denied => Err(self.denied(target)),
                Verdict::Resolved => {
                    let mut result = Err(self.denied(target));
                    for address in self.addresses(target).await.map_err(failed)? {
                        if !self.reach.admits(target, &address) {
                            continue;
                        }
                        let target = Target {
                            destination: Destination::Address(address),
                            ..target.clone()
                        };
                        result = self.make(&target).await.map_err(failed);
                        if result.is_ok() {
                            break;
                        }
                    }
                    result
                }
            }
        };
        let result = match timeout(self.connect_timeout, connecting).await {
            Ok(result) => result,
            Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
        };
        self.note(target, result.is_ok());
        result.map_err(|error| self.refused(target, error))
    }

    /// Returns the addresses of a target, as [`Reach::resolve`] does.
    pub async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>, Error> {
        let found = self.reach.choose(target, self.addresses(target)).await;
        found.map_err(|error| match error {
            Error::Denied { .. } => self.refused(target, self.denied(target)),
            error => error,
        })
    }

    /// Returns the addresses of a name that a module looks up before it connects to one of them. `own`
    /// is true for the name of the application's destination.
    pub async fn look_up(&self, name: &str, own: bool) -> Result<Vec<IpAddr>, Error> {
        // The port is not known yet.
        let target = Target::tcp(Destination::Name(name.to_owned(), 0));
        let verdict = match own {
            true => Verdict::Allowed,
            false => self.reach.judge_name(name),
        };
        if verdict == Verdict::Denied {
            return Err(self.refused(&target, self.denied(&target)));
        }
        let looking = timeout(self.connect_timeout, self.addresses(&target));
        let found = looking.await.unwrap_or(Err(io::ErrorKind::TimedOut.into()));
        let found = found.map_err(|source| self.failed(&target, source))?;
        let mut found: Vec<IpAddr> = found.iter().map(|it| it.ip().to_canonical()).collect();
        if verdict == Verdict::Resolved {
            found.retain(|ip| self.reach.admits_found(name, *ip));
        }
        match found.is_empty() {
            true => Err(self.refused(&target, self.denied(&target))),
            false => Ok(found),
        }
    }

    /// Logs the error if the policy is its cause, and returns it.
    fn refused(&self, target: &Target, error: Error) -> Error {
        if matches!(error, Error::Denied { .. }) {
            log_refusal(&self.name, &shown(target), &error.to_string());
        }
        error
    }

    /// Returns all addresses of a target.
    async fn addresses(&self, target: &Target) -> io::Result<Vec<SocketAddr>> {
        if matches!(target.destination, Destination::Address(_)) {
            return outgoing::resolve(target).await;
        }
        let place = self.lookups.clone().acquire_owned().await;
        let (connector, target) = (self.connector.clone(), target.clone());
        // The thread is busy until there is an answer, though nobody may wait for it any more.
        let looking = tokio::spawn(async move {
            let found = match connector {
                Some(connector) => {
                    let found = connector.resolve(target.clone()).await?;
                    outgoing::of_family(found, target.family)
                }
                None => outgoing::resolve(&target).await,
            };
            drop(place);
            found
        });
        looking.await.map_err(io::Error::other)?
    }

    /// Returns the error of a connection that failed.
    pub fn failed(&self, target: &Target, source: io::Error) -> Error {
        Error::Connect {
            module: self.name.clone(),
            target: shown(target),
            source,
        }
    }

    fn denied(&self, target: &Target) -> Error {
        Error::Denied {
            module: self.name.clone(),
            target: shown(target),
        }
    }

    fn verdict(&self, target: &Target, own: bool) -> Verdict {
        match own {
            true => Verdict::Allowed,
            false => self.reach.judge(target),
        }
    }

    async fn make(&self, target: &Target) -> io::Result<Wire> {
        match &self.connector {
            Some(connector) => connector.connect(target.clone()).await,
            None => outgoing::connect(target.network, &self.addresses(target).await?).await,
        }
    }
}

/// Formats a target for an error; a module may have chosen its name.
fn shown(target: &Target) -> String {
    /// The most characters: a name with all its parts, and a port.
    const LONGEST: usize = 300;
    printable(&target.to_string(), LONGEST).into_owned()
}
