use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident),* $(,)?) => {
        /// What happened so far. Statistics only: nothing is ordered by them.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $field: Counter,)*
        }

        impl Counters {
            /// All of them, by name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field.get()),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Clients that were accepted.
    clients,
    /// Clients whose destination was connected to.
    connected,
    /// Clients that were not understood, too slow, or nobody that is known.
    refused,
    /// Destinations that could not be had.
    failed,
    /// Datagrams of clients that were passed on.
    datagrams_out,
    /// Answers that were passed back.
    datagrams_in,
    /// Datagrams that were parts of one (RFC 1928 section 7), which are not put together.
    dropped_fragments,
    /// Datagrams that are none of SOCKS5, or go nowhere.
    dropped_malformed,
    /// Datagrams from somebody else than the client.
    dropped_strangers,
    /// Datagrams that found a queue full, or a flow that could not be had.
    dropped_full,
}

/// One number.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
