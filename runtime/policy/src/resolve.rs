//! Resolving names within a reach, for applications and for `access`.

use std::future::Future;
use std::io;
use std::net::SocketAddr;

use crate::Error;
use crate::Target;
use crate::reach::{Reach, Verdict};
use watm_net::sockets::outgoing;

impl Reach {
    /// Returns the addresses of `target` that this reach admits, in the system's order; never
    /// empty. Resolves a name. Meant for an application that connects to a flow's destination
    /// itself.
    ///
    /// Fails with [`Error::Denied`] if the target may not be reached, and with [`Error::Connect`]
    /// if the name has no address.
    pub async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>, Error> {
        self.choose(target, outgoing::resolve(target)).await
    }

    /// Returns the addresses, as [`resolve`](Reach::resolve), out of those that `finding` finds.
    pub async fn choose(
        &self,
        target: &Target,
        finding: impl Future<Output = io::Result<Vec<SocketAddr>>>,
    ) -> Result<Vec<SocketAddr>, Error> {
        let denied = || Error::Denied {
            module: "destination".to_owned(),
            target: target.to_string(),
        };
        let verdict = self.judge(target);
        if verdict == Verdict::Denied {
            return Err(denied());
        }
        let mut found = finding.await.map_err(|source| Error::Connect {
            module: "destination".to_owned(),
            target: target.to_string(),
            source,
        })?;
        if verdict == Verdict::Resolved {
            found.retain(|address| self.admits(target, address));
        }
        match found.is_empty() {
            true => Err(denied()),
            false => Ok(found),
        }
    }
}
