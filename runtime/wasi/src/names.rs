//! Lookups of names: the interface `wasi:sockets/ip-name-lookup`. `program` links it.

use std::net::IpAddr;
use std::pin::Pin;
use std::vec;

use tokio::task::JoinHandle;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, Network};
use wasmtime_wasi::p2::{Pollable, subscribe};
use watm_types::Error;

use crate::state::State;

const INTERFACE: &str = "wasi:sockets/ip-name-lookup@0.2.0";

/// The longest name, in bytes (RFC 1035).
const LONGEST_NAME: usize = 255;

/// The most lookups of a program that have no answer yet.
const MOST_LOOKUPS: usize = 64;

/// A lookup, until the program drops it.
struct Lookup(Looking);

enum Looking {
    Waiting(JoinHandle<Result<Vec<IpAddr>, ErrorCode>>),
    Found(vec::IntoIter<IpAddr>),
    Failed(ErrorCode),
}

type Answer<T> = wasmtime::Result<(Result<T, ErrorCode>,)>;

pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut names = linker.instance(INTERFACE)?;
    names.resource(
        "resolve-address-stream",
        ResourceType::host::<Lookup>(),
        |mut store, rep| {
            let lookup = store
                .data_mut()
                .table
                .delete(Resource::<Lookup>::new_own(rep))?;
            drop(lookup);
            Ok(())
        },
    )?;
    names.func_wrap(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, State>, (network, name): (Resource<Network>, String)| {
            look_up(store.data_mut(), &network, &name)
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, State>, (lookup,): (Resource<Lookup>,)| {
            next(store.data_mut(), &lookup)
        },
    )?;
    names.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, State>, (lookup,): (Resource<Lookup>,)| {
            Ok((subscribe(&mut store.data_mut().table, lookup)?,))
        },
    )?;
    Ok(())
}

fn look_up(state: &mut State, network: &Resource<Network>, name: &str) -> Answer<Resource<Lookup>> {
    state.table.get(network)?;
    let refused = |code| Ok((Err(code),));
    let literal = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let looking = if let Ok(ip) = literal.unwrap_or(name).parse::<IpAddr>() {
        Looking::Found(vec![ip].into_iter())
    } else if name.is_empty() || name.len() > LONGEST_NAME || !name.is_ascii() {
        return refused(ErrorCode::InvalidArgument);
    } else if state.lookups() >= MOST_LOOKUPS {
        return refused(ErrorCode::TemporaryResolverFailure);
    } else {
        let (network, name) = (state.network.clone(), name.to_owned());
        Looking::Waiting(tokio::spawn(async move {
            let found = network.look_up(&name).await;
            found.map_err(|error| {
                tracing::debug!(target: "watm::server", server = network.access.name.as_str(), "{error}");
                match error {
                    Error::Denied { .. } => ErrorCode::AccessDenied,
                    _ => ErrorCode::NameUnresolvable,
                }
            })
        }))
    };
    Ok((Ok(state.table.push(Lookup(looking))?),))
}

fn next(state: &mut State, lookup: &Resource<Lookup>) -> Answer<Option<IpAddress>> {
    let lookup = state.table.get_mut(lookup)?;
    lookup.look();
    Ok((match &mut lookup.0 {
        Looking::Waiting(_) => Err(ErrorCode::WouldBlock),
        Looking::Found(found) => Ok(found.next().map(IpAddress::from)),
        Looking::Failed(code) => Err(*code),
    },))
}

impl State {
    /// Returns the number of lookups without an answer.
    fn lookups(&mut self) -> usize {
        let entries = self.table.iter_mut();
        let lookups = entries.filter_map(|entry| entry.downcast_ref::<Lookup>());
        lookups
            .filter(|lookup| matches!(&lookup.0, Looking::Waiting(task) if !task.is_finished()))
            .count()
    }
}

impl Lookup {
    /// Takes the answer, if there is one.
    fn look(&mut self) {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if let Looking::Waiting(task) = &mut self.0
            && let std::task::Poll::Ready(answer) = Pin::new(task).poll(&mut cx)
        {
            self.take(answer.unwrap_or(Err(ErrorCode::NameUnresolvable)));
        }
    }

    fn take(&mut self, answer: Result<Vec<IpAddr>, ErrorCode>) {
        self.0 = match answer {
            Ok(found) => Looking::Found(found.into_iter()),
            Err(code) => Looking::Failed(code),
        };
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Lookup {
    async fn ready(&mut self) {
        if let Looking::Waiting(task) = &mut self.0 {
            let answer = task.await;
            self.take(answer.unwrap_or(Err(ErrorCode::NameUnresolvable)));
        }
    }
}

/// Ends the lookup. The resolver's thread is busy until there is an answer.
impl Drop for Lookup {
    fn drop(&mut self) {
        if let Looking::Waiting(task) = &self.0 {
            task.abort();
        }
    }
}
