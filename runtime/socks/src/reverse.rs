//! Reverse port forwards: connections from the other end of a tunnel to one local destination.
//! `watm tunnel` serves them.

use std::time::Duration;

use tokio::time::sleep;

use crate::join::join;
use crate::{Carried, Counters, Datagrams, Destination, Dial, Direct, Error};

/// Carries a connection to the destination until both directions have ended. Resets it if the
/// destination cannot be reached.
pub async fn stream(
    mut connection: impl Carried,
    to: &Destination,
    counters: &Counters,
) -> Result<(), Error> {
    counters.clients.add();
    match Direct.stream(to).await {
        Ok(service) => {
            counters.connected.add();
            join(service, connection, &[]).await
        }
        Err(why) => {
            counters.failed.add();
            connection.reset();
            let to = to.clone();
            Err(Error::Dial { to, why })
        }
    }
}

/// Carries datagrams to the destination and its answers back, until the flow has ended or nothing
/// has arrived for `idle`.
pub async fn datagrams(
    flow: impl Datagrams,
    to: &Destination,
    idle: Duration,
    counters: &Counters,
) -> Result<(), Error> {
    counters.clients.add();
    let service = Direct.datagrams(to).await.map_err(|why| {
        counters.failed.add();
        let to = to.clone();
        Error::Dial { to, why }
    })?;
    counters.connected.add();
    loop {
        // `None` or an error means that one of the two has ended.
        let (carried, count) = tokio::select! {
            came = flow.receive() => match came {
                Ok(Some(datagram)) => (Datagrams::send(&service, &datagram), &counters.datagrams_out),
                Ok(None) | Err(_) => return Ok(()),
            },
            came = Datagrams::receive(&service) => match came {
                Ok(Some(datagram)) => (flow.send(&datagram), &counters.datagrams_in),
                Ok(None) | Err(_) => return Ok(()),
            },
            () = sleep(idle) => return Ok(()),
        };
        match carried {
            Ok(true) => count.add(),
            Ok(false) => counters.dropped_full.add(),
            Err(_) => return Ok(()),
        }
    }
}
