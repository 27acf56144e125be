//! The host's own files, compiled with locks and atomics that try every order of the threads'
//! actions, and every value that a read may see (loom). A model is a few threads and what must hold
//! at the end; a thread that waits for something that does not come is an error too.
//!
//! Usage: `models [NAME]`. Without a name all are run, one after another.

// The files have more than a model uses.
#![allow(dead_code, unused_imports)]

extern crate self as watm_net;
extern crate self as watm_runtime;

mod doorbell;
mod host;
mod sync;

#[path = "../../../../runtime/net/src/account.rs"]
mod account;
#[path = "../../../../runtime/net/src/flow/mod.rs"]
mod flow;
#[path = "../../../../runtime/component/src/mailboxes.rs"]
mod mailboxes;
#[path = "../../../../runtime/net/src/quota.rs"]
mod quota;
#[path = "../../../../runtime/net/src/ready.rs"]
mod ready;
#[path = "../../../../host-python/src/signals.rs"]
mod signals;

mod model;
mod models;

pub use doorbell::Doorbell;
pub use flow::{DatagramFlow, StreamFlow};
pub use host::Limits;
pub(crate) use host::{counters, sockets};
pub use watm_types::{ErrorCode, FlowInfo, Network};

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let chosen = models::ALL
        .iter()
        .filter(|(name, _)| name.contains(&wanted));
    let mut count = 0;
    for (name, model) in chosen {
        model::explore(name, *model);
        count += 1;
    }
    assert!(count > 0, "there is no model {wanted}");
}
