//! Counters of clients and datagrams, which commands show and metrics export.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// Counts of events so far. They are statistics only: no ordering relies on them.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $field: Counter,)*
        }

        impl Counters {
            /// Returns all counters by name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field.get()),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Clients that were accepted.
    clients,
    /// Clients whose destination was reached.
    connected,
    /// Clients that broke the protocol, were too slow, or failed to authenticate.
    refused,
    /// Destinations that could not be reached.
    failed,
    /// Datagrams of clients that were forwarded.
    datagrams_out,
    /// Datagrams that were returned to clients.
    datagrams_in,
    /// Fragments of datagrams (RFC 1928 section 7), which are not reassembled.
    dropped_fragments,
    /// Datagrams that are not SOCKS5, or have no valid destination.
    dropped_malformed,
    /// Datagrams from addresses other than the client's.
    dropped_strangers,
    /// Datagrams lost to a full queue, or to a flow that could not be opened.
    dropped_full,
}

/// A counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
