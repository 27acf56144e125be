//! The imports from `env`, by which a module gets its connections. v0 and v1 name them differently.
//! `water` links them into every guest.

use wasmtime::{Caller, Linker};

use watm_policy::water_abi::{ENV, Version};

use super::end::end_of;
use super::errno::Errno;
use super::fds::{Descriptor, Resource};
use super::guest::Parts;
use super::outside::parse_target;
use super::state::{State, split};
use crate::Target;
use watm_net::connect::Wire;
use watm_net::quota::Permit;

/// The longest name of a network or an address that a module may give, in bytes.
const MAX_ADDRESS: usize = 256;

pub(super) fn add_to_linker(linker: &mut Linker<State>, version: Version) -> wasmtime::Result<()> {
    let [dial, accept] = match version {
        Version::V0 => ["host_dial", "host_accept"],
        Version::V1 => ["water_dial_fixed", "water_accept"],
    };
    linker.func_wrap_async(ENV, dial, |caller: Caller<'_, State>, (): ()| {
        Box::new(dial_own(caller))
    })?;
    linker.func_wrap(ENV, accept, |mut caller: Caller<'_, State>| {
        let state = caller.data_mut();
        if state.outside.ends_check() {
            return Err(wasmtime::Error::msg("the check is over"));
        }
        Ok(answer(accept_own(state)))
    })?;
    match version {
        Version::V0 => {
            // The function once closed the sockets; now they go with the instance.
            linker.func_wrap(ENV, "host_defer", || {})?;
            linker.func_wrap(ENV, "pull_config", |mut caller: Caller<'_, State>| {
                answer(pull_config(caller.data_mut()))
            })?;
        }
        Version::V1 => {
            linker.func_wrap_async(
                ENV,
                "water_dial",
                |caller: Caller<'_, State>, lists: (u32, u32, u32, u32)| {
                    Box::new(dial_named(caller, lists))
                },
            )?;
        }
    }
    Ok(())
}

/// Connects to the application's destination.
async fn dial_own(mut caller: Caller<'_, State>) -> i32 {
    let Some(target) = caller.data().outside.target() else {
        return Errno::NODEV.negated();
    };
    dial(&mut caller, target).await
}

/// Connects to the destination that the module names, in a role that may connect anywhere.
async fn dial_named(
    mut caller: Caller<'_, State>,
    (networks, network_count, addresses, address_count): (u32, u32, u32, u32),
) -> wasmtime::Result<i32> {
    let (memory, _) = split(&mut caller)?;
    let gather = |pointer, count| {
        Parts::new(memory, pointer, count).and_then(|parts| parts.gather(memory, MAX_ADDRESS))
    };
    let names = gather(networks, network_count)
        .and_then(|network| Ok((network, gather(addresses, address_count)?)));
    let target = match names {
        Ok((network, address)) => parse_target(&network, &address),
        Err(errno) => return Ok(errno.negated()),
    };
    if !caller.data().outside.connects() {
        return Ok(Errno::NODEV.negated());
    }
    Ok(match target {
        Some(target) => dial(&mut caller, target).await,
        None => Errno::INVAL.negated(),
    })
}

/// Connects, and returns the descriptor of the connection. Returns the number that a module expects
/// for a failed connection, whatever the reason; the application gets the reason.
async fn dial(caller: &mut Caller<'_, State>, target: Target) -> i32 {
    let outside = &caller.data().outside;
    let (permit, connecting) = (outside.descriptor(), outside.connecting());
    let connected = match permit {
        Ok(permit) => connecting.to(target).await.map(|wire| (wire, permit)),
        Err(error) => Err(error),
    };
    let state = caller.data_mut();
    match connected {
        Ok((wire, permit)) => {
            state.moved();
            state.outside.take_failure();
            answer(insert(state, wire, false, permit))
        }
        Err(error) => {
            tracing::debug!(target: "watm::server", "{error}");
            state.outside.fail(error);
            Errno::NOTCONN.negated()
        }
    }
}

fn accept_own(state: &mut State) -> Result<i32, Errno> {
    if !state.outside.accepts() {
        return Err(Errno::NODEV);
    }
    let accepted = state.outside.take_accepted().ok_or(Errno::NOTCONN)?;
    match state.outside.descriptor() {
        Ok(permit) => insert(state, accepted, true, permit),
        Err(error) => {
            state.outside.fail(error);
            Err(Errno::MFILE)
        }
    }
}

/// Opens the configuration: a new file each time, at its start.
fn pull_config(state: &mut State) -> Result<i32, Errno> {
    let content = state.config.clone().ok_or(Errno::ACCES)?;
    state
        .fds
        .insert(Descriptor::new(Resource::File { content, offset: 0 }))
}

fn insert(state: &mut State, wire: Wire, accepted: bool, permit: Permit) -> Result<i32, Errno> {
    let addresses = (wire.local, wire.peer);
    state.fds.insert(Descriptor {
        outside: true,
        addresses,
        _permit: Some(permit),
        ..Descriptor::new(Resource::End(end_of(wire, accepted)))
    })
}

fn answer(result: Result<i32, Errno>) -> i32 {
    result.unwrap_or_else(Errno::negated)
}
