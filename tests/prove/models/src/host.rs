//! Stand-ins for the items that the modelled files import from other files, with no more than they
//! need.

/// The limits that the modelled files read.
pub struct Limits {
    pub flow_bytes: usize,
    pub stream_buffer_bytes: usize,
    pub write_high_water: usize,
    pub write_low_water: usize,
    pub datagram_queue: usize,
    pub datagram_queue_bytes: usize,
}

/// Statistics, by which nothing is ordered.
pub(crate) mod counters {
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    pub(crate) struct Counters {
        pub(crate) dropped_to_module: Counter,
        pub(crate) dropped_to_application: Counter,
    }

    #[derive(Default)]
    pub(crate) struct Counter(AtomicU64);

    impl Counter {
        pub(crate) fn add(&self, count: u64) {
            self.0.fetch_add(count, Ordering::Relaxed);
        }
    }
}

/// Sockets, to which no model joins a flow.
pub(crate) mod sockets {
    use std::io;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio::net::UdpSocket;

    use crate::ErrorCode;

    pub trait UpstreamStream: AsyncRead + AsyncWrite + Send + Unpin + 'static {
        fn reset(&self);
    }

    #[derive(Default)]
    pub(crate) struct Inlet;

    impl Inlet {
        pub(crate) fn read(
            &mut self,
            _: &mut dyn UpstreamStream,
            _: usize,
            _: &mut Context<'_>,
        ) -> Result<Option<Vec<u8>>, ErrorCode> {
            unreachable!("no model joins a flow")
        }
    }

    pub(crate) fn poll_receive(
        _: &UdpSocket,
        _: &mut Context<'_>,
        _: impl FnMut(&[u8]),
    ) -> Poll<io::Result<()>> {
        unreachable!("no model joins a flow")
    }
}
