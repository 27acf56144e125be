//! The server's side of `watm pt`: each transport is a listener in front of Tor's port.

use std::net::SocketAddr;

use super::environment::{Server, Wanted};
use super::{Transport, input_ends, one_line, say, with_options};
use crate::commands::serve::ExtendedOrPort;
use crate::commands::serve::{Many, Place, Upstream};
use crate::failure::{Failure, Outcome};
use crate::loading::LoadingOptions;

/// The address of a transport for which Tor names none: any port, on all addresses.
const ANYWHERE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

pub(super) fn run(
    wanted: &Server,
    transports: &[Transport],
    loading: &LoadingOptions,
    exit_with_input: bool,
) -> Result<Outcome, Failure> {
    let mut all = Many::new(loading)?;
    for Wanted {
        name,
        place,
        options,
    } in &wanted.transports
    {
        let transport = transports.iter().find(|known| known.name == *name);
        let started = transport
            .ok_or_else(|| Failure::unusable("no such transport"))
            .and_then(|transport| {
                let config = transport.read_config()?.unwrap_or_default();
                let (port, introduction) = match &wanted.extended {
                    None => (wanted.or_port, None),
                    Some((port, cookie)) => {
                        let introduction = ExtendedOrPort {
                            cookie: cookie.clone(),
                            transport: name.clone(),
                        };
                        (*port, Some(introduction))
                    }
                };
                all.start(
                    name,
                    (&transport.module, with_options(&config, options)),
                    Place::tcp(place.unwrap_or(ANYWHERE)),
                    Upstream::Tcp(watm_runtime::Destination::Address(port)),
                    introduction,
                )
            });
        match started {
            Ok(address) => say(&format!("SMETHOD {name} {address}"))?,
            Err(failure) => say(&format!("SMETHOD-ERROR {name} {}", one_line(&failure)))?,
        }
    }
    say("SMETHODS DONE")?;
    all.serve(input_ends(exit_with_input))
}
