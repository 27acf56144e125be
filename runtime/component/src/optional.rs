//! The optional exports of a module: `wit/optional.wit`.
//!
//! In version 0.1 of the interface they are functions of `endpoint`, where the host finds them too.

use wasmtime::Store;
use wasmtime::component::{
    Component, ComponentExportIndex, Instance, InstancePre, Resource, TypedFunc,
};

use crate::State;
use crate::bindings::watm::transport::types::{Destination, ErrorCode};
use watm_net::flow::GuestDatagrams;
use watm_policy::inspection::{PACKAGE, VERSION};

/// The places of a component's optional exports; `None` for those that it lacks.
pub(crate) struct Indices {
    dial_datagrams: Option<ComponentExportIndex>,
    network_changed: Option<ComponentExportIndex>,
}

/// The optional exports of an instance.
#[derive(Clone, Copy)]
pub(crate) struct Exports {
    pub(crate) dial_datagrams: Option<DialDatagrams>,
    pub(crate) network_changed: Option<TypedFunc<(u64,), ()>>,
}

/// `datagram-dialer.dial-datagrams`.
pub(crate) type DialDatagrams =
    TypedFunc<(Option<Destination>, Resource<GuestDatagrams>, u64), (Result<u64, ErrorCode>,)>;

impl Indices {
    pub(crate) fn of(module: &InstancePre<State>) -> Indices {
        let component = module.component();
        Indices {
            dial_datagrams: find(component, "datagram-dialer", "dial-datagrams"),
            network_changed: find(component, "network-observer", "network-changed"),
        }
    }

    /// Fails if an export has another type.
    pub(crate) fn load(
        &self,
        store: &mut Store<State>,
        instance: &Instance,
    ) -> wasmtime::Result<Exports> {
        let dial_datagrams = self.dial_datagrams.as_ref();
        let network_changed = self.network_changed.as_ref();
        Ok(Exports {
            dial_datagrams: dial_datagrams
                .map(|index| instance.get_typed_func(&mut *store, index))
                .transpose()?,
            network_changed: network_changed
                .map(|index| instance.get_typed_func(&mut *store, index))
                .transpose()?,
        })
    }
}

/// Finds a function in its interface, or in `endpoint`.
fn find(component: &Component, interface: &str, function: &str) -> Option<ComponentExportIndex> {
    [interface, "endpoint"].into_iter().find_map(|interface| {
        let interface = format!("{PACKAGE}/{interface}@{VERSION}");
        let interface = component.get_export_index(None, &interface)?;
        component.get_export_index(Some(&interface), function)
    })
}
